// SPDX-License-Identifier: Apache-2.0
//! Joins the texts of regions and leaves out the whitespace around them.
use crate::python_text::is_space;

/// The texts of all regions of content or of reasoning, one after another.
#[derive(Default)]
pub struct Text {
    /// True once an earlier region, or this one, has sent text.
    pub has_sent: bool,
    /// True once the region has text that is not whitespace.
    started: bool,
    /// Whitespace that is sent if more text follows it.
    pub space: String,
}

impl Text {
    pub fn begin(&mut self) {
        self.started = false;
        self.space.clear();
    }

    /// Returns what can be sent of a region's next text.
    pub fn push(&mut self, text: &str, strips: bool, join: &str) -> Option<String> {
        let mut sent = String::new();
        let mut text = text;
        if !self.started {
            text = if strips {
                text.trim_start_matches(is_space)
            } else {
                text
            };
            if text.is_empty() {
                return None;
            }
            if self.has_sent {
                sent.push_str(join);
            }
            self.started = true;
        }
        let end = if strips {
            text.trim_end_matches(is_space).len()
        } else {
            text.len()
        };
        if end > 0 {
            sent.push_str(&std::mem::take(&mut self.space));
            sent.push_str(&text[..end]);
            self.has_sent = true;
        }
        self.space.push_str(&text[end..]);
        (!sent.is_empty()).then_some(sent)
    }
}

/// Returns how many bytes at the end are those of a character that is not complete, whatever stands before them.
pub fn incomplete_tail(bytes: &[u8]) -> usize {
    let is_incomplete = |count: &usize| {
        let tail = &bytes[bytes.len() - count..];
        matches!(std::str::from_utf8(tail), Err(e) if e.valid_up_to() == 0 && e.error_len().is_none())
    };
    (1..=bytes.len().min(3)).find(is_incomplete).unwrap_or(0)
}
