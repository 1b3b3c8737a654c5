// SPDX-License-Identifier: Apache-2.0
//! Splits text into the whole words of Transformer-XL's vocabulary, and joins them, as transformers 4 did in
//! `models/deprecated/transfo_xl/tokenization_transfo_xl.py`: by Moses with normalized punctuation and hyphens apart,
//! then with the separators inside of numbers apart.
use crate::moses::{Language, Moses};
use crate::moses_join::{MosesJoiner, HYPHEN};
use crate::python_text::strip;
use regex::Regex;

/// Separators inside of numbers, and how they are spelled as words.
const SEPARATORS: [(char, &str); 2] = [(',', "@,@"), ('.', "@.@")];

pub struct WholeWords {
    moses: Moses,
    joiner: MosesJoiner,
    /// whether texts are in lower case, but for special tokens
    pub lower: bool,
    /// words that are not split
    protected: Vec<Regex>,
    digit: Regex,
}

impl WholeWords {
    pub fn new(language: Language, lower: bool, protected: &[String]) -> Result<Self, String> {
        let regex = |pattern: &str| Regex::new(pattern).map_err(|e| e.to_string());
        let any_case = |word: &String| regex(&format!("(?i){}", regex::escape(word)));
        Ok(WholeWords {
            moses: Moses::new(language)?,
            joiner: MosesJoiner::new(language),
            lower,
            protected: protected.iter().map(any_case).collect::<Result<_, _>>()?,
            digit: regex(r"^\d$")?,
        })
    }

    pub fn split(&self, text: &str) -> Result<Vec<String>, String> {
        let words = self.moses.normalized_words(strip(text), &self.protected)?;
        Ok(words.iter().flat_map(|word| self.numbers_apart(word)).collect())
    }

    /// Sets separators between digits apart.
    fn numbers_apart(&self, word: &str) -> Vec<String> {
        if !word.contains([',', '.']) {
            return vec![word.to_string()];
        }
        let chars: Vec<char> = word.chars().collect();
        let is_digit = |at: Option<usize>| {
            let found = at.and_then(|at| chars.get(at));
            found.is_some_and(|c| self.digit.is_match(c.encode_utf8(&mut [0; 4])))
        };
        let mut words = vec![String::new()];
        for (i, c) in chars.iter().enumerate() {
            let separator = SEPARATORS.iter().find(|(mark, _)| mark == c);
            match separator.filter(|_| is_digit(i.checked_sub(1)) && is_digit(Some(i + 1))) {
                Some((_, spelled)) => words.extend([spelled.to_string(), String::new()]),
                None => words.last_mut().expect("there is one").push(*c),
            }
        }
        words
    }

    pub fn join<'a>(&self, words: impl Iterator<Item = &'a str>) -> String {
        let mut text = self.joiner.join(&words.collect::<Vec<_>>().join(" "));
        for (mark, spelled) in SEPARATORS {
            text = text.replace(&format!(" {spelled} "), &mark.to_string());
        }
        strip(&text).to_string()
    }

    /// Returns how many of the first words have a text that no later word changes: those before the last word that
    /// neither is nor follows a sign that joins its neighbors. Empty words are not shown.
    pub fn settled<'a>(&self, words: impl Iterator<Item = &'a str>) -> usize {
        let joins = |word: &str| word == HYPHEN || SEPARATORS.iter().any(|(_, spelled)| *spelled == word);
        let mut settled = 0;
        let mut after_sign = false;
        for (i, word) in words.enumerate().filter(|(_, word)| !word.is_empty()) {
            let sign = joins(word);
            if !sign && !after_sign {
                settled = i;
            }
            after_sign = sign;
        }
        settled
    }
}
