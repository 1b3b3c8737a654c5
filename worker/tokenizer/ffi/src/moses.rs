// SPDX-License-Identifier: Apache-2.0
//! The Moses tokenizer as sacremoses 0.2.0 ports it, with the steps that transformers' XLM, FlauBERT and FSMT do before
//! it: punctuation is replaced and normalized, characters without a glyph are removed, words are set apart. It has the
//! languages of the published checkpoints of these.
use crate::moses_data as data;
use crate::python_text::{is_space, strip, words};
use regex::Regex;
use std::collections::HashSet;

/// Languages whose rules are here.
#[derive(Clone, Copy, PartialEq)]
pub enum Language {
    English,
    French,
    German,
    Russian,
}

impl Language {
    pub fn parse(code: &str) -> Option<Self> {
        match code {
            "en" => Some(Language::English),
            "fr" => Some(Language::French),
            "de" => Some(Language::German),
            "ru" => Some(Language::Russian),
            _ => None,
        }
    }
}

/// Rules of `replace_unicode_punct` that replace one character.
const PUNCTUATION: [(char, &str); 34] = [
    ('，', ","),
    ('、', ","),
    ('”', "\""),
    ('“', "\""),
    ('∶', ":"),
    ('：', ":"),
    ('？', "?"),
    ('《', "\""),
    ('》', "\""),
    ('）', ")"),
    ('！', "!"),
    ('（', "("),
    ('；', ";"),
    ('」', "\""),
    ('「', "\""),
    ('０', "0"),
    ('１', "1"),
    ('２', "2"),
    ('３', "3"),
    ('４', "4"),
    ('５', "5"),
    ('６', "6"),
    ('７', "7"),
    ('８', "8"),
    ('９', "9"),
    ('～', "~"),
    ('’', "'"),
    ('…', "..."),
    ('━', "-"),
    ('〈', "<"),
    ('〉', ">"),
    ('【', "["),
    ('】', "]"),
    ('％', "%"),
];

/// `MosesPunctNormalizer`'s rules in their order.
const NORMALIZE: [(&str, &str); 43] = [
    (r"\r", ""),
    (r"\(", " ("),
    (r"\)", ") "),
    (" +", " "),
    (r"\) ([.!:?;,])", ")${1}"),
    (r"\( ", "("),
    (r" \)", ")"),
    (r"(\d) %", "${1}%"),
    (" :", ":"),
    (" ;", ";"),
    ("`", "'"),
    ("''", " \" "),
    ("„", "\""),
    ("“", "\""),
    ("”", "\""),
    ("–", "-"),
    ("—", " - "),
    (" +", " "),
    ("´", "'"),
    ("([a-zA-Z])‘([a-zA-Z])", "${1}'${2}"),
    ("([a-zA-Z])’([a-zA-Z])", "${1}'${2}"),
    ("‘", "'"),
    ("‚", "'"),
    ("’", "'"),
    ("''", "\""),
    ("´´", "\""),
    ("…", "..."),
    ("\u{a0}«\u{a0}", "\""),
    ("«\u{a0}", "\""),
    ("«", "\""),
    ("\u{a0}»\u{a0}", "\""),
    ("\u{a0}»", "\""),
    ("»", "\""),
    ("\u{a0}%", "%"),
    ("nº\u{a0}", "nº "),
    ("\u{a0}:", ":"),
    ("\u{a0}ºC", " ºC"),
    ("\u{a0}cm", " cm"),
    ("\u{a0}\\?", "?"),
    ("\u{a0}!", "!"),
    ("\u{a0};", ";"),
    (",\u{a0}", ", "),
    (" +", " "),
];

/// The rules of a language after those.
const NORMALIZE_ENGLISH: [(&str, &str); 2] = [(r#""([,.]+)"#, "${1}\""), ("(\\d)\u{a0}(\\d)", "${1}.${2}")];
const NORMALIZE_FRENCH_GERMAN: [(&str, &str); 3] = [
    (",\"", "\","),
    (r#"(\.+)"([\s\x1c-\x1f]*[^<])"#, "\"${1}${2}"),
    ("(\\d)\u{a0}(\\d)", "${1},${2}"),
];

/// Characters of a property, as sorted ranges.
pub struct Characters(Vec<(char, char)>);

impl Characters {
    /// Parses lists of ranges, which may overlap.
    pub fn parse(lists: &[&str]) -> Self {
        let number = |text: &str| u32::from_str_radix(text, 16).ok().and_then(char::from_u32);
        let ranges = lists
            .iter()
            .flat_map(|list| list.split_whitespace())
            .filter_map(|range| {
                let (first, last) = range.split_once('-').unwrap_or((range, range));
                Some((number(first)?, number(last)?))
            });
        let mut ranges: Vec<(char, char)> = ranges.collect();
        ranges.sort_unstable();
        ranges.dedup_by(|next, before| {
            let inside = next.0 <= before.1;
            before.1 = before.1.max(if inside { next.1 } else { before.1 });
            inside
        });
        Characters(ranges)
    }

    pub fn contains(&self, c: char) -> bool {
        let after = self.0.partition_point(|(first, _)| *first <= c);
        after > 0 && c <= self.0[after - 1].1
    }
}

type Rules = Vec<(Regex, &'static str)>;

fn rules(spelled: &[(&'static str, &'static str)]) -> Result<Rules, String> {
    let compiled =
        |(pattern, becomes): &(&str, &'static str)| Ok((Regex::new(pattern).map_err(|e| e.to_string())?, *becomes));
    spelled.iter().map(compiled).collect()
}

fn replaced(mut text: String, rules: &Rules) -> String {
    for (pattern, becomes) in rules {
        if let std::borrow::Cow::Owned(changed) = pattern.replace_all(&text, *becomes) {
            text = changed;
        }
    }
    text
}

pub struct Moses {
    language: Language,
    alnum: Characters,
    alpha: Characters,
    lower: Characters,
    number: Characters,
    full_stops: Rules,
    normalize: Rules,
    unprintable: Regex,
    marks: Regex,
    prefixes: HashSet<&'static str>,
    numeric_prefixes: HashSet<&'static str>,
}

impl Moses {
    pub fn new(language: Language) -> Result<Self, String> {
        let mut normalize = rules(&NORMALIZE)?;
        normalize.extend(match language {
            Language::English => rules(&NORMALIZE_ENGLISH)?,
            Language::French | Language::German => rules(&NORMALIZE_FRENCH_GERMAN)?,
            Language::Russian => rules(&NORMALIZE_ENGLISH[1..])?,
        });
        let (prefixes, numeric_prefixes) = match language {
            Language::English => (data::ENGLISH_PREFIXES, data::ENGLISH_NUMERIC),
            Language::French => (data::FRENCH_PREFIXES, ""),
            Language::German => (data::GERMAN_PREFIXES, ""),
            Language::Russian => (data::RUSSIAN_PREFIXES, ""),
        };
        Ok(Moses {
            language,
            alnum: Characters::parse(&[data::ALNUM, data::SIGNS]),
            alpha: Characters::parse(&[data::ALPHA, data::SIGNS]),
            lower: Characters::parse(&[data::LOWER]),
            number: Characters::parse(&[data::NUMBER]),
            full_stops: rules(&[(r"[。．][\s\x1c-\x1f]*", ". ")])?,
            normalize,
            unprintable: Regex::new(r"\p{C}").map_err(|e| e.to_string())?,
            marks: Regex::new(r"\p{Mn}").map_err(|e| e.to_string())?,
            prefixes: prefixes.split_whitespace().collect(),
            numeric_prefixes: numeric_prefixes.split_whitespace().collect(),
        })
    }

    /// Returns the words of a text: transformers' `moses_pipeline`, then `moses_tokenize` without escapes.
    pub fn words(&self, text: &str) -> Vec<String> {
        self.tokenize(&self.prepare(text), false)
    }

    /// Returns the words like words(), with hyphens set apart and with escapes, which MosesJoiner undoes.
    pub fn escaped_words(&self, text: &str) -> Vec<String> {
        let words = self.tokenize(&self.prepare(text), true);
        words.iter().map(|word| escaped(word)).collect()
    }

    /// Returns the words after normal punctuation alone, with hyphens set apart and without escapes. What `protected`
    /// matches stays a part of one word.
    pub fn normalized_words(&self, text: &str, protected: &[Regex]) -> Result<Vec<String>, String> {
        let text = clean(strip(&replaced(text.to_string(), &self.normalize)));
        let (text, protected) = Protected::new(text, protected)?;
        let words_of = self.tokenize(&text, true);
        Ok(words(&protected.restore(words_of.join(" ")))
            .map(str::to_string)
            .collect())
    }

    /// Removes nonspacing marks.
    pub fn remove_marks<'a>(&self, text: &'a str) -> std::borrow::Cow<'a, str> {
        self.marks.replace_all(text, "")
    }

    fn prepare(&self, text: &str) -> String {
        let mut punctuation = String::with_capacity(text.len());
        for c in replaced(text.to_string(), &self.full_stops).chars() {
            match PUNCTUATION.iter().find(|(from, _)| *from == c) {
                Some((_, becomes)) => punctuation.push_str(becomes),
                None => punctuation.push(c),
            }
        }
        let normal = replaced(punctuation, &self.normalize);
        self.unprintable.replace_all(strip(&normal), "").into_owned()
    }

    fn tokenize(&self, text: &str, hyphens: bool) -> Vec<String> {
        let mut chars = self.set_punctuation_apart(strip(&clean(text)));
        if hyphens {
            chars = self.set_hyphens_apart(&chars);
        }
        let text = mark_dots(&String::from_iter(chars));
        let chars = self.set_commas_apart(text.chars().collect());
        let chars = self.set_apostrophes_apart(chars);
        let text = self.set_full_stops_apart(&String::from_iter(chars));
        let mut text = words(&text).collect::<Vec<_>>().join(" ");
        for end in [".' ", ".'"] {
            if let Some(begin) = text.strip_suffix(end) {
                text = format!("{begin} . ' ");
                break;
            }
        }
        words(&restore_dots(&text)).map(str::to_string).collect()
    }

    /// Surrounds characters that are no part of words by spaces.
    fn set_punctuation_apart(&self, text: &str) -> Vec<char> {
        let mut out = Vec::with_capacity(text.len() * 2);
        for c in text.chars() {
            if self.alnum.contains(c) || is_space(c) || matches!(c, '.' | '\'' | '`' | ',' | '-') {
                out.push(c);
            } else {
                out.extend([' ', c, ' ']);
            }
        }
        out
    }

    /// Marks hyphens between letters or digits.
    fn set_hyphens_apart(&self, chars: &[char]) -> Vec<char> {
        let mut out = Vec::with_capacity(chars.len() + 8);
        for (i, c) in chars.iter().enumerate() {
            let neighbours = i
                .checked_sub(1)
                .and_then(|before| chars.get(before))
                .zip(chars.get(i + 1));
            if *c == '-' && neighbours.is_some_and(|(l, r)| self.alnum.contains(*l) && self.alnum.contains(*r)) {
                out.extend(" @-@ ".chars());
            } else {
                out.push(*c);
            }
        }
        out
    }

    /// Surrounds commas by spaces, except between digits: three substitutions of matches that do not overlap.
    fn set_commas_apart(&self, chars: Vec<char>) -> Vec<char> {
        let after = substituted(
            &chars,
            |c| !self.number.contains(c),
            ',',
            |_| true,
            false,
            |c, _| vec![c, ' ', ',', ' '],
        );
        let mut out = Vec::with_capacity(after.len() + 8);
        let mut at = 0;
        while at < after.len() {
            if after[at] == ',' && at + 1 < after.len() && !self.number.contains(after[at + 1]) {
                out.extend([' ', ',', ' ', after[at + 1]]);
                at += 2;
            } else {
                out.push(after[at]);
                at += 1;
            }
        }
        if let [.., before, ','] = out[..] {
            if self.number.contains(before) {
                out.pop();
                out.extend([' ', ',', ' ']);
            }
        }
        out
    }

    fn set_apostrophes_apart(&self, mut chars: Vec<char>) -> Vec<char> {
        if !matches!(self.language, Language::English | Language::French) {
            return String::from_iter(chars).replace('\'', " ' ").chars().collect();
        }
        let alpha = |c| self.alpha.contains(c);
        let number = |c| self.number.contains(c);
        let apart = |left, right| vec![left, ' ', '\'', ' ', right];
        let with_next = |left, right| vec![left, ' ', '\'', right];
        let with_previous = |left, right| vec![left, '\'', ' ', right];
        chars = substituted(&chars, |c| !alpha(c), '\'', |c| !alpha(c), true, apart);
        if self.language == Language::English {
            chars = substituted(&chars, |c| !alpha(c) && !number(c), '\'', alpha, true, apart);
            chars = substituted(&chars, alpha, '\'', |c| !alpha(c), true, apart);
            chars = substituted(&chars, alpha, '\'', alpha, true, with_next);
            substituted(&chars, number, '\'', |c| c == 's', true, with_next)
        } else {
            chars = substituted(&chars, |c| !alpha(c), '\'', alpha, true, apart);
            chars = substituted(&chars, alpha, '\'', |c| !alpha(c), true, apart);
            substituted(&chars, alpha, '\'', alpha, true, with_previous)
        }
    }

    /// Separates the full stop at the end of a word, unless the word is an abbreviation or the next one is lower case.
    fn set_full_stops_apart(&self, text: &str) -> String {
        let tokens: Vec<&str> = words(text).collect();
        let mut out = Vec::with_capacity(tokens.len());
        for (i, token) in tokens.iter().enumerate() {
            let next = tokens.get(i + 1).and_then(|next| next.chars().next());
            let prefix = token.strip_suffix('.').filter(|prefix| !prefix.is_empty());
            let Some(prefix) = prefix else {
                out.push(token.to_string());
                continue;
            };
            let abbreviated = (prefix.contains('.') && prefix.chars().any(|c| self.alpha.contains(c)))
                || (self.prefixes.contains(prefix) && !self.numeric_prefixes.contains(prefix))
                || next.is_some_and(|c| self.lower.contains(c))
                || (self.numeric_prefixes.contains(prefix) && next.is_some_and(|c| c.is_ascii_digit()));
            out.push(if abbreviated {
                token.to_string()
            } else {
                format!("{prefix} .")
            });
        }
        out.join(" ")
    }
}

/// Replaces `left` `mark` `right` by what `becomes` returns of the two characters. Matches do not overlap. `pair`:
/// whether the right character belongs to the match; without it any end is right.
fn substituted(
    chars: &[char],
    left: impl Fn(char) -> bool,
    mark: char,
    right: impl Fn(char) -> bool,
    pair: bool,
    becomes: impl Fn(char, char) -> Vec<char>,
) -> Vec<char> {
    let length = if pair { 3 } else { 2 };
    let mut out = Vec::with_capacity(chars.len() + 8);
    let mut at = 0;
    while at < chars.len() {
        let here = &chars[at..chars.len().min(at + length)];
        if here.len() == length && here[1] == mark && left(here[0]) && (!pair || right(here[2])) {
            out.extend(becomes(here[0], *here.last().unwrap_or(&mark)));
            at += length;
        } else {
            out.push(chars[at]);
            at += 1;
        }
    }
    out
}

/// Makes whitespace one space, and removes other control characters.
fn clean(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_space(c) {
            if !out.ends_with(' ') {
                out.push(' ');
            }
        } else if c >= ' ' {
            out.push(c);
        }
    }
    out
}

/// How many matches of protected patterns a text may have, as in sacremoses.
const MAX_PROTECTED: usize = 1000;

/// Parts of a text that words of letters and digits stand for while it is split.
struct Protected {
    parts: Vec<String>,
    mark: String,
}

impl Protected {
    /// Returns the text with marks in place of what the patterns match, the longest first, and how to undo it.
    fn new(mut text: String, patterns: &[Regex]) -> Result<(String, Self), String> {
        let matches = |pattern: &Regex| {
            pattern
                .find_iter(&text)
                .map(|m| m.as_str().to_string())
                .collect::<Vec<_>>()
        };
        let parts: Vec<String> = patterns.iter().flat_map(matches).collect();
        if parts.len() > MAX_PROTECTED {
            return Err(format!(
                "the text spells special tokens {} times in other letters; at most {MAX_PROTECTED} are split",
                parts.len()
            ));
        }
        let mut mark = "THISISPROTECTED".to_string();
        while text.contains(&mark) {
            mark.push('X');
        }
        let mut order: Vec<usize> = (0..parts.len()).collect();
        order.sort_by_key(|i| std::cmp::Reverse(parts[*i].chars().count()));
        for i in order {
            text = text.replace(&parts[i], &format!("{mark}{i:03}"));
        }
        Ok((text, Protected { parts, mark }))
    }

    fn restore(&self, mut text: String) -> String {
        for (i, part) in self.parts.iter().enumerate() {
            text = text.replace(&format!("{}{i:03}", self.mark), part);
        }
        text
    }
}

fn escaped(word: &str) -> String {
    let mut out = String::with_capacity(word.len());
    for c in word.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '|' => out.push_str("&#124;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\'' => out.push_str("&apos;"),
            '"' => out.push_str("&quot;"),
            '[' => out.push_str("&#91;"),
            ']' => out.push_str("&#93;"),
            _ => out.push(c),
        }
    }
    out
}

/// Replaces two or more dots by a word that the rules for single dots leave alone.
fn mark_dots(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(begin) = rest.find("..") {
        out.push_str(&rest[..begin]);
        let run = rest.len() - begin - rest[begin..].trim_start_matches('.').len();
        out.push(' ');
        out.push_str(&"DOT".repeat(run));
        out.push_str("MULTI");
        rest = &rest[begin + run..];
        if !rest.is_empty() {
            out.push(' ');
        }
    }
    out + rest
}

fn restore_dots(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("MULTI") {
        let before = &rest[..at];
        let begin = before.trim_end_matches("DOT");
        let dots = (before.len() - begin.len()) / 3;
        out.push_str(begin);
        out.push_str(&if dots == 0 {
            "MULTI".to_string()
        } else {
            ".".repeat(dots)
        });
        rest = &rest[at + 5..];
    }
    out + rest
}
