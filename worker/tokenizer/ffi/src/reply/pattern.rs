// SPDX-License-Identifier: Apache-2.0
//! Delimiters of replies: patterns that are searched in a text that still grows. A search says whether text to come can
//! change what it found, so that the result does not depend on how the text is cut into pieces.
use regex::{Regex, RegexBuilder};
use regex_automata::hybrid::dfa::{Cache, DFA};
use regex_automata::nfa::thompson;
use regex_automata::util::syntax;
use regex_automata::{Anchored, Input};

/// Longest pattern of a template.
const MAX_PATTERN: usize = 4096;
/// A match has fewer bytes; text that could be the beginning of a longer one is none.
pub const MAX_MATCH: usize = 1024;
/// Limit of the compiled size of one pattern.
const MAX_SIZE: usize = 1 << 20;

/// The result of a search in the text so far.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Found {
    Nothing,
    /// Bytes [start, end), whatever follows.
    Match(usize, usize),
    /// Text to come decides whether there is a match at this byte, and where it ends.
    Open(usize),
}

/// Removes the names of groups, which other engines do not know.
fn without_names(pattern: &str) -> String {
    let mut plain = String::new();
    let mut rest = pattern;
    while let Some((before, group)) = rest.split_once("(?P<") {
        plain += before;
        plain += "(?:";
        rest = group.split_once('>').map_or("", |(_, after)| after);
    }
    plain + rest
}

/// Returns a regular expression of all texts that contain a match of one of the patterns, or begin with one where the
/// pattern is bound to the beginning; nothing without patterns.
pub fn containing<'a>(patterns: impl Iterator<Item = &'a Pattern>) -> Option<String> {
    let (mut anywhere, mut at_start) = (Vec::new(), Vec::new());
    for pattern in patterns {
        let text = without_names(pattern.regex.as_str());
        match text.strip_prefix("\\A") {
            Some(rest) => at_start.push(format!("(?:{rest}).*")),
            None => anywhere.push(text),
        }
    }
    if !anywhere.is_empty() {
        at_start.push(format!(".*(?:{}).*", anywhere.join("|")));
    }
    (!at_start.is_empty()).then(|| format!("(?s:{})", at_start.join("|")))
}

/// A compiled pattern. Matches are those of Python's `regex` with DOTALL: leftmost, alternatives in their order.
pub struct Pattern {
    regex: Regex,
    dfa: DFA,
    /// True for bytes with which a match can begin.
    begins: [bool; 256],
    /// One byte of each class of bytes that the pattern tells apart.
    classes: Vec<u8>,
}

/// Writes Python's `\Z` as `\z`.
fn translate(pattern: &str) -> String {
    let mut text = String::with_capacity(pattern.len());
    let mut characters = pattern.chars();
    while let Some(c) = characters.next() {
        text.push(c);
        if c == '\\' {
            match characters.next() {
                Some('Z') => text.push('z'),
                Some(escaped) => text.push(escaped),
                None => {}
            }
        }
    }
    text
}

/// Compiles a regular expression of a template for whole texts.
pub fn regex(pattern: &str) -> Result<Regex, String> {
    if pattern.len() > MAX_PATTERN {
        return Err(format!(
            "a pattern has {} bytes; at most {MAX_PATTERN} are compiled",
            pattern.len()
        ));
    }
    let mut builder = RegexBuilder::new(&translate(pattern));
    builder
        .dot_matches_new_line(true)
        .size_limit(MAX_SIZE)
        .dfa_size_limit(MAX_SIZE);
    builder
        .build()
        .map_err(|error| format!("the pattern {pattern:?} is not supported: {error}"))
}

impl Pattern {
    pub fn new(pattern: &str) -> Result<Self, String> {
        let regex = regex(pattern)?;
        let dfa = DFA::builder()
            .syntax(syntax::Config::new().dot_matches_new_line(true))
            .thompson(thompson::Config::new().nfa_size_limit(Some(MAX_SIZE)))
            .configure(DFA::config().cache_capacity(MAX_SIZE).skip_cache_capacity_check(true))
            .build(&translate(pattern))
            .map_err(|error| format!("the pattern {pattern:?} is not supported: {error}"))?;
        let classes = dfa
            .byte_classes()
            .representatives(0..=255)
            .filter_map(|unit| unit.as_u8());
        let mut made = Pattern {
            regex,
            classes: classes.collect(),
            begins: [true; 256],
            dfa,
        };
        made.find_first_bytes()?;
        Ok(made)
    }

    /// Compiles several texts, of which the longest that fits is matched.
    pub fn literals(texts: &[String]) -> Result<Self, String> {
        let mut sorted: Vec<&String> = texts.iter().collect();
        sorted.sort_by_key(|text| std::cmp::Reverse(text.chars().count()));
        let escaped: Vec<String> = sorted.iter().map(|text| regex::escape(text)).collect();
        Pattern::new(&escaped.join("|"))
    }

    pub fn cache(&self) -> Cache {
        self.dfa.create_cache()
    }

    pub fn group_names(&self) -> impl Iterator<Item = &str> {
        self.regex.capture_names().flatten()
    }

    fn find_first_bytes(&mut self) -> Result<(), String> {
        let mut cache = self.cache();
        for byte in 0..=255u8 {
            let text = [byte];
            let input = Input::new(&text).anchored(Anchored::Yes);
            let start = self
                .dfa
                .start_state_forward(&mut cache, &input)
                .map_err(|e| e.to_string())?;
            let next = self
                .dfa
                .next_state(&mut cache, start, byte)
                .map_err(|e| e.to_string())?;
            self.begins[byte as usize] = !next.is_dead() && !next.is_quit();
        }
        Ok(())
    }

    /// Returns the first match in `text` that begins at `from` or behind it; empty matches are none. `complete`: no
    /// text follows.
    pub fn find(&self, cache: &mut Cache, text: &str, from: usize, complete: bool) -> Found {
        let bytes = text.as_bytes();
        for start in from..bytes.len() {
            if self.begins[bytes[start] as usize] && text.is_char_boundary(start) {
                let found = self.at(cache, bytes, start, complete);
                if found != Found::Nothing {
                    return found;
                }
            }
        }
        Found::Nothing
    }

    fn at(&self, cache: &mut Cache, bytes: &[u8], start: usize, complete: bool) -> Found {
        // A lazy automaton fails only where its cache is too small; then nothing is found.
        self.run(cache, bytes, start, complete).unwrap_or(Found::Nothing)
    }

    fn run(&self, cache: &mut Cache, bytes: &[u8], start: usize, complete: bool) -> Option<Found> {
        let input = Input::new(bytes).anchored(Anchored::Yes).range(start..);
        let mut state = self.dfa.start_state_forward(cache, &input).ok()?;
        let mut last = Found::Nothing;
        let limit = bytes.len().min(start + MAX_MATCH);
        for (at, byte) in bytes.iter().enumerate().take(limit).skip(start) {
            state = self.dfa.next_state(cache, state, *byte).ok()?;
            // The automaton reports a match one byte late.
            if state.is_match() && at > start {
                last = Found::Match(start, at);
            }
            if state.is_dead() || state.is_quit() {
                return Some(last);
            }
        }
        if limit == start + MAX_MATCH {
            return Some(last);
        }
        let at_end = self.dfa.next_eoi_state(cache, state).ok()?.is_match();
        if complete {
            return Some(if at_end { Found::Match(start, bytes.len()) } else { last });
        }
        if at_end && self.is_final(cache, state)? {
            return Some(Found::Match(start, bytes.len()));
        }
        if last != Found::Nothing && self.is_over(cache, state)? {
            return Some(last);
        }
        Some(Found::Open(start))
    }

    /// Returns whether nothing that follows adds to the match.
    fn is_over(&self, cache: &mut Cache, state: regex_automata::hybrid::LazyStateID) -> Option<bool> {
        for class in &self.classes {
            if !self.dfa.next_state(cache, state, *class).ok()?.is_dead() {
                return Some(false);
            }
        }
        Some(true)
    }

    /// Returns whether the match that ends in this state stays the same whatever follows.
    fn is_final(&self, cache: &mut Cache, state: regex_automata::hybrid::LazyStateID) -> Option<bool> {
        for first in &self.classes {
            let next = self.dfa.next_state(cache, state, *first).ok()?;
            if !next.is_match() {
                return Some(false);
            }
            for second in &self.classes {
                if !self.dfa.next_state(cache, next, *second).ok()?.is_dead() {
                    return Some(false);
                }
            }
        }
        Some(true)
    }

    /// Returns the named groups of the match that begins at `start`.
    pub fn groups(&self, text: &str, start: usize) -> Vec<(String, String)> {
        let Some(captures) = self.regex.captures_at(text, start) else {
            return Vec::new();
        };
        let named = self.regex.capture_names().flatten();
        named
            .filter_map(|name| Some((name.to_string(), captures.name(name)?.as_str().to_string())))
            .collect()
    }

    /// Returns where a named group of the match that begins at `start` begins.
    pub fn group_start(&self, text: &str, start: usize, name: &str) -> Option<usize> {
        self.group_names().find(|group| *group == name)?;
        Some(self.regex.captures_at(text, start)?.name(name)?.start())
    }

    /// Returns the end of the last match in a whole text.
    pub fn last_end(&self, text: &str) -> Option<usize> {
        self.regex.find_iter(text).last().map(|found| found.end())
    }
}
