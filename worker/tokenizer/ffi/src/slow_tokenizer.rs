// SPDX-License-Identifier: Apache-2.0
//! Slow tokenizers: those that transformers implements in Python only (`models/*/tokenization_*.py` on
//! `tokenization_python.py`). This file has their common part: added tokens, special tokens, templates, decoding.
//! Marian's, M2M100's and Speech2Text's split text by a SentencePiece model and number the pieces by a vocabulary of
//! their own, `slow_tokenizer/offset_pieces.rs` by the model's order; the others merge the characters of words
//! (`word_splitter.rs`). Their tokens have no offsets in the text.
use crate::folder::{default_of, file, read, Folder, Roles};
use crate::japanese_splitter::JapaneseSplitter;
use crate::moses::{Language, Moses};
use crate::moses_join::MosesJoiner;
use crate::python_text;
use crate::sentencepiece::SentencePiece;
use crate::sentencepiece_processor::SentencePieceProcessor;
use crate::whole_words::WholeWords;
use crate::word_splitter::{counted_vocabulary, json_vocabulary, MergesFile, Vocabulary, WordSplitter, Words};
use serde_json::Value;
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use tokenizers::AddedToken;
mod japanese;
mod offset_pieces;
mod whole_words;

/// `language_codes` of M2M100's tokenizer.
const M2M100: &str = "af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl gu ha he hi hr ht hu hy id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv \
    mg mk ml mn mr ms my ne nl no ns oc or pa pl ps pt ro ru sd si sk sl so sq sr ss su sv sw ta th tl tn tr uk ur uz vi wo xh yi yo zh zu";
const WMT21: &str = "en ha is ja cs ru zh de";

/// How a family's tokens become text, beside what their SentencePiece model does.
#[derive(Clone, Copy, PartialEq)]
enum Spelling {
    /// A language code at the beginning is one token; a space follows special tokens; "▁" left in pieces is a space.
    Marian,
    M2M100,
    /// A space follows special tokens; the text between them may be spelled in capitals.
    Speech {
        capitals: bool,
    },
    /// Tokens side by side, in which "▁" is a space.
    Joined,
}

/// Splits the text between added tokens into tokens, and joins tokens to text.
enum Splitter {
    Pieces {
        cuts: SentencePieceProcessor,
        joins: SentencePieceProcessor,
        spelling: Spelling,
    },
    Words(WordSplitter),
    Japanese(Box<JapaneseSplitter>),
    WholeWords(Box<WholeWords>),
}

/// Special tokens around one text, or around two and between them.
#[derive(Default)]
struct Template {
    prefix: Vec<u32>,
    between: Vec<u32>,
    suffix: Vec<u32>,
    /// whether the tokens after those that the first text alone would have are of type 1
    typed: bool,
}

/// One token of an encoding. `sequence`: 0, 1, or -1 for a special token of the template.
pub struct SlowToken {
    pub id: u32,
    pub sequence: i32,
    pub type_id: u32,
}

pub struct SlowTokenizer {
    splitter: Splitter,
    ids: HashMap<String, u32>,
    tokens: HashMap<u32, String>,
    /// added tokens, which are split off a text first, by their text
    added: HashMap<String, (u32, AddedToken)>,
    special: HashSet<u32>,
    template: Template,
    unk: u32,
    unk_token: String,
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

/// Returns the text of the token with a role.
fn named(folder: &Folder, roles: Roles, role: &str) -> Result<String, String> {
    folder
        .token(role, default_of(roles, role))
        .map(|token| token.content)
        .ok_or_else(|| format!("it has no {role}"))
}

/// Returns the source and target language of a translation model.
pub fn translated_languages(folder: &Folder) -> Option<(Language, Language)> {
    let codes = folder.settings.get("langs")?.as_array()?;
    match &codes[..] {
        [source, target] => Some((Language::parse(source.as_str()?)?, Language::parse(target.as_str()?)?)),
        _ => None,
    }
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
        let splitter = Splitter::Pieces {
            cuts: processor(folder, &["source.spm"])?,
            joins,
            spelling: Spelling::Marian,
        };
        let mut made = Self::new(folder, roles, splitter, ids, shown)?;
        made.template.suffix = vec![made.role(folder, roles, "eos_token")?];
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
        let splitter = Splitter::Pieces {
            cuts: model()?,
            joins: model()?,
            spelling: Spelling::M2M100,
        };
        let mut made = Self::new(folder, roles, splitter, ids, shown)?;
        for (code, id) in codes.split_whitespace().zip(count..) {
            made.ids.insert(language(code), id);
            made.tokens.insert(id, language(code));
        }
        let source = folder.settings.get("src_lang").and_then(Value::as_str).unwrap_or("en");
        let id = made
            .ids
            .get(&language(source))
            .filter(|_| codes.split_whitespace().any(|code| code == source));
        made.template.prefix = vec![
            *id.ok_or_else(|| format!("tokenizer_config.json has src_lang \"{source}\", expected one of {codes}"))?
        ];
        made.template.suffix = vec![made.role(folder, roles, "eos_token")?];
        Ok(made)
    }

    /// Builds Speech2Text's tokenizer from sentencepiece.bpe.model and vocab.json. With `lang_codes` a text would begin
    /// with the number that the SentencePiece model gives the language, which is none of the vocabulary's.
    pub fn speech(folder: &Folder, roles: Roles) -> Result<Self, String> {
        if folder.settings.get("lang_codes").is_some_and(|codes| !codes.is_null()) {
            return Err(
                "tokenizer_config.json has lang_codes, by which one model writes several languages".to_string(),
            );
        }
        let ids = vocabulary(folder, "vocab.json")?;
        let shown = ids.clone();
        let splitter = Splitter::Pieces {
            cuts: processor(folder, &["sentencepiece.bpe.model"])?,
            joins: processor(folder, &["sentencepiece.bpe.model"])?,
            spelling: Spelling::Speech {
                capitals: folder.flag("do_upper_case", false),
            },
        };
        let mut made = Self::new(folder, roles, splitter, ids, shown)?;
        made.template.suffix = vec![made.role(folder, roles, "eos_token")?];
        Ok(made)
    }

    /// Builds CTRL's tokenizer from vocab.json and merges.txt. It has no template.
    pub fn control_codes(folder: &Folder, roles: Roles) -> Result<Self, String> {
        let splitter = WordSplitter::new(folder, MergesFile::HEADED, Words::Plain(char::is_whitespace))?;
        let mut made = Self::of_words(folder, roles, splitter, json_vocabulary(folder, "vocab.json")?)?;
        made.template.typed = false;
        Ok(made)
    }

    /// Builds BlenderbotSmall's tokenizer from vocab.json and merges.txt. It has no template.
    pub fn dialogue(folder: &Folder, roles: Roles) -> Result<Self, String> {
        let splitter = WordSplitter::new(folder, MergesFile::HEADED, Words::Dialogue)?;
        Self::of_words(folder, roles, splitter, json_vocabulary(folder, "vocab.json")?)
    }

    /// Builds PhoBERT's and BERTweet's tokenizer from vocab.txt and bpe.codes, which Fairseq writes.
    pub fn fairseq_pairs(folder: &Folder, roles: Roles) -> Result<Self, String> {
        let splitter = WordSplitter::new(folder, MergesFile::COUNTED, Words::Plain(python_text::is_space))?;
        let special: Vec<String> = ["bos_token", "pad_token", "eos_token", "unk_token"]
            .iter()
            .filter_map(|role| folder.token(role, default_of(roles, role)).map(|t| t.content))
            .collect();
        let mut made = Self::of_words(
            folder,
            roles,
            splitter,
            counted_vocabulary(folder, "vocab.txt", special)?,
        )?;
        let (cls, sep) = (
            made.special_role(folder, roles, "cls_token")?,
            made.special_role(folder, roles, "sep_token")?,
        );
        made.template = Template {
            prefix: vec![cls],
            between: vec![sep, sep],
            suffix: vec![sep],
            typed: false,
        };
        Ok(made)
    }

    /// Builds XLM's tokenizer from vocab.json and merges.txt. Texts are split as English, as transformers does unless
    /// its caller names a language.
    pub fn moses_english(folder: &Folder, roles: Roles) -> Result<Self, String> {
        let words = Words::Moses {
            moses: Moses::new(Language::English)?,
            plain_letters: folder.flag("do_lowercase_and_remove_accent", true),
        };
        Self::of_moses(folder, roles, words)
    }

    /// Builds FlauBERT's tokenizer from vocab.json and merges.txt.
    pub fn moses_french(folder: &Folder, roles: Roles) -> Result<Self, String> {
        let words = Words::UniformMoses {
            moses: Moses::new(Language::French)?,
            lower: folder.flag("do_lowercase", false),
        };
        Self::of_moses(folder, roles, words)
    }

    /// Builds FSMT's tokenizer from vocab-src.json, vocab-tgt.json and merges.txt.
    pub fn moses_translation(folder: &Folder, roles: Roles) -> Result<Self, String> {
        let (source, target) = translated_languages(folder).ok_or("tokenizer_config.json names no two languages")?;
        let words = Words::Translated {
            moses: Moses::new(source)?,
            joiner: MosesJoiner::new(target),
            lower: folder.flag("do_lower_case", false),
        };
        let splitter = WordSplitter::new(folder, MergesFile::PLAIN, words)?;
        let vocabulary = Vocabulary {
            ids: json_vocabulary(folder, "vocab-src.json")?.ids,
            tokens: json_vocabulary(folder, "vocab-tgt.json")?.tokens,
        };
        let mut made = Self::of_words(folder, roles, splitter, vocabulary)?;
        let sep = made.special_role(folder, roles, "sep_token")?;
        made.template = Template {
            prefix: Vec::new(),
            between: vec![sep],
            suffix: vec![sep],
            typed: true,
        };
        Ok(made)
    }

    fn of_moses(folder: &Folder, roles: Roles, words: Words) -> Result<Self, String> {
        let splitter = WordSplitter::new(folder, MergesFile::PLAIN, words)?;
        let mut made = Self::of_words(folder, roles, splitter, json_vocabulary(folder, "vocab.json")?)?;
        let (bos, sep) = (
            made.special_role(folder, roles, "bos_token")?,
            made.special_role(folder, roles, "sep_token")?,
        );
        made.template = Template {
            prefix: vec![bos],
            between: vec![sep],
            suffix: vec![sep],
            typed: true,
        };
        Ok(made)
    }

    fn of_words(folder: &Folder, roles: Roles, splitter: WordSplitter, vocabulary: Vocabulary) -> Result<Self, String> {
        let Vocabulary { ids, tokens } = vocabulary;
        let mut made = Self::new(folder, roles, Splitter::Words(splitter), ids, HashMap::new())?;
        made.tokens = tokens;
        Ok(made)
    }

    fn new(
        folder: &Folder,
        roles: Roles,
        splitter: Splitter,
        ids: HashMap<String, u32>,
        shown: HashMap<String, u32>,
    ) -> Result<Self, String> {
        let tokens = shown.into_iter().map(|(text, id)| (id, text)).collect();
        let mut made = SlowTokenizer {
            splitter,
            size: ids.len(),
            ids,
            tokens,
            added: HashMap::new(),
            special: HashSet::new(),
            template: Template {
                typed: true,
                ..Template::default()
            },
            unk: 0,
            unk_token: named(folder, roles, "unk_token")?,
        };
        let own = match &made.splitter {
            Splitter::Japanese(splitter) => splitter.unk_id(),
            _ => None,
        };
        made.unk = own.map_or_else(|| made.role(folder, roles, "unk_token"), Ok)?;
        for (id, token) in &folder.added {
            let id =
                u32::try_from(*id).map_err(|_| format!("the added token \"{}\" has the id {id}", token.content))?;
            made.size += usize::from(!made.ids.contains_key(&token.content));
            made.added.insert(token.content.clone(), (id, token.clone()));
        }
        let mut extra = folder.extra_tokens();
        if folder.names_no_extra_tokens() {
            extra.extend(match &made.splitter {
                Splitter::Words(splitter) => splitter.default_extra_tokens(),
                Splitter::WholeWords(_) => whole_words::default_extra_tokens(),
                _ => Vec::new(),
            });
        }
        for token in folder.special_tokens(roles, extra) {
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
        let token = named(folder, roles, role)?;
        self.ids
            .get(&token)
            .copied()
            .ok_or_else(|| format!("its vocabulary lacks its {role}, \"{token}\""))
    }

    /// Returns the id of a special token, which may follow the vocabulary.
    fn special_role(&self, folder: &Folder, roles: Roles, role: &str) -> Result<u32, String> {
        let token = named(folder, roles, role)?;
        self.token_to_id(&token)
            .ok_or_else(|| format!("its vocabulary lacks \"{token}\""))
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
        let number = |token: &str| self.ids.get(token).copied().unwrap_or(self.unk);
        match &self.splitter {
            Splitter::Pieces { cuts, spelling, .. } => {
                if *spelling == Spelling::Marian && text.starts_with(">>") {
                    if let Some(end) = text.find("<<") {
                        out.push(number(&text[..end + 2]));
                        text = &text[end + 2..];
                    }
                }
                out.extend(cuts.encode(text)?.iter().map(|piece| number(piece)));
            }
            Splitter::Words(splitter) => out.extend(splitter.split(text).iter().map(|token| number(token))),
            Splitter::Japanese(splitter) => {
                out.extend(splitter.split(text, &self.ids)?.iter().map(|token| number(token)));
            }
            Splitter::WholeWords(splitter) => out.extend(splitter.split(text)?.iter().map(|token| number(token))),
        }
        Ok(())
    }

    /// Returns the text in lower case, character by character, but for special tokens.
    fn lowered(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            let specials = self.added.values().filter(|(id, _)| self.special.contains(id));
            let found = specials.map(|(_, token)| token.content.as_str());
            let here = found
                .filter(|token| rest.starts_with(token))
                .max_by_key(|token| token.len());
            let end = here.map_or(0, str::len).max(first.len_utf8());
            match here {
                Some(token) if !token.is_empty() => out.push_str(token),
                _ => out.extend(first.to_lowercase()),
            }
            rest = &rest[end..];
        }
        out
    }

    /// Returns the ids of the text without special tokens.
    pub fn plain(&self, text: &str) -> Result<Vec<u32>, String> {
        let text = match &self.splitter {
            Splitter::WholeWords(splitter) if splitter.lower => self.lowered(text).into(),
            _ => Cow::from(text),
        };
        let parts = self.split(&text);
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

    pub fn encode(&self, first: &str, second: Option<&str>, special: bool) -> Result<Vec<SlowToken>, String> {
        let mut all: Vec<SlowToken> = Vec::new();
        let mut add = |ids: &[u32], sequence| {
            all.extend(ids.iter().map(|id| SlowToken {
                id: *id,
                sequence,
                type_id: 0,
            }));
        };
        let template = |ids: &'_ [u32]| if special { ids.to_vec() } else { Vec::new() };
        add(&template(&self.template.prefix), -1);
        let plain = self.plain(first)?;
        add(&plain, 0);
        if let Some(second) = second {
            add(&template(&self.template.between), -1);
            add(&self.plain(second)?, 1);
        }
        add(&template(&self.template.suffix), -1);
        if special && self.template.typed {
            let alone = self.template.prefix.len() + plain.len() + self.template.suffix.len();
            all.iter_mut().skip(alone).for_each(|token| token.type_id = 1);
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
        added
            .or_else(|| self.tokens.get(&id).map(String::as_str))
            .or_else(|| match &self.splitter {
                Splitter::Pieces {
                    joins,
                    spelling: Spelling::Marian,
                    ..
                } => joins.piece(id),
                _ => self.spelling_of_unk(id),
            })
    }

    fn spelling_of_unk(&self, id: u32) -> Option<&str> {
        if (id as usize) < self.size {
            Some(&self.unk_token)
        } else {
            None
        }
    }

    /// Returns whether the token continues in the next one, which its spelling then shows by "@@".
    pub fn continues_word(&self, id: u32) -> bool {
        matches!(&self.splitter, Splitter::Words(splitter) if splitter.continues(self.id_to_token(id).unwrap_or_default()))
    }

    /// Returns how many of the first ids have a text that no later id changes, where decoding looks at the whole text.
    pub fn settled(&self, ids: &[u32]) -> Option<usize> {
        let shown = ids.iter().map(|id| match self.special.contains(id) {
            true => "",
            false => self.id_to_token(*id).unwrap_or_default(),
        });
        match &self.splitter {
            Splitter::Words(splitter) => splitter.settled(shown),
            Splitter::WholeWords(splitter) => Some(splitter.settled(shown)),
            _ => None,
        }
    }

    pub fn decode(&self, ids: &[u32], skip_special: bool) -> String {
        let shown = ids.iter().filter(|id| !skip_special || !self.special.contains(id));
        match &self.splitter {
            Splitter::Pieces { joins, spelling, .. } => self.join_pieces(shown, joins, *spelling),
            Splitter::Words(splitter) => splitter.join(self.spelled(shown)),
            Splitter::Japanese(splitter) => splitter.join(self.spelled(shown)),
            Splitter::WholeWords(splitter) => splitter.join(self.spelled(shown)),
        }
    }

    fn spelled<'a>(&'a self, ids: impl Iterator<Item = &'a u32>) -> impl Iterator<Item = &'a str> {
        ids.map(|id| self.id_to_token(*id).unwrap_or(&self.unk_token))
    }

    fn join_pieces<'a>(
        &self,
        ids: impl Iterator<Item = &'a u32>,
        joins: &SentencePieceProcessor,
        spelling: Spelling,
    ) -> String {
        let spelled = |text: String| match spelling {
            Spelling::Speech { capitals: true } => text.to_uppercase(),
            _ => text,
        };
        if spelling == Spelling::Joined {
            let all: String = ids.filter_map(|id| self.id_to_token(*id)).collect();
            return all.replace('▁', " ").trim().to_string();
        }
        let mut out = String::new();
        let mut pieces: Vec<&str> = Vec::new();
        for id in ids {
            let Some(text) = self.id_to_token(*id) else { continue };
            if self.special.contains(id) {
                out.push_str(&spelled(joins.decode(pieces.drain(..))));
                out.push_str(text);
                out.push_str(if spelling == Spelling::M2M100 { "" } else { " " });
            } else {
                pieces.push(text);
            }
        }
        out.push_str(&spelled(joins.decode(pieces)));
        if spelling == Spelling::Marian {
            out.replace('▁', " ").trim().to_string()
        } else {
            out.trim().to_string()
        }
    }

    pub fn size(&self) -> usize {
        self.size
    }
}
