// SPDX-License-Identifier: Apache-2.0
//! Replies: parses what a model generates into content, reasoning and tool calls, by data.
mod calls;
mod cast;
pub mod constrain;
mod content;
mod event;
pub mod ffi;
pub mod forms;
pub mod parser;
mod pattern;
pub mod template;
mod text;
