// SPDX-License-Identifier: Apache-2.0
//! Splits Japanese text into words and words into tokens, and joins such tokens to text, as transformers does in
//! `models/bert_japanese/tokenization_bert_japanese.py`.
use crate::folder::{file, read, Folder};
use crate::mecab::MeCab;
use crate::mecab_dictionary::Dictionary;
use crate::python_text::{strip, words};
use crate::sentencepiece::SentencePiece;
use crate::sentencepiece_processor::SentencePieceProcessor;
use regex::Regex;
use serde_json::Value;
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use unicode_normalization::UnicodeNormalization;

/// Names a folder that has dictionaries of MeCab for all checkpoints.
const DICTIONARIES: &str = "MECAB_DICTIONARIES";
/// A longer word is an unknown token.
const LONGEST_WORD: usize = 100;
const SPACE: char = '▁';
/// A piece with a comma behind what Python's `str.isdigit` takes for a digit.
const NUMBER: &str = r"[\p{Nd}²³¹፩-፱᧚⁰⁴-⁹₀-₉①-⑨⑴-⑼⒈-⒐⓪⓵-⓽⓿❶-❾➀-➈➊-➒𐩀-𐩃𐹠-𐹨𑁒-𑁚🄀-🄊],$";

/// How a text is split into words.
enum JapaneseWords {
    Whole,
    /// at whitespace and punctuation
    Basic(Box<Basic>),
    MeCab {
        mecab: Box<MeCab>,
        normalized: bool,
    },
}

struct Basic {
    removed: Regex,
    spaces: Regex,
    marks: Regex,
    punctuation: Regex,
}

struct Model {
    pieces: SentencePieceProcessor,
    unk_id: u32,
    number: Regex,
}

/// How a word is split into tokens.
enum Subwords {
    Whole,
    /// the longest beginning of the vocabulary, then with "##" the longest of the rest
    Pieces,
    Characters,
    Model(Box<Model>),
}

pub struct JapaneseSplitter {
    words: JapaneseWords,
    subwords: Subwords,
    lower: bool,
    /// words that stay as they are
    fixed: HashSet<String>,
    unk_token: String,
}

/// What a folder asks for by settings of this name.
fn setting<'a>(folder: &'a Folder, key: &str, default: &'a str) -> &'a str {
    folder.settings.get(key).and_then(Value::as_str).unwrap_or(default)
}

fn word_type(folder: &Folder) -> &str {
    match folder.flag("do_word_tokenize", true) {
        true => setting(folder, "word_tokenizer_type", "basic"),
        false => "none",
    }
}

fn subword_type(folder: &Folder) -> &str {
    match folder.flag("do_subword_tokenize", true) {
        true => setting(folder, "subword_tokenizer_type", "wordpiece"),
        false => "none",
    }
}

/// Returns whether the vocabulary is a SentencePiece model.
pub fn has_sentencepiece_vocabulary(folder: &Folder) -> bool {
    setting(folder, "subword_tokenizer_type", "wordpiece") == "sentencepiece"
}

/// Returns the folder of MeCab's dictionary: in the checkpoint, else in the folder of dictionaries. A Python package has
/// it in `dicdir`.
fn dictionary_folder(folder: &Folder, name: &str) -> Option<PathBuf> {
    let shared = std::env::var_os(DICTIONARIES).map(PathBuf::from);
    [Some(folder.path.clone()), shared]
        .into_iter()
        .flatten()
        .flat_map(|base| [base.join(name), base.join(name).join("dicdir")])
        .find(|path| path.join("sys.dic").is_file())
}

fn dictionary_name(folder: &Folder) -> Option<&str> {
    let named = folder.settings.get("mecab_kwargs").and_then(|all| all.get("mecab_dic"));
    match named {
        None => Some("unidic_lite"),
        Some(name) => name.as_str(),
    }
}

/// Returns why texts of a folder are not split: a program that is not built, or a dictionary that is missing.
pub fn japanese_ids_only(folder: &Folder) -> Option<String> {
    let subwords = subword_type(folder);
    if !["none", "wordpiece", "character", "sentencepiece"].contains(&subwords) {
        return Some(format!(
            "tokenizer_config.json has subword_tokenizer_type \"{subwords}\", which is unknown"
        ));
    }
    let vocabulary = match has_sentencepiece_vocabulary(folder) {
        true => "spiece.model",
        false => "vocab.txt",
    };
    if !folder.path.join(vocabulary).is_file() {
        return Some(format!("no {vocabulary}"));
    }
    match word_type(folder) {
        "none" | "basic" => None,
        "mecab" => mecab_ids_only(folder),
        other => Some(format!(
            "tokenizer_config.json has word_tokenizer_type \"{other}\"; basic and mecab are built"
        )),
    }
}

fn mecab_ids_only(folder: &Folder) -> Option<String> {
    let option = folder
        .settings
        .get("mecab_kwargs")
        .and_then(|all| all.get("mecab_option"));
    if option.and_then(Value::as_str).is_some_and(|option| !option.is_empty()) {
        return Some("tokenizer_config.json has a mecab_option, which is not built".into());
    }
    let Some(name) = dictionary_name(folder) else {
        return Some("tokenizer_config.json has no mecab_dic, so that MeCab's dictionary is not known".into());
    };
    if !["ipadic", "unidic_lite", "unidic"].contains(&name) {
        return Some(format!(
            "tokenizer_config.json has mecab_dic \"{name}\", expected ipadic, unidic_lite or unidic"
        ));
    }
    if dictionary_folder(folder, name).is_none() {
        return Some(format!(
            "MeCab's dictionary {name} is neither in the checkpoint's folder nor in that of {DICTIONARIES}; \
             pip install --target FOLDER {} writes it",
            name.replace('_', "-")
        ));
    }
    None
}

impl Basic {
    fn new() -> Result<Self, String> {
        let regex = |pattern: &str| Regex::new(pattern).map_err(|e| e.to_string());
        Ok(Basic {
            removed: regex(r"[\p{C}\x{FFFD}--\t\n\r]")?,
            spaces: regex(r"[\t\n\r\p{Zs}]")?,
            marks: regex(r"\p{Mn}")?,
            punctuation: regex(r"[!-/:-@\[-`{-~\p{P}]")?,
        })
    }

    fn split(&self, text: &str, lower: bool, fixed: &HashSet<String>) -> Vec<String> {
        let clean = self.removed.replace_all(text, "");
        let composed: String = self.spaces.replace_all(&clean, " ").nfc().collect();
        let mut out = Vec::new();
        for word in words(&composed) {
            let mut word = word.to_string();
            if lower && !fixed.contains(&word) {
                let decomposed: String = word.to_lowercase().nfd().collect();
                word = self.marks.replace_all(&decomposed, "").into_owned();
            }
            if fixed.contains(&word) {
                out.push(word);
                continue;
            }
            let mut begin = 0;
            for found in self.punctuation.find_iter(&word) {
                out.extend([&word[begin..found.start()], found.as_str()].map(str::to_string));
                begin = found.end();
            }
            out.push(word[begin..].to_string());
        }
        out.retain(|word| !word.is_empty());
        out
    }
}

/// Splits a word into the longest pieces; an unknown token where that is not possible.
fn longest_pieces(word: &str, ids: &HashMap<String, u32>) -> Option<Vec<String>> {
    if word.chars().count() > LONGEST_WORD {
        return None;
    }
    let mut pieces = Vec::new();
    let mut begin = 0;
    while begin < word.len() {
        let mark = if begin == 0 { "" } else { "##" };
        let ends = word[begin..]
            .char_indices()
            .rev()
            .map(|(at, c)| begin + at + c.len_utf8());
        let (piece, end) = ends
            .map(|end| ([mark, &word[begin..end]].concat(), end))
            .find(|(piece, _)| ids.contains_key(piece))?;
        pieces.push(piece);
        begin = end;
    }
    Some(pieces)
}

impl Model {
    fn new(folder: &Folder) -> Result<Self, String> {
        let model = sentencepiece(folder)?;
        Ok(Model {
            unk_id: u32::try_from(model.unk_id).map_err(|e| e.to_string())?,
            pieces: SentencePieceProcessor::new(model)?,
            number: Regex::new(NUMBER).map_err(|e| e.to_string())?,
        })
    }

    /// Splits a word into pieces. A comma behind a digit is a token of its own, as in ALBERT's tokenizer.
    fn split(&self, word: &str, out: &mut Vec<String>) -> Result<(), String> {
        let text = words(word).collect::<Vec<_>>().join(" ");
        for piece in self.pieces.encode(&text.replace("``", "\"").replace("''", "\""))? {
            if !self.number.is_match(&piece) {
                out.push(piece);
                continue;
            }
            let mut parts = self.pieces.encode(&piece[..piece.len() - 1].replace(SPACE, ""))?;
            if let (false, Some(first)) = (piece.starts_with(SPACE), parts.first_mut()) {
                if let Some(rest) = first.strip_prefix(SPACE) {
                    *first = rest.to_string();
                }
            }
            out.extend(parts.into_iter().filter(|part| !part.is_empty()));
            out.push(",".into());
        }
        Ok(())
    }
}

impl JapaneseSplitter {
    /// Reads what the folder's settings ask for. `special`: tokens that are not changed.
    pub fn new(folder: &Folder, special: HashSet<String>, unk_token: String) -> Result<Self, String> {
        let mut fixed = special;
        if let Some(Value::Array(more)) = folder.settings.get("never_split") {
            fixed.extend(more.iter().filter_map(Value::as_str).map(str::to_string));
        }
        let words = match word_type(folder) {
            "none" => JapaneseWords::Whole,
            "basic" => JapaneseWords::Basic(Box::new(Basic::new()?)),
            _ => Self::mecab(folder)?,
        };
        let subwords = match subword_type(folder) {
            "none" => Subwords::Whole,
            "wordpiece" => Subwords::Pieces,
            "character" => Subwords::Characters,
            _ => Subwords::Model(Box::new(Model::new(folder)?)),
        };
        Ok(JapaneseSplitter {
            words,
            subwords,
            lower: folder.flag("do_lower_case", false),
            fixed,
            unk_token,
        })
    }

    fn mecab(folder: &Folder) -> Result<JapaneseWords, String> {
        let name = dictionary_name(folder).ok_or("it names no dictionary")?;
        let path = dictionary_folder(folder, name).ok_or_else(|| format!("the dictionary {name} is missing"))?;
        let all = folder.settings.get("mecab_kwargs");
        let normalized = all.and_then(|all| all.get("normalize_text")).and_then(Value::as_bool);
        Ok(JapaneseWords::MeCab {
            mecab: Box::new(MeCab::new(Dictionary::read(&path)?)),
            normalized: normalized.unwrap_or(true),
        })
    }

    fn words(&self, text: &str) -> Result<Vec<String>, String> {
        match &self.words {
            JapaneseWords::Whole => Ok(vec![text.to_string()]),
            JapaneseWords::Basic(basic) => Ok(basic.split(text, self.lower, &self.fixed)),
            JapaneseWords::MeCab { mecab, normalized } => {
                let text = if *normalized { compatible(text) } else { text.into() };
                let lower = |word: &str| match self.lower && !self.fixed.contains(word) {
                    true => word.to_lowercase(),
                    false => word.to_string(),
                };
                Ok(mecab.words(&text)?.into_iter().map(lower).collect())
            }
        }
    }

    /// Returns the id of unknown pieces where the vocabulary is a SentencePiece model, which has its own.
    pub fn unk_id(&self) -> Option<u32> {
        match &self.subwords {
            Subwords::Model(model) => Some(model.unk_id),
            _ => None,
        }
    }

    /// Returns the tokens of a text. `ids`: the vocabulary.
    pub fn split(&self, text: &str, ids: &HashMap<String, u32>) -> Result<Vec<String>, String> {
        let mut out = Vec::new();
        for word in self.words(text)? {
            match &self.subwords {
                Subwords::Whole => out.push(word),
                Subwords::Pieces => {
                    for word in words(&word) {
                        let unknown = || vec![self.unk_token.clone()];
                        out.extend(longest_pieces(word, ids).unwrap_or_else(unknown));
                    }
                }
                Subwords::Characters => out.extend(compatible(&word).chars().map(String::from)),
                Subwords::Model(model) => model.split(&word, &mut out)?,
            }
        }
        Ok(out)
    }

    pub fn join<'a>(&self, tokens: impl Iterator<Item = &'a str>) -> String {
        match &self.subwords {
            Subwords::Model(model) => model.pieces.decode(tokens),
            _ => strip(&tokens.collect::<Vec<_>>().join(" ").replace(" ##", "")).to_string(),
        }
    }
}

/// Returns the text in normalization form KC. The tokenizers crate has that of Unicode 9, without later signs of eras.
fn compatible(text: &str) -> Cow<'_, str> {
    match text.is_ascii() {
        true => text.into(),
        false => text.nfkc().collect::<String>().into(),
    }
}

/// Reads spiece.model.
pub fn sentencepiece(folder: &Folder) -> Result<SentencePiece, String> {
    let path = file(folder, &["spiece.model"])?;
    SentencePiece::parse(&read(path.as_ref())?).map_err(|e| format!("{path} cannot be read: {e}"))
}
