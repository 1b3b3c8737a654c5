// SPDX-License-Identifier: Apache-2.0
//! The parts of a message, in the order in which a reply has them.
use serde_json::{json, Value};

/// One more part of the message.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    Content(String),
    Reasoning(String),
    Call { index: usize, name: String },
    Arguments { index: usize, text: String },
}

impl Event {
    pub fn to_json(&self) -> Value {
        match self {
            Event::Content(text) => json!(["content", text]),
            Event::Reasoning(text) => json!(["reasoning", text]),
            Event::Call { index, name } => json!(["call", index, name]),
            Event::Arguments { index, text } => json!(["arguments", index, text]),
        }
    }
}
