// SPDX-License-Identifier: Apache-2.0
//! The Moses detokenizer as sacremoses 0.2.0 ports it: joins words to a text, with spaces where its language has them.
use crate::moses::{Characters, Language};
use crate::moses_data as data;
use crate::python_text::{strip, words};
use std::collections::HashMap;

/// A hyphen inside of a word, which the tokenizer set apart.
pub const HYPHEN: &str = "@-@";

/// Escapes of the tokenizer and of older ones, in the order in which they are undone.
const ESCAPES: [(&str, &str); 11] = [
    ("&bar;", "|"),
    ("&#124;", "|"),
    ("&lt;", "<"),
    ("&gt;", ">"),
    ("&bra;", "["),
    ("&ket;", "]"),
    ("&quot;", "\""),
    ("&apos;", "'"),
    ("&#91;", "["),
    ("&#93;", "]"),
    ("&amp;", "&"),
];

/// Blocks of characters that are written without spaces.
const CJK: [(char, char); 11] = [
    ('\u{1100}', '\u{11ff}'),
    ('\u{2e80}', '\u{a4cf}'),
    ('\u{a840}', '\u{a87f}'),
    ('\u{ac00}', '\u{d7af}'),
    ('\u{f900}', '\u{faff}'),
    ('\u{fe30}', '\u{fe4f}'),
    ('\u{ff65}', '\u{ffdc}'),
    ('\u{17000}', '\u{18aff}'),
    ('\u{1b000}', '\u{1b12f}'),
    ('\u{1b170}', '\u{1b2ff}'),
    ('\u{20000}', '\u{2ffff}'),
];

fn is_cjk(c: char) -> bool {
    CJK.iter().any(|(first, last)| (*first..=*last).contains(&c))
}

/// What follows a word.
#[derive(PartialEq)]
enum Space {
    Before,
    None,
}

pub struct MosesJoiner {
    language: Language,
    alpha: Characters,
    currency: Characters,
}

impl MosesJoiner {
    pub fn new(language: Language) -> Self {
        MosesJoiner {
            language,
            alpha: Characters::parse(&[data::ALPHA]),
            currency: Characters::parse(&[data::CURRENCY]),
        }
    }

    /// Joins the words of a text.
    pub fn join(&self, text: &str) -> String {
        let mut text = format!(" {} ", words(text).collect::<Vec<_>>().join(" "));
        text = text.replace(" @-@ ", "-");
        for (escape, becomes) in ESCAPES {
            text = text.replace(escape, becomes);
        }
        let tokens: Vec<&str> = words(&text).collect();
        let mut out = String::new();
        let mut next_space = Space::Before;
        let mut quotes: HashMap<&str, usize> = HashMap::new();
        for (i, token) in tokens.iter().enumerate() {
            let before = i.checked_sub(1).map(|before| tokens[before]);
            let (left, right) = self.spaces(token, before, tokens.get(i + 1).copied(), &mut quotes);
            if self.language == Language::French && matches!(*token, "?" | "!" | ":" | ";" | "\\" | "%") {
                out.push(' ');
            }
            if left == Space::Before && next_space == Space::Before {
                out.push(' ');
            }
            out.push_str(token);
            next_space = right;
        }
        let mut joined = String::with_capacity(out.len());
        for c in out.chars() {
            if c != ' ' || !joined.ends_with(' ') {
                joined.push(c);
            }
        }
        strip(&joined).to_string()
    }

    /// Returns whether a word takes a space before it, and whether the next one may.
    fn spaces<'a>(
        &self,
        token: &'a str,
        before: Option<&str>,
        after: Option<&str>,
        quotes: &mut HashMap<&'a str, usize>,
    ) -> (Space, Space) {
        let is_alpha = |c| self.alpha.contains(c);
        let all = |test: &dyn Fn(char) -> bool| token.chars().all(test);
        if token.starts_with(is_cjk) {
            let second = before.is_some_and(|before| before.ends_with(is_cjk));
            return (if second { Space::None } else { Space::Before }, Space::Before);
        }
        if all(&|c| self.currency.contains(c) || matches!(c, '(' | '[' | '{' | '¿' | '¡')) {
            return (Space::Before, Space::None);
        }
        if all(&|c| matches!(c, ',' | '.' | '?' | '!' | ':' | ';' | '\\' | '%' | '}' | ']' | ')')) {
            return (Space::None, Space::Before);
        }
        let contraction = token.strip_prefix('\'').is_some_and(|rest| rest.starts_with(is_alpha));
        if self.language == Language::English && before.is_some() && contraction {
            return (Space::None, Space::Before);
        }
        let elision = token.strip_suffix('\'').is_some_and(|rest| rest.ends_with(is_alpha));
        if self.language == Language::French && elision && after.is_some_and(|after| after.starts_with(is_alpha)) {
            return (Space::Before, Space::None);
        }
        if !all(&|c| matches!(c, '\'' | '"' | '„' | '“' | '`')) {
            return (Space::Before, Space::Before);
        }
        let kind = if all(&|c| matches!(c, '„' | '“' | '”')) {
            "\""
        } else {
            token
        };
        let seen = quotes.entry(kind).or_insert(0);
        if *seen % 2 == 1 {
            *seen += 1;
            return (Space::None, Space::Before);
        }
        if self.language == Language::English && token == "'" && before.is_some_and(|before| before.ends_with('s')) {
            return (Space::None, Space::Before);
        }
        *seen += 1;
        (Space::Before, Space::None)
    }
}
