// SPDX-License-Identifier: Apache-2.0
//! Builds the tokenizer that the metadata of a GGUF file describes. How a vocabulary's texts are split follows from the
//! name of a pre-tokenizer or from the architecture: data in families.json. The oracle is transformers 5
//! (`integrations/gguf`); components are written as tokenizer.json spells them.
use crate::any_tokenizer::AnyTokenizer;
use crate::folder::Folder;
use crate::tokenizer_parts::*;
use crate::{guard, opened, put_text, text_at, TxBuf};
use serde::Deserialize;
use serde_json::{json, Map, Value};
use std::collections::{HashMap, HashSet};
use std::ffi::c_char;
use std::path::Path;
use std::sync::OnceLock;
use tokenizers::models::bpe::{BpeBuilder, BPE};
use tokenizers::{AddedToken, Tokenizer};

/// Types of tokens, as in SentencePiece.
const UNKNOWN: u64 = 2;
const CONTROL: u64 = 3;
const USER_DEFINED: u64 = 4;
/// No merge makes a piece of more bytes; without a limit a hostile file would cost quadratic time.
const LONGEST_PIECE: usize = 256;

/// The metadata, as worker/checkpoint/gguf/gguf_tokenizer.cpp writes it.
#[derive(Deserialize, Default)]
pub struct Metadata {
    architecture: String,
    /// gpt2: byte-level pairs; llama: SentencePiece's pairs
    model: Option<String>,
    /// name of the pre-tokenizer of byte-level pairs
    pre: Option<String>,
    /// what tokenizer_config.json would say
    pub settings: Map<String, Value>,
    tokens: Option<Vec<String>>,
    scores: Option<Vec<f64>>,
    token_type: Option<Vec<u64>>,
    merges: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct ByteLevel {
    pre: Vec<String>,
    normalizer: Option<String>,
    /// a regular expression by which text is split first
    split: Option<String>,
    /// GPT-2's words are split after that
    #[serde(default)]
    words: bool,
    #[serde(default)]
    ignore_merges: bool,
    #[serde(default)]
    add_bos_token: bool,
}

#[derive(Deserialize, Clone, Copy, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Spaces {
    /// Metaspace puts one before the text, unless add_prefix_space is false
    Metaspace,
    /// a normalizer puts one before the text
    Prepended,
    /// none is added
    Replaced,
}

#[derive(Deserialize, Clone, Copy, PartialEq, Default)]
#[serde(rename_all = "snake_case")]
enum Order {
    #[default]
    ByScore,
    ById,
}

#[derive(Deserialize)]
struct Pieces {
    /// empty: all others
    architectures: Vec<String>,
    spaces: Spaces,
    #[serde(default)]
    merges: Order,
}

#[derive(Deserialize, Default)]
struct Families {
    byte_level: Vec<ByteLevel>,
    pieces: Vec<Pieces>,
}

fn families() -> &'static Families {
    static DATA: OnceLock<Families> = OnceLock::new();
    DATA.get_or_init(|| serde_json::from_str(include_str!("families.json")).unwrap_or_default())
}

impl Metadata {
    /// Parses the text that the C++ side passes; empty where the folder has no GGUF file.
    pub fn parse(text: &str) -> Result<Option<Self>, String> {
        if text.is_empty() {
            return Ok(None);
        }
        let mut metadata: Metadata =
            serde_json::from_str(text).map_err(|e| format!("the GGUF file's tokenizer: {e}"))?;
        let adds_bos = match metadata.model.as_deref() {
            Some("llama") => true,
            Some("gpt2") => metadata.byte_level().is_some_and(|level| level.add_bos_token),
            _ => false,
        };
        metadata.settings.entry("add_bos_token").or_insert(adds_bos.into());
        Ok(Some(metadata))
    }

    fn byte_level(&self) -> Option<&'static ByteLevel> {
        let pre = self.pre.as_ref()?;
        families().byte_level.iter().find(|level| level.pre.contains(pre))
    }

    /// Returns why the folder is served with token ids only, if it is.
    pub fn ids_only(&self) -> Option<String> {
        match self.model.as_deref() {
            None => Some("the GGUF file has no tokenizer (tokenizer.ggml.model)".into()),
            Some("llama") => None,
            Some("gpt2") if self.byte_level().is_some() => None,
            Some("gpt2") => Some(format!(
                "the GGUF file names the pre-tokenizer \"{}\" (tokenizer.ggml.pre), expected one of {}",
                self.pre.as_deref().unwrap_or_default(),
                families()
                    .byte_level
                    .iter()
                    .flat_map(|l| l.pre.clone())
                    .collect::<Vec<_>>()
                    .join(", ")
            )),
            Some(model) => Some(format!(
                "the GGUF file has a tokenizer of the model \"{model}\" (tokenizer.ggml.model), expected gpt2 or llama"
            )),
        }
    }

    /// Builds the tokenizer. Errors say what is wrong with the file.
    pub fn build(&self, folder: &Folder) -> Result<Tokenizer, String> {
        let tokens = self
            .tokens
            .as_deref()
            .filter(|t| !t.is_empty())
            .ok_or("it has no tokens")?;
        let mut tokenizer = match self.byte_level() {
            Some(level) if self.model.as_deref() == Some("gpt2") => self.byte_pairs(tokens, level)?,
            _ => self.piece_pairs(tokens, folder)?,
        };
        self.add_tokens(&mut tokenizer, tokens, folder)?;
        ends_template(&mut tokenizer, folder, &[], false, false)?;
        Ok(tokenizer)
    }

    fn kind(&self, id: usize) -> u64 {
        self.token_type.as_ref().map_or(1, |types| types[id])
    }

    /// Returns the merges that the file has.
    fn stated_merges(&self) -> Result<Option<Vec<(String, String)>>, String> {
        let Some(merges) = &self.merges else { return Ok(None) };
        let pair = |merge: &String| {
            // the first piece has at least one character
            let at = merge.char_indices().skip(1).find(|(_, c)| *c == ' ').map(|(at, _)| at);
            at.map(|at| (merge[..at].to_string(), merge[at + 1..].to_string()))
                .ok_or_else(|| format!("the merge \"{merge}\" is no pair"))
        };
        merges.iter().map(pair).collect::<Result<_, _>>().map(Some)
    }

    fn byte_pairs(&self, tokens: &[String], level: &ByteLevel) -> Result<Tokenizer, String> {
        let merges = self
            .stated_merges()?
            .ok_or("it has no merges (tokenizer.ggml.merges)")?;
        let model = built(numbered(tokens), merges, |b| b.ignore_merges(level.ignore_merges))?;
        let bytes = |words: bool| json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": words});
        let mut splits = Vec::new();
        if let Some(split) = &level.split {
            splits.push(json!({"type": "Split", "pattern": {"Regex": split}, "behavior": "Isolated", "invert": false}));
        }
        splits.push(bytes(level.words));
        let normalizer = level
            .normalizer
            .as_ref()
            .map(|name| part(json!({"type": name})))
            .transpose()?;
        assembled(Parts {
            model: model.into(),
            normalizer,
            pre_tokenizer: json!({"type": "Sequence", "pretokenizers": splits}),
            decoder: bytes(true),
        })
    }

    fn piece_pairs(&self, tokens: &[String], folder: &Folder) -> Result<Tokenizer, String> {
        let own = families().pieces.iter();
        let pieces = own
            .clone()
            .find(|p| p.architectures.is_empty() || p.architectures.contains(&self.architecture))
            .ok_or("no rule for its spaces")?;
        let blank = |t: &String| t.contains(' ') && t.trim_matches(' ').is_empty();
        // tokens of spaces alone are stored as spaces, and looked up as pieces
        let respelled: Vec<String> = tokens
            .iter()
            .map(|t| {
                if pieces.spaces == Spaces::Replaced && blank(t) {
                    t.replace(' ', "▁")
                } else {
                    t.clone()
                }
            })
            .collect();
        let vocab = numbered(&respelled);
        let merges = match self.stated_merges()? {
            Some(merges) => merges,
            None => self.merges_of_pieces(&respelled, &vocab, pieces.merges)?,
        };
        let unknown = (0..tokens.len()).find(|id| self.kind(*id) == UNKNOWN);
        let unknown = folder
            .token("unk_token", "")
            .map(|t| t.content)
            .or(unknown.map(|id| respelled[id].clone()));
        let model = built(vocab, merges, |b| {
            let b = b.fuse_unk(true).byte_fallback(true);
            if let Some(unknown) = unknown {
                b.unk_token(unknown)
            } else {
                b
            }
        })?;
        let prefix = pieces.spaces != Spaces::Replaced && folder.flag("add_prefix_space", true);
        let mut decoders = vec![
            json!({"type": "Replace", "pattern": {"String": "▁"}, "content": " "}),
            json!({"type": "ByteFallback"}),
            json!({"type": "Fuse"}),
        ];
        if prefix {
            decoders.push(json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
        }
        let replace = json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"});
        let mut steps = Vec::new();
        if pieces.spaces == Spaces::Prepended && prefix {
            steps.push(json!({"type": "Prepend", "prepend": "▁"}));
        }
        steps.push(replace);
        let scheme = if prefix { "first" } else { "never" };
        let metaspace = pieces.spaces == Spaces::Metaspace;
        // a normalizer leaves nothing to split at
        let pre_tokenizer = if metaspace {
            json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": false})
        } else {
            json!({"type": "Sequence", "pretokenizers": []})
        };
        assembled(Parts {
            model: model.into(),
            normalizer: if metaspace { None } else { Some(part(sequence(&steps))?) },
            pre_tokenizer,
            decoder: json!({"type": "Sequence", "decoders": decoders}),
        })
    }

    /// Returns the merges that the pieces imply: every split of a piece into two pieces, those of better pieces first
    /// (transformers' `generate_merges`).
    fn merges_of_pieces(
        &self,
        tokens: &[String],
        vocab: &ahash::AHashMap<String, u32>,
        order: Order,
    ) -> Result<Vec<(String, String)>, String> {
        let scores = match order {
            Order::ById => None,
            Order::ByScore => Some(self.scores.as_ref().ok_or("it has neither merges nor scores")?),
        };
        let rank = |id: usize| scores.map_or(-(id as f64), |scores| scores[id]);
        let mut merges = Vec::new();
        let mut seen = HashSet::new();
        for (id, whole) in tokens.iter().enumerate() {
            if whole.len() > LONGEST_PIECE || !seen.insert(whole.as_str()) {
                continue;
            }
            let mut splits: Vec<_> = whole
                .char_indices()
                .enumerate()
                .skip(1)
                .filter_map(|(chars, (at, _))| {
                    let (left, right) = whole.split_at(at);
                    Some((*vocab.get(left)?, *vocab.get(right)?, chars, left, right))
                })
                .collect();
            splits.sort_by_key(|(left, right, ..)| (*left, *right));
            merges.extend(
                splits
                    .into_iter()
                    .map(|(_, _, chars, left, right)| (rank(id), chars, left, right)),
            );
        }
        merges.sort_by(|a, b| b.0.total_cmp(&a.0).then(b.1.cmp(&a.1)));
        Ok(merges
            .into_iter()
            .map(|(_, _, left, right)| (left.to_string(), right.to_string()))
            .collect())
    }

    /// Adds control tokens and those with a role as special ones, and tokens of users: all are found in text before it is
    /// split.
    fn add_tokens(&self, tokenizer: &mut Tokenizer, tokens: &[String], folder: &Folder) -> Result<(), String> {
        let of = |wanted: u64, special: bool| -> Vec<AddedToken> {
            let own = tokens.iter().enumerate().filter(|(id, text)| {
                self.kind(*id) == wanted && !text.is_empty() && tokenizer.token_to_id(text).is_some()
            });
            own.map(|(_, text)| AddedToken::from(text.clone(), special).normalized(false))
                .collect()
        };
        let (mut control, user) = (of(CONTROL, true), of(USER_DEFINED, false));
        let roles = folder.special_tokens(&[], Vec::new());
        control.extend(
            roles
                .into_iter()
                .filter(|t| tokenizer.token_to_id(&t.content).is_some()),
        );
        tokenizer.add_special_tokens(control).map_err(|e| e.to_string())?;
        tokenizer.add_tokens(user).map_err(|e| e.to_string())?;
        Ok(())
    }
}

/// Returns the ids of tokens; of two that are spelled alike the first one's.
fn numbered(tokens: &[String]) -> ahash::AHashMap<String, u32> {
    let mut ids = HashMap::new();
    for (token, id) in tokens.iter().zip(0..) {
        ids.entry(token.clone()).or_insert(id);
    }
    ids.into_iter().collect()
}

fn built(
    vocab: ahash::AHashMap<String, u32>,
    merges: Vec<(String, String)>,
    options: impl FnOnce(BpeBuilder) -> BpeBuilder,
) -> Result<BPE, String> {
    options(BPE::builder().vocab_and_merges(vocab, merges))
        .build()
        .map_err(|e| e.to_string())
}

/// Returns the text of the tokenizer.json that gives the tokenizer of a GGUF file (`gguf`, as of `tx_tokenizer_open`). `out`
/// stays empty and `error` says why where it has none.
/// # Safety
/// `path` and `gguf` are NUL-terminated; `out` and `error` are writable.
#[no_mangle]
pub unsafe extern "C" fn tx_gguf_tokenizer_json(
    path: *const c_char,
    gguf: *const c_char,
    out: *mut TxBuf,
    error: *mut TxBuf,
) -> i32 {
    guard(error, || {
        match opened(Path::new(text_at(path)?), Metadata::parse(text_at(gguf)?)?)? {
            Ok(AnyTokenizer::Fast(tokenizer)) => put_text(out, tokenizer.to_string(false).map_err(|e| e.to_string())?),
            Ok(AnyTokenizer::Slow(_)) => return Err("the tokenizer is not of a GGUF file".into()),
            Err(reason) => put_text(error, reason),
        }
        Ok(())
    })
}
