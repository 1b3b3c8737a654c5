// SPDX-License-Identifier: Apache-2.0
//! Text rules of Python that differ from Rust's: what counts as whitespace, and how lines are read.

/// Returns `str.isspace()` of one character, which is also `\s` of Python's `re`. It has four control characters more
/// than Unicode's White_Space, which Rust and Python's `regex` use.
pub fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

/// Returns `text.strip()`.
pub fn strip(text: &str) -> &str {
    text.trim_matches(is_space)
}

/// Returns `text.split()`.
pub fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(is_space).filter(|word| !word.is_empty())
}

/// Decodes a text file as `open(path, encoding="utf-8")` does: every kind of line end becomes "\n".
pub fn file_text(bytes: Vec<u8>) -> Result<String, String> {
    let text = String::from_utf8(bytes).map_err(|_| "is not UTF-8".to_string())?;
    Ok(if text.contains('\r') {
        text.replace("\r\n", "\n").replace('\r', "\n")
    } else {
        text
    })
}

/// Returns the matches of `\S+\n?`: words, each with the line end that directly follows it.
pub fn words_with_line_ends(text: &str, is_space: fn(char) -> bool) -> Vec<&str> {
    let mut words = Vec::new();
    let mut begin = None;
    for (at, c) in text.char_indices() {
        match (begin, is_space(c)) {
            (None, false) => begin = Some(at),
            (Some(first), true) => {
                words.push(&text[first..if c == '\n' { at + 1 } else { at }]);
                begin = None;
            }
            _ => {}
        }
    }
    words.extend(begin.map(|first| &text[first..]));
    words
}
