// SPDX-License-Identifier: Apache-2.0
//! Slow tokenizers: Marian's and M2M100's, which transformers implements in Python only
//! (`models/{marian,m2m_100}/tokenization_*.py` on `tokenization_python.py`). They split text by a SentencePiece model
//! and number the pieces by a vocabulary of their own. Their tokens have no offsets in the text.
use crate::folder::{default_of, file, read, Folder, Roles};
use crate::sentencepiece::SentencePiece;
use crate::sentencepiece_processor::SentencePieceProcessor;
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use tokenizers::AddedToken;

/// `language_codes` of M2M100's tokenizer.
const M2M100: &str = "af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl gu ha he hi hr ht hu hy id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv \
    mg mk ml mn mr ms my ne nl no ns oc or pa pl ps pt ro ru sd si sk sl so sq sr ss su sv sw ta th tl tn tr uk ur uz vi wo xh yi yo zh zu";
const WMT21: &str = "en ha is ja cs ru zh de";

pub struct SlowTokenizer {
    cuts: SentencePieceProcessor,
    /// decodes pieces
    joins: SentencePieceProcessor,
    ids: HashMap<String, u32>,
    tokens: HashMap<u32, String>,
    /// added tokens, which are split off a text first, by their text
    added: HashMap<String, (u32, AddedToken)>,
    special: HashSet<u32>,
    prefix: Vec<u32>,
    suffix: Vec<u32>,
    unk: u32,
    marian: bool,
    size: usize,
}

fn processor(folder: &Folder, names: &[&str]) -> Result<SentencePieceProcessor, String> {
    let path = file(folder, names)?;
    let model = SentencePiece::parse(&read(path.as_ref())?).and_then(SentencePieceProcessor::new);
    model.map_err(|e| format!("{path} cannot be read: {e}"))
}

fn vocabulary(folder: &Folder, name: &str) -> Result<HashMap<String, u32>, String> {
    let path = file(folder, &[name])?;
    serde_json::from_slice(&read(path.as_ref())?).map_err(|e| format!("{path} is not a vocabulary: {e}"))
}

/// "en" -> "__en__"
fn language(code: &str) -> String {
    format!("__{code}__")
}

impl SlowTokenizer {
    /// Builds Marian's tokenizer from source.spm, target.spm, vocab.json, and target_vocab.json where the languages do
    /// not share a vocabulary.
    pub fn marian(folder: &Folder, roles: Roles) -> Result<Self, String> {
        let separate = folder.flag("separate_vocabs", false);
        let ids = vocabulary(folder, "vocab.json")?;
        let shown = if separate {
            vocabulary(folder, "target_vocab.json")?
        } else {
            ids.clone()
        };
        let joins = processor(folder, &[if separate { "target.spm" } else { "source.spm" }])?;
        let mut made = Self::new(folder, roles, processor(folder, &["source.spm"])?, joins, ids, shown)?;
        made.marian = true;
        made.suffix = vec![made.role(folder, roles, "eos_token")?];
        Ok(made)
    }

    /// Builds M2M100's tokenizer from sentencepiece.bpe.model and vocab.json; a token for each language follows the
    /// vocabulary.
    pub fn m2m100(folder: &Folder, roles: Roles) -> Result<Self, String> {
        let ids = vocabulary(folder, "vocab.json")?;
        let shown = ids.clone();
        let model = || processor(folder, &["sentencepiece.bpe.model"]);
        let codes = match folder
            .settings
            .get("language_codes")
            .and_then(Value::as_str)
            .unwrap_or("m2m100")
        {
            "m2m100" => M2M100,
            "wmt21" => WMT21,
            other => {
                return Err(format!(
                    "tokenizer_config.json has language_codes \"{other}\", expected m2m100 or wmt21"
                ))
            }
        };
        let count = u32::try_from(ids.len()).map_err(|_| "vocab.json has too many tokens")?;
        let mut made = Self::new(folder, roles, model()?, model()?, ids, shown)?;
        for (code, id) in codes.split_whitespace().zip(count..) {
            made.ids.insert(language(code), id);
            made.tokens.insert(id, language(code));
        }
        let source = folder.settings.get("src_lang").and_then(Value::as_str).unwrap_or("en");
        let id = made
            .ids
            .get(&language(source))
            .filter(|_| codes.split_whitespace().any(|code| code == source));
        made.prefix = vec![
            *id.ok_or_else(|| format!("tokenizer_config.json has src_lang \"{source}\", expected one of {codes}"))?
        ];
        made.suffix = vec![made.role(folder, roles, "eos_token")?];
        Ok(made)
    }

    fn new(
        folder: &Folder,
        roles: Roles,
        cuts: SentencePieceProcessor,
        joins: SentencePieceProcessor,
        ids: HashMap<String, u32>,
        shown: HashMap<String, u32>,
    ) -> Result<Self, String> {
        let tokens = shown.into_iter().map(|(text, id)| (id, text)).collect();
        let mut made = SlowTokenizer {
            cuts,
            joins,
            size: ids.len(),
            ids,
            tokens,
            added: HashMap::new(),
            special: HashSet::new(),
            prefix: Vec::new(),
            suffix: Vec::new(),
            unk: 0,
            marian: false,
        };
        made.unk = made.role(folder, roles, "unk_token")?;
        for (id, token) in &folder.added {
            let id =
                u32::try_from(*id).map_err(|_| format!("the added token \"{}\" has the id {id}", token.content))?;
            made.size += usize::from(!made.ids.contains_key(&token.content));
            made.added.insert(token.content.clone(), (id, token.clone()));
        }
        for token in folder.special_tokens(roles, folder.extra_tokens()) {
            let next = u32::try_from(made.size).unwrap_or(u32::MAX);
            let known = made.token_to_id(&token.content);
            let id = known.unwrap_or(next);
            made.size += usize::from(known.is_none());
            made.special.insert(id);
            made.added.entry(token.content.clone()).or_insert((id, token));
        }
        Ok(made)
    }

    fn role(&self, folder: &Folder, roles: Roles, role: &str) -> Result<u32, String> {
        let token = folder
            .token(role, default_of(roles, role))
            .ok_or_else(|| format!("it has no {role}"))?;
        self.ids
            .get(&token.content)
            .copied()
            .ok_or_else(|| format!("vocab.json lacks its {role}, \"{}\"", token.content))
    }

    /// Splits a text at added tokens; at each position the longest matching token wins.
    fn split<'a>(&'a self, text: &'a str) -> Vec<Result<&'a str, &'a (u32, AddedToken)>> {
        let mut parts = Vec::new();
        let (mut begin, mut at) = (0, 0);
        while at < text.len() {
            let here = self
                .added
                .values()
                .filter(|(_, token)| !token.content.is_empty() && text[at..].starts_with(&token.content))
                .max_by_key(|(_, token)| token.content.len());
            if let Some(found) = here {
                parts.extend([Ok(&text[begin..at]), Err(found)]);
                at += found.1.content.len();
                begin = at;
            } else {
                at += text[at..].chars().next().map_or(1, char::len_utf8);
            }
        }
        parts.push(Ok(&text[begin..]));
        parts
    }

    fn words(&self, mut text: &str, out: &mut Vec<u32>) -> Result<(), String> {
        if self.marian && text.starts_with(">>") {
            if let Some(end) = text.find("<<") {
                out.push(self.ids.get(&text[..end + 2]).copied().unwrap_or(self.unk));
                text = &text[end + 2..];
            }
        }
        out.extend(
            self.cuts
                .encode(text)?
                .iter()
                .map(|piece| self.ids.get(piece).copied().unwrap_or(self.unk)),
        );
        Ok(())
    }

    /// Returns the ids of the text without special tokens.
    pub fn plain(&self, text: &str) -> Result<Vec<u32>, String> {
        let parts = self.split(text);
        let mut ids = Vec::new();
        for (i, part) in parts.iter().enumerate() {
            match part {
                Err((id, _)) => ids.push(*id),
                Ok(text) => {
                    let mut text = *text;
                    if matches!(i.checked_sub(1).map(|before| &parts[before]), Some(Err((_, token))) if token.rstrip) {
                        text = text.trim_start();
                    }
                    if matches!(parts.get(i + 1), Some(Err((_, token))) if token.lstrip) {
                        text = text.trim_end();
                    }
                    if !text.is_empty() {
                        self.words(text, &mut ids)?;
                    }
                }
            }
        }
        Ok(ids)
    }

    /// Returns ids with the text that each belongs to: 0, 1, or -1 for special tokens around them.
    pub fn encode(&self, first: &str, second: Option<&str>, special: bool) -> Result<Vec<(u32, i32)>, String> {
        let mut all: Vec<(u32, i32)> = Vec::new();
        if special {
            all.extend(self.prefix.iter().map(|id| (*id, -1)));
        }
        all.extend(self.plain(first)?.into_iter().map(|id| (id, 0)));
        if let Some(second) = second {
            all.extend(self.plain(second)?.into_iter().map(|id| (id, 1)));
        }
        if special {
            all.extend(self.suffix.iter().map(|id| (*id, -1)));
        }
        Ok(all)
    }

    pub fn token_to_id(&self, token: &str) -> Option<u32> {
        self.added
            .get(token)
            .map(|(id, _)| *id)
            .or_else(|| self.ids.get(token).copied())
    }

    pub fn id_to_token(&self, id: u32) -> Option<&str> {
        let added = self
            .added
            .iter()
            .find(|(_, (number, _))| *number == id)
            .map(|(text, _)| text.as_str());
        added.or_else(|| self.tokens.get(&id).map(String::as_str)).or_else(|| {
            if self.marian {
                self.joins.piece(id)
            } else {
                self.spelling_of_unk(id)
            }
        })
    }

    fn spelling_of_unk(&self, id: u32) -> Option<&str> {
        if (id as usize) < self.size {
            self.tokens.get(&self.unk).map(String::as_str)
        } else {
            None
        }
    }

    pub fn decode(&self, ids: &[u32], skip_special: bool) -> String {
        let mut out = String::new();
        let mut pieces: Vec<&str> = Vec::new();
        for id in ids {
            let special = self.special.contains(id);
            if special && skip_special {
                continue;
            }
            let Some(text) = self.id_to_token(*id) else { continue };
            if special {
                out.push_str(&self.joins.decode(pieces.drain(..)));
                out.push_str(text);
                out.push_str(if self.marian { " " } else { "" });
            } else {
                pieces.push(text);
            }
        }
        out.push_str(&self.joins.decode(pieces));
        if self.marian {
            out.replace('▁', " ").trim().to_string()
        } else {
            out.trim().to_string()
        }
    }

    pub fn size(&self) -> usize {
        self.size
    }
}
