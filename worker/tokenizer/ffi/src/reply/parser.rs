// SPDX-License-Identifier: Apache-2.0
//! Parses a reply into content, reasoning and tool calls while it is generated. It follows transformers'
//! utils/chat_parsing/response_parser.py; where that raises an error, the text is content here.
use crate::python_text::strip;
use crate::reply::calls::{Arguments, Objects, Part};
use crate::reply::cast::cast_arguments;
use crate::reply::content::{Captures, Content};
use crate::reply::event::Event;
use crate::reply::pattern::{Found, Pattern};
use crate::reply::template::{Field, Streaming, Target, Template};
use crate::reply::text::{incomplete_tail, Text};
use regex_automata::hybrid::dfa::Cache;
use serde_json::{Map, Value};
use std::sync::Arc;

/// The byte around a special token in a text; no UTF-8 has it.
pub const MARK: u8 = 0xFF;

/// The region that the text is in.
enum Region {
    /// Outside of every field.
    Nothing,
    Text,
    Objects(Objects),
    Arguments(Arguments),
    /// Parsed when it closes.
    Whole,
}

/// The options of a request for its calls.
#[derive(Default)]
pub struct Calls {
    /// Calls are parsed; else they are content.
    pub are_parsed: bool,
    /// The properties of each tool's parameters, by its name.
    pub properties: Map<String, Value>,
}

impl Calls {
    /// Reads tools of a request: [{"type": "function", "function": {"name", "parameters"}}].
    pub fn new(are_parsed: bool, tools: &Value) -> Self {
        let mut properties = Map::new();
        for tool in tools.as_array().into_iter().flatten() {
            let function = tool.get("function").unwrap_or(tool);
            let declared = function
                .get("parameters")
                .and_then(|parameters| parameters.get("properties"));
            if let (Some(name), Some(declared)) = (function.get("name").and_then(Value::as_str), declared) {
                properties.insert(name.into(), declared.clone());
            }
        }
        Calls { are_parsed, properties }
    }
}

pub struct Parser {
    template: Arc<Template>,
    caches: Vec<[Option<Cache>; 2]>,
    calls: Calls,
    /// Text from a character before `at` on, so that patterns see what is before them.
    buffer: String,
    at: usize,
    /// Special tokens: bytes of `buffer`.
    special: Vec<(usize, usize)>,
    /// Bytes of a character that is not complete, or a special token that is not.
    rest: Vec<u8>,
    /// The field of the region, and what its delimiter says.
    field: Option<usize>,
    region: Region,
    captures: Captures,
    /// The region with its delimiters, as content shows it, and its text with special tokens.
    shown: String,
    body: String,
    content: Text,
    reasoning: Text,
    next_call: usize,
    events: Vec<Event>,
}

impl Parser {
    /// Begins the reply to a prompt, which may have a part of it, such as "<think>".
    pub fn new(template: Arc<Template>, prompt: &str, calls: Calls) -> Self {
        let cache = |pattern: &Option<Pattern>| pattern.as_ref().map(Pattern::cache);
        let caches = template
            .fields
            .iter()
            .map(|field| [cache(&field.open), cache(&field.close)]);
        let mut parser = Parser {
            caches: caches.collect(),
            calls,
            buffer: template.started_reply(prompt).to_string(),
            at: 0,
            special: Vec::new(),
            rest: Vec::new(),
            field: None,
            region: Region::Nothing,
            captures: Captures::new(),
            shown: String::new(),
            body: String::new(),
            content: Text::default(),
            reasoning: Text::default(),
            next_call: 0,
            events: Vec::new(),
            template,
        };
        parser.leave();
        parser.process(false);
        // Text that the prompt has is no part of the reply.
        parser.events.clear();
        for text in [&mut parser.content, &mut parser.reasoning] {
            text.has_sent = false;
            text.space.clear();
        }
        parser.next_call = 0;
        parser
    }

    /// Returns whether the text is in a region of reasoning.
    pub fn is_reasoning(&self) -> bool {
        self.field
            .is_some_and(|field| self.template.fields[field].target == Target::Reasoning)
    }

    /// Reads more text. A special token stands between two bytes 0xFF.
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<Event> {
        self.rest.extend_from_slice(bytes);
        let rest = std::mem::take(&mut self.rest);
        let mut left = &rest[..];
        while let Some(begin) = left.iter().position(|byte| *byte == MARK) {
            let Some(length) = left[begin + 1..].iter().position(|byte| *byte == MARK) else {
                break;
            };
            self.append(&left[..begin], true);
            let from = self.buffer.len();
            self.append(&left[begin + 1..begin + 1 + length], true);
            self.special.push((from, self.buffer.len()));
            left = &left[begin + length + 2..];
        }
        let open = left.iter().position(|byte| *byte == MARK).unwrap_or(left.len());
        let used = self.append(&left[..open], false);
        self.rest = left[used..].to_vec();
        self.process(false);
        self.take_events()
    }

    /// Ends the reply: a region that is open closes.
    pub fn finish(&mut self) -> Vec<Event> {
        let rest = std::mem::take(&mut self.rest);
        self.append(&rest, true);
        self.process(true);
        self.take_events()
    }

    /// Appends bytes as text; those of a character that is not complete only if it is `complete`. Returns their number.
    fn append(&mut self, bytes: &[u8], complete: bool) -> usize {
        let used = bytes.len() - if complete { 0 } else { incomplete_tail(bytes) };
        self.buffer.push_str(&String::from_utf8_lossy(&bytes[..used]));
        used
    }

    /// Returns the events, of which neighbours of one kind are one.
    fn take_events(&mut self) -> Vec<Event> {
        let mut merged: Vec<Event> = Vec::new();
        for event in self.events.drain(..) {
            match (merged.last_mut(), &event) {
                (Some(Event::Content(text)), Event::Content(more)) => text.push_str(more),
                (Some(Event::Reasoning(text)), Event::Reasoning(more)) => text.push_str(more),
                (
                    Some(Event::Arguments { index, text }),
                    Event::Arguments {
                        index: next,
                        text: more,
                    },
                ) if index == next => text.push_str(more),
                _ => merged.push(event),
            }
        }
        merged
    }

    fn process(&mut self, complete: bool) {
        loop {
            let (best, hold) = self.scan(complete);
            let Some((opens, field, start, end)) = best else {
                self.accumulate(if complete { self.buffer.len() } else { hold });
                break;
            };
            self.accumulate(start);
            if opens {
                self.close(None);
                self.enter(field, start, end);
            } else {
                let end = self.end_of_close(field, start, end);
                self.close(Some((start, end)));
                self.at = end;
                continue;
            }
            self.at = end;
        }
        if complete {
            self.close(None);
        }
        self.drain();
    }

    /// Returns the earliest delimiter (the longest, an opening one, by name) as (opens, field, start, end), and where
    /// text begins that may still become one.
    fn scan(&mut self, complete: bool) -> (Option<(bool, usize, usize, usize)>, usize) {
        let mut hold = self.buffer.len();
        let mut best: Option<(bool, usize, usize, usize)> = None;
        let template = self.template.clone();
        let rank = |(opens, field, start, end): (bool, usize, usize, usize)| {
            (
                start,
                usize::MAX - (end - start),
                !opens,
                template.fields[field].name.clone(),
            )
        };
        for (opens, index) in self.watched() {
            let field = &template.fields[index];
            let pattern = if opens { &field.open } else { &field.close };
            let cache = self.caches[index][usize::from(!opens)].as_mut();
            let (Some(pattern), Some(cache)) = (pattern, cache) else {
                continue;
            };
            match pattern.find(cache, &self.buffer, self.at, complete) {
                Found::Nothing => {}
                Found::Open(start) => hold = hold.min(start),
                Found::Match(start, end) => {
                    let found = (opens, index, start, end);
                    if best.is_none_or(|best| rank(found) < rank(best)) {
                        best = Some(found);
                    }
                }
            }
        }
        (best.filter(|found| found.2 < hold || complete), hold)
    }

    /// Returns the delimiters that count in this region: (opens, field).
    fn watched(&self) -> Vec<(bool, usize)> {
        match self.field.filter(|field| Some(*field) != self.template.implicit) {
            Some(field) => vec![(false, field)],
            None => {
                let fields = 0..self.template.fields.len();
                let opens = fields.filter(|field| Some(*field) != self.template.implicit);
                opens
                    .map(|field| (true, field))
                    .chain(self.template.implicit.map(|field| (false, field)))
                    .collect()
            }
        }
    }

    fn field(&self) -> Option<&Field> {
        self.field.map(|field| &self.template.fields[field])
    }

    /// Returns bytes [from, to) of the buffer without special tokens.
    fn visible(&self, from: usize, to: usize) -> String {
        let mut text = String::new();
        let mut at = from;
        for (begin, end) in &self.special {
            if *end > at && *begin < to {
                text.push_str(&self.buffer[at..(*begin).max(at)]);
                at = (*end).min(to);
            }
        }
        text.push_str(&self.buffer[at..to]);
        text
    }

    /// Adds the text before `to` to the region.
    fn accumulate(&mut self, to: usize) {
        if to <= self.at {
            return;
        }
        let visible = self.visible(self.at, to);
        let raw = self.buffer[self.at..to].to_string();
        self.at = to;
        self.add(&visible, &raw);
    }

    fn add(&mut self, visible: &str, raw: &str) {
        let parts = match &mut self.region {
            Region::Nothing => return,
            Region::Text => return self.send(visible),
            Region::Objects(objects) => objects.push(visible),
            Region::Arguments(arguments) => arguments.push(visible),
            Region::Whole => Vec::new(),
        };
        self.shown.push_str(visible);
        self.body.push_str(raw);
        self.pass(parts);
    }

    /// Sends text of content or reasoning without the whitespace around it.
    fn send(&mut self, text: &str) {
        let Some(field) = self.field.map(|field| &self.template.fields[field]) else {
            return;
        };
        let strips = !matches!(field.content, Content::Text { strips: false });
        let (state, is_reasoning) = match field.target {
            Target::Reasoning => (&mut self.reasoning, true),
            Target::Content | Target::Calls => (&mut self.content, false),
            Target::Dropped => return,
        };
        let join = field.join.as_deref().unwrap_or("\n");
        if let Some(sent) = state.push(text, strips, join) {
            self.events.push(if is_reasoning {
                Event::Reasoning(sent)
            } else {
                Event::Content(sent)
            });
        }
    }

    fn pass(&mut self, parts: Vec<Part>) {
        for part in parts {
            match part {
                Part::Call(name) => {
                    self.events.push(Event::Call {
                        index: self.next_call,
                        name,
                    });
                    self.next_call += 1;
                }
                Part::Arguments(text) => self.events.push(Event::Arguments {
                    index: self.next_call.saturating_sub(1),
                    text,
                }),
            }
        }
    }

    fn enter(&mut self, index: usize, start: usize, end: usize) {
        let template = self.template.clone();
        let field = &template.fields[index];
        self.field = Some(index);
        self.shown = self.visible(start, end);
        self.body.clear();
        let groups = field.open.as_ref().map(|open| open.groups(&self.buffer, start));
        self.captures = groups.unwrap_or_default();
        self.region = match (&field.target, &field.streaming) {
            (Target::Calls, _) if !self.calls.are_parsed => Region::Whole,
            (Target::Calls, Streaming::Objects { name, arguments }) => Region::Objects(Objects::new(name, arguments)),
            (Target::Calls, Streaming::Arguments { name }) => {
                let name = self.captures.iter().find(|(group, _)| group == name);
                Region::Arguments(Arguments::new(name.map_or("", |(_, name)| name)))
            }
            (Target::Calls, Streaming::Whole) => Region::Whole,
            _ => Region::Text,
        };
        if let Some(text) = self.text_state() {
            text.begin();
        }
        // The part of a delimiter in the group `body` belongs to the region.
        let body = self
            .captures
            .iter()
            .find(|(group, _)| group == "body")
            .map(|(_, text)| text.clone());
        if let Some(body) = body {
            let shown = std::mem::take(&mut self.shown);
            self.add(&body, &body);
            self.shown = shown;
        }
    }

    /// Returns where a closing delimiter ends: before its group `next`, with which the text outside of the region
    /// begins.
    fn end_of_close(&self, field: usize, start: usize, end: usize) -> usize {
        let close = self.template.fields[field].close.as_ref();
        close
            .and_then(|close| close.group_start(&self.buffer, start, "next"))
            .unwrap_or(end)
    }

    fn text_state(&mut self) -> Option<&mut Text> {
        match self.field()?.target {
            Target::Reasoning => Some(&mut self.reasoning),
            Target::Content => Some(&mut self.content),
            _ => None,
        }
    }

    /// Returns to the text outside of the fields.
    fn leave(&mut self) {
        self.field = self.template.implicit;
        self.region = match self.field() {
            None => Region::Nothing,
            Some(field) if field.target == Target::Calls => Region::Whole,
            Some(_) => Region::Text,
        };
        self.captures.clear();
        self.shown.clear();
        self.body.clear();
        if let Some(text) = self.text_state() {
            text.begin();
        }
    }

    /// Ends the region, whose closing delimiter has these bytes.
    fn close(&mut self, delimiter: Option<(usize, usize)>) {
        let content = match std::mem::replace(&mut self.region, Region::Nothing) {
            Region::Nothing | Region::Text => None,
            Region::Objects(mut objects) => {
                let rest = objects.finish();
                let all = !objects.has_calls();
                rest.map(|rest| if all { std::mem::take(&mut self.shown) } else { rest })
            }
            Region::Arguments(mut arguments) => match arguments.finish() {
                Some(parts) => {
                    self.pass(parts);
                    None
                }
                None => Some(std::mem::take(&mut self.shown)),
            },
            Region::Whole => self.close_whole(),
        };
        if let Some(mut text) = content {
            if let Some((start, end)) = delimiter {
                text.push_str(&self.visible(start, end));
            }
            self.content.begin();
            self.send(&text);
        }
        self.leave();
    }

    /// Parses the calls of a region. Returns its text where there are none.
    fn close_whole(&mut self) -> Option<String> {
        let parsed = self.field().filter(|_| self.calls.are_parsed);
        let value = parsed.and_then(|field| field.value(&self.body, &self.captures).ok());
        let calls = value.and_then(|value| self.calls_of(value));
        match calls {
            Some(calls) => {
                for (name, arguments) in calls {
                    self.pass(vec![Part::Call(name), Part::Arguments(arguments)]);
                }
                None
            }
            None => Some(std::mem::take(&mut self.shown)).filter(|text| !text.is_empty()),
        }
    }

    /// Returns the names and arguments of a parsed region; nothing where one is no call.
    fn calls_of(&self, value: Value) -> Option<Vec<(String, String)>> {
        let calls = match value {
            Value::Array(calls) => calls,
            one => vec![one],
        };
        calls.into_iter().map(|call| self.call_of(call)).collect()
    }

    fn call_of(&self, call: Value) -> Option<(String, String)> {
        let function = call.get("function").unwrap_or(&call);
        let name = strip(function.get("name")?.as_str()?).to_string();
        let mut arguments = function
            .get("arguments")
            .or_else(|| function.get("parameters"))
            .cloned();
        if let (Some(Value::Object(arguments)), Some(properties)) = (
            &mut arguments,
            self.calls.properties.get(&name).and_then(Value::as_object),
        ) {
            cast_arguments(arguments, properties);
        }
        let text = match arguments {
            None | Some(Value::Null) => "{}".to_string(),
            Some(Value::String(text)) => text,
            Some(other) => other.to_string(),
        };
        (!name.is_empty()).then_some((name, text))
    }

    /// Forgets the text that was read, but for one character.
    fn drain(&mut self) {
        let mut keep = self.at.saturating_sub(1);
        while !self.buffer.is_char_boundary(keep) {
            keep -= 1;
        }
        self.buffer.drain(..keep);
        self.at -= keep;
        self.special.retain(|(_, end)| *end > keep);
        for (begin, end) in &mut self.special {
            *begin = begin.saturating_sub(keep);
            *end -= keep;
        }
    }
}
