// SPDX-License-Identifier: Apache-2.0
//! Splits text into words and words into tokens by merges of characters, and joins such tokens to text. Also reads the
//! files of these tokenizers: merges, vocab.json, and Fairseq's dictionary with counts.
use crate::folder::{file, read, Folder};
use crate::moses::Moses;
use crate::moses_join::{MosesJoiner, HYPHEN};
use crate::python_text::{file_text, strip, words, words_with_line_ends};
use crate::word_merges::{WordMerges, END_OF_WORD};
use serde_json::{Map, Value};
use std::collections::{HashMap, HashSet};
use tokenizers::{AddedToken, NormalizedString};

/// What an unfinished word ends with.
const CONTINUED: &str = "@@";

/// The form of a file of merges.
pub struct MergesFile {
    name: &'static str,
    /// whether the first line is a header
    headed: bool,
    columns: Columns,
}

/// Which columns of a line of merges are the pair.
enum Columns {
    All,
    /// the last one is a count
    ButLast,
    FirstTwo,
}

impl MergesFile {
    pub const HEADED: MergesFile = MergesFile {
        name: "merges.txt",
        headed: true,
        columns: Columns::All,
    };
    pub const PLAIN: MergesFile = MergesFile {
        name: "merges.txt",
        headed: false,
        columns: Columns::FirstTwo,
    };
    pub const COUNTED: MergesFile = MergesFile {
        name: "bpe.codes",
        headed: false,
        columns: Columns::ButLast,
    };
}

/// How a text is split into words.
pub enum Words {
    /// at whitespace; a word retains the line end after it
    Plain(fn(char) -> bool),
    /// as Plain; then lower case, with punctuation apart and line ends as "__newln__"
    Dialogue,
    /// by Moses; then all words in lower case and without accents where this is asked for (XLM)
    Moses { moses: Moses, plain_letters: bool },
    /// by Moses, after quotes and compositions are made uniform; in lower case where this is asked for (FlauBERT)
    UniformMoses { moses: Moses, lower: bool },
    /// by Moses, with escapes, and joined by its inverse; first in lower case where this is asked for (FSMT)
    Translated {
        moses: Moses,
        joiner: MosesJoiner,
        lower: bool,
    },
}

pub struct WordSplitter {
    merges: WordMerges,
    words: Words,
}

/// Ids by token, and the token that each id is shown as.
pub struct Vocabulary {
    pub ids: HashMap<String, u32>,
    pub tokens: HashMap<u32, String>,
}

impl Vocabulary {
    /// `entries` are in the order of a Python dictionary: of tokens with one id the last one is shown.
    fn new(entries: &Map<String, Value>, path: &str) -> Result<Self, String> {
        let mut made = Vocabulary {
            ids: HashMap::with_capacity(entries.len()),
            tokens: HashMap::with_capacity(entries.len()),
        };
        for (token, id) in entries {
            let id = id
                .as_u64()
                .and_then(|id| u32::try_from(id).ok())
                .ok_or_else(|| format!("{path} is not a vocabulary: \"{token}\" has the id {id}"))?;
            made.ids.insert(token.clone(), id);
            made.tokens.insert(id, token.clone());
        }
        Ok(made)
    }
}

fn text_of(folder: &Folder, name: &str) -> Result<(String, String), String> {
    let path = file(folder, &[name])?;
    let text = file_text(read(path.as_ref())?).map_err(|e| format!("{path} {e}"))?;
    Ok((path, text))
}

pub fn json_vocabulary(folder: &Folder, name: &str) -> Result<Vocabulary, String> {
    let path = file(folder, &[name])?;
    let entries =
        serde_json::from_slice(&read(path.as_ref())?).map_err(|e| format!("{path} is not a vocabulary: {e}"))?;
    Vocabulary::new(&entries, &path)
}

/// Reads lines of a token each.
pub fn line_vocabulary(folder: &Folder, name: &str) -> Result<Vocabulary, String> {
    let (path, text) = text_of(folder, name)?;
    let mut entries = Map::new();
    for (token, id) in text.split_terminator('\n').zip(0u32..) {
        entries.insert(token.to_string(), id.into());
    }
    Vocabulary::new(&entries, &path)
}

/// Reads the first word of each line; of equal ones the first line counts.
pub fn first_words(folder: &Folder, name: &str) -> Result<Vec<String>, String> {
    let (path, text) = text_of(folder, name)?;
    let mut seen = HashSet::new();
    let mut found = Vec::new();
    for line in text.split_terminator('\n') {
        let word = words(line).next().ok_or_else(|| format!("{path} has an empty line"))?;
        if seen.insert(word.to_string()) {
            found.push(word.to_string());
        }
    }
    Ok(found)
}

/// Reads lines of a token and its count, which follow the tokens of `first`.
pub fn counted_vocabulary(folder: &Folder, name: &str, first: Vec<String>) -> Result<Vocabulary, String> {
    let (path, text) = text_of(folder, name)?;
    let mut entries: Map<String, Value> = first.into_iter().zip(0u32..).map(|(t, id)| (t, id.into())).collect();
    for line in text.split_terminator('\n') {
        let line = strip(line);
        let end = line
            .rfind(' ')
            .ok_or_else(|| format!("{path} has the line \"{line}\", expected a token and its count"))?;
        let next = entries.len();
        entries.insert(line[..end].to_string(), next.into());
    }
    Vocabulary::new(&entries, &path)
}

impl WordSplitter {
    pub fn new(folder: &Folder, form: MergesFile, words_of: Words) -> Result<Self, String> {
        let (_, text) = text_of(folder, form.name)?;
        // What follows the last line end is not read.
        let lines = &text[..text.rfind('\n').unwrap_or(0)];
        let lines = if lines.is_empty() {
            Vec::new()
        } else {
            lines.split('\n').collect()
        };
        let pairs = lines.into_iter().skip(usize::from(form.headed)).map(|line| {
            let mut columns: Vec<&str> = words(line).collect();
            match form.columns {
                Columns::All => {}
                Columns::ButLast => columns.truncate(columns.len().saturating_sub(1)),
                Columns::FirstTwo => columns.truncate(2),
            }
            match columns[..] {
                [left, right] => Some((left, right)),
                _ => None, // no pair of symbols equals it
            }
        });
        Ok(WordSplitter {
            merges: WordMerges::new(pairs),
            words: words_of,
        })
    }

    /// Returns the additional special tokens that the class has where the files name none.
    pub fn default_extra_tokens(&self) -> Vec<AddedToken> {
        let count = match self.words {
            Words::Moses { .. } | Words::UniformMoses { .. } => 10,
            _ => 0,
        };
        (0..count)
            .map(|i| AddedToken::from(format!("<special{i}>"), true))
            .collect()
    }

    /// Appends the tokens of a word, of which all but the last are marked.
    fn marked_tokens(&self, word: &str, out: &mut Vec<String>) {
        let mut symbols = self.merges.split(word);
        if let Some(last) = symbols.pop() {
            out.extend(symbols.into_iter().map(|symbol| symbol + CONTINUED));
            out.push(last.strip_suffix(END_OF_WORD).unwrap_or(&last).to_string());
        }
    }

    pub fn split(&self, text: &str) -> Vec<String> {
        let mut out = Vec::new();
        match &self.words {
            Words::Plain(is_space) => {
                for word in words_with_line_ends(text, *is_space) {
                    self.marked_tokens(word, &mut out);
                }
            }
            Words::Dialogue => {
                for word in words_with_line_ends(text, char::is_whitespace) {
                    for part in dialogue(word).split(' ').filter(|part| !part.is_empty()) {
                        self.marked_tokens(&part.to_lowercase(), &mut out);
                    }
                }
            }
            Words::Moses { moses, plain_letters } => {
                let mut words = moses.words(text);
                if *plain_letters {
                    words = plain(&words.join(" "), moses).split(' ').map(str::to_string).collect();
                }
                out.extend(words.iter().flat_map(|word| self.merges.split(word)));
            }
            Words::Translated { moses, lower, .. } => {
                let text = if *lower { text.to_lowercase() } else { text.to_string() };
                out.extend(
                    moses
                        .escaped_words(&text)
                        .iter()
                        .flat_map(|word| self.merges.split(word)),
                );
            }
            Words::UniformMoses { moses, lower } => {
                let quoted = text.replace("``", "\"").replace("''", "\"");
                let mut composed = NormalizedString::from(quoted);
                composed.nfc();
                let text = if *lower {
                    composed.get().to_lowercase()
                } else {
                    composed.get().to_string()
                };
                out.extend(moses.words(&text).iter().flat_map(|word| self.merges.split(word)));
            }
        }
        out
    }

    pub fn join<'a>(&self, tokens: impl Iterator<Item = &'a str>) -> String {
        let tokens: Vec<&str> = tokens.collect();
        if let Words::Translated { joiner, .. } = &self.words {
            return joiner.join(&tokens.concat().replace(' ', "").replace(END_OF_WORD, " "));
        }
        let text = if self.marks() {
            tokens.join(" ").replace("@@ ", "")
        } else {
            tokens.concat().replace(END_OF_WORD, " ")
        };
        strip(&text).to_string()
    }

    /// Returns how many of the first tokens have a text that no later token changes, where the text of a token depends
    /// on all before it. The last whole word is not among them, since a hyphen after it would join it.
    pub fn settled<'a>(&self, tokens: impl Iterator<Item = &'a str>) -> Option<usize> {
        if !matches!(self.words, Words::Translated { .. }) {
            return None;
        }
        let (mut settled, mut boundary) = (0, 0);
        let mut word = String::new();
        for (i, token) in tokens.enumerate() {
            word.push_str(token);
            if let Some(whole) = word.strip_suffix(END_OF_WORD) {
                if whole != HYPHEN {
                    settled = boundary;
                }
                boundary = i + 1;
                word.clear();
            }
        }
        Some(settled)
    }

    pub fn continues(&self, token: &str) -> bool {
        self.marks() && token.ends_with(CONTINUED)
    }

    /// Returns whether the tokens that a word does not end with are marked, or those that it ends with.
    fn marks(&self) -> bool {
        matches!(self.words, Words::Plain(_) | Words::Dialogue)
    }
}

/// Returns the text in lower case and without nonspacing marks (`lowercase_and_remove_accent`).
fn plain(text: &str, moses: &Moses) -> String {
    let mut decomposed = NormalizedString::from(text.to_lowercase());
    decomposed.nfd();
    moses.remove_marks(decomposed.get()).to_lowercase()
}

/// Sets punctuation of a word apart by spaces (`BlenderbotSmallTokenizer.bpe`).
fn dialogue(word: &str) -> String {
    let mut spaced = String::with_capacity(word.len() + 8);
    for c in word.chars() {
        match c {
            '.' | ',' | '!' | '?' | '(' | ')' => spaced.extend([' ', c]),
            '\'' => spaced.push_str(" ' "),
            _ => spaced.push(c),
        }
    }
    let mut out = String::with_capacity(spaced.len());
    let mut rest = spaced.as_str();
    while let Some(first) = rest.chars().next() {
        let run = rest.len() - rest.trim_start().len();
        if rest[..run].chars().count() >= 2 {
            out.push(' ');
            rest = &rest[run..];
        } else {
            out.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    out.replace('\n', " __newln__")
}
