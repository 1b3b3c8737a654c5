// SPDX-License-Identifier: Apache-2.0
//! Reads tool calls that are JSON while their text grows: the arguments are passed on as the reply has them.
use serde_json::Value;

/// The results of a region of calls so far.
#[derive(Clone, Debug, PartialEq)]
pub enum Part {
    Call(String),
    Arguments(String),
}

/// The end of a JSON value that grows.
#[derive(Default, Clone, Debug)]
struct ValueEnd {
    depth: usize,
    in_string: bool,
    escaped: bool,
    started: bool,
    scalar: bool,
}

impl ValueEnd {
    /// Reads one character. Returns whether it is the last of the value, or the first behind it (`Behind`).
    fn read(&mut self, c: char) -> End {
        if self.in_string {
            match c {
                _ if self.escaped => self.escaped = false,
                '\\' => self.escaped = true,
                '"' => {
                    self.in_string = false;
                    if self.depth == 0 {
                        return End::Last;
                    }
                }
                _ => {}
            }
            return End::Inside;
        }
        match c {
            _ if self.scalar && (matches!(c, ',' | '}' | ']') || c.is_whitespace()) => return End::Behind,
            '"' => self.in_string = true,
            '{' | '[' => self.depth += 1,
            '}' | ']' => {
                self.depth = self.depth.saturating_sub(1);
                if self.depth == 0 {
                    return End::Last;
                }
            }
            _ if self.depth == 0 && !self.started => self.scalar = true,
            _ => {}
        }
        self.started = true;
        End::Inside
    }
}

#[derive(PartialEq)]
enum End {
    Inside,
    Last,
    Behind,
}

#[derive(Clone, Debug, PartialEq)]
enum State {
    /// Before the array or the object.
    Start,
    /// Before an object of an array.
    Element,
    Key,
    Colon,
    Value,
    AfterValue,
    /// Behind all of it.
    Done,
    /// The text is no such JSON.
    Broken,
}

/// Reads an object {"name", "arguments"}, or an array of such objects.
pub struct Objects {
    name_key: String,
    argument_keys: Vec<String>,
    state: State,
    in_array: bool,
    text: String,
    /// The first byte of the current object, key or value.
    object: usize,
    token: usize,
    read: usize,
    value: ValueEnd,
    key: String,
    name: Option<String>,
    arguments: Option<String>,
    /// Bytes of `text` that were passed on as arguments; nothing before the call was.
    passed: Option<usize>,
    /// True once the call of the current object was passed on.
    is_begun: bool,
    calls: usize,
}

impl Objects {
    pub fn new(name_key: &str, argument_keys: &[String]) -> Self {
        Objects {
            name_key: name_key.into(),
            argument_keys: argument_keys.to_vec(),
            state: State::Start,
            in_array: false,
            text: String::new(),
            object: 0,
            token: 0,
            read: 0,
            value: ValueEnd::default(),
            key: String::new(),
            name: None,
            arguments: None,
            passed: None,
            is_begun: false,
            calls: 0,
        }
    }

    pub fn push(&mut self, text: &str) -> Vec<Part> {
        let mut parts = Vec::new();
        self.text.push_str(text);
        while self.read < self.text.len() && self.state != State::Broken {
            let c = self.text[self.read..].chars().next().unwrap_or_default();
            self.step(c, &mut parts);
        }
        self.pass_arguments(self.read, &mut parts);
        parts
    }

    /// Ends the region. Returns the text that is no call; all of it, where there is no call.
    pub fn finish(&mut self) -> Option<String> {
        if self.is_begun {
            return None;
        }
        if self.calls == 0 {
            return Some(self.text.clone());
        }
        let is_punctuation = |c: char| c.is_whitespace() || matches!(c, ']' | '}' | ',' | ';');
        let rest = self.text[self.object..].trim_start_matches(is_punctuation);
        (!rest.is_empty()).then(|| rest.to_string())
    }

    /// True once a call was passed on.
    pub fn has_calls(&self) -> bool {
        self.calls > 0
    }

    fn step(&mut self, c: char, parts: &mut Vec<Part>) {
        let after = self.read + c.len_utf8();
        let state = self.state.clone();
        match state {
            State::Value | State::Key => return self.step_token(c, after, parts),
            _ if c.is_whitespace() => {}
            State::Start if c == '[' => {
                self.in_array = true;
                self.object = after;
                self.state = State::Element;
            }
            State::Start | State::Element if c == '{' => self.begin_object(),
            State::Element if c == ',' && self.calls > 0 => self.object = after,
            State::Element if c == ']' => self.state = State::Done,
            State::Colon if c == ':' => self.begin_token(State::Value, after),
            State::AfterValue if c == ',' => self.begin_token(State::Key, after),
            State::AfterValue if c == '}' => self.end_object(after, parts),
            // some models write several objects without an array
            State::Done if c == '{' && !self.in_array => self.begin_object(),
            State::Done => {}
            _ => self.state = State::Broken,
        }
        self.read = after;
    }

    fn begin_object(&mut self) {
        self.object = self.read;
        self.name = None;
        self.arguments = None;
        self.passed = None;
        self.is_begun = false;
        self.begin_token(State::Key, self.read + 1);
    }

    fn begin_token(&mut self, state: State, at: usize) {
        self.state = state;
        self.token = at;
        self.value = ValueEnd::default();
    }

    /// Reads a character of a key or of a value.
    fn step_token(&mut self, c: char, after: usize, parts: &mut Vec<Part>) {
        if !self.value.started {
            if c.is_whitespace() {
                self.read = after;
                return;
            }
            self.token = self.read;
            if self.state == State::Key && c == '}' {
                self.end_object(after, parts);
                self.read = after;
                return;
            }
            if (self.state == State::Key && c != '"') || matches!(c, ',' | '}' | ']' | ':') {
                self.state = State::Broken;
                return;
            }
            self.begin_arguments(c, parts);
        }
        match self.value.read(c) {
            End::Inside => self.read = after,
            End::Last => {
                self.read = after;
                self.value.started = true;
                self.end_token(after, parts);
            }
            End::Behind => self.end_token(self.read, parts),
        }
    }

    fn is_arguments(&self) -> bool {
        self.state == State::Value && self.argument_keys.contains(&self.key)
    }

    /// Passes the call on where its name is known and its arguments begin.
    fn begin_arguments(&mut self, c: char, parts: &mut Vec<Part>) {
        if self.is_arguments() && matches!(c, '{' | '[') && !self.is_begun {
            if let Some(name) = &self.name {
                parts.push(Part::Call(name.clone()));
                self.is_begun = true;
                self.calls += 1;
                self.passed = Some(self.token);
            }
        }
    }

    fn pass_arguments(&mut self, end: usize, parts: &mut Vec<Part>) {
        if let Some(from) = self.passed.filter(|from| *from < end) {
            parts.push(Part::Arguments(self.text[from..end].to_string()));
            self.passed = Some(end);
        }
    }

    fn end_token(&mut self, end: usize, parts: &mut Vec<Part>) {
        let token = &self.text[self.token..end];
        if self.state == State::Key {
            match serde_json::from_str::<String>(token) {
                Ok(key) => {
                    self.key = key;
                    self.state = State::Colon;
                }
                Err(_) => self.state = State::Broken,
            }
            return;
        }
        if self.is_arguments() {
            if self.passed.is_some() {
                self.pass_arguments(end, parts);
                self.passed = None;
            } else if !self.is_begun {
                self.arguments = Some(arguments_text(token));
            }
        } else if self.key == self.name_key {
            let name = serde_json::from_str::<String>(token).ok();
            self.name = name.filter(|name| !name.is_empty());
        }
        self.state = State::AfterValue;
    }

    fn end_object(&mut self, after: usize, parts: &mut Vec<Part>) {
        if !self.is_begun {
            let Some(name) = self.name.take() else {
                self.state = State::Broken;
                return;
            };
            parts.push(Part::Call(name));
            parts.push(Part::Arguments(self.arguments.take().unwrap_or_else(|| "{}".into())));
            self.calls += 1;
        }
        self.object = after;
        self.is_begun = false;
        self.state = if self.in_array { State::Element } else { State::Done };
    }
}

/// Returns arguments as the text of JSON; a string is that text itself, and nothing is no arguments.
fn arguments_text(token: &str) -> String {
    match serde_json::from_str(token) {
        Ok(Value::String(text)) => text,
        Ok(Value::Null) => "{}".into(),
        _ => token.to_string(),
    }
}

/// Reads a region that is the arguments of one call.
pub struct Arguments {
    name: String,
    text: String,
    passed: usize,
    is_begun: bool,
}

impl Arguments {
    pub fn new(name: &str) -> Self {
        Arguments {
            name: name.into(),
            text: String::new(),
            passed: 0,
            is_begun: false,
        }
    }

    pub fn push(&mut self, text: &str) -> Vec<Part> {
        self.text.push_str(text);
        let mut parts = Vec::new();
        if !self.is_begun {
            let begin = self.text.len() - self.text.trim_start().len();
            if !self.text[begin..].starts_with('{') || self.name.is_empty() {
                return parts;
            }
            self.is_begun = true;
            self.passed = begin;
            parts.push(Part::Call(self.name.clone()));
        }
        // whitespace at the end is no part of the arguments
        let end = self.text.trim_end().len();
        if self.passed < end {
            parts.push(Part::Arguments(self.text[self.passed..end].to_string()));
            self.passed = end;
        }
        parts
    }

    /// Ends the region. Returns a call without arguments, or nothing where the text is no call.
    pub fn finish(&mut self) -> Option<Vec<Part>> {
        if self.is_begun {
            return Some(Vec::new());
        }
        let is_call = !self.name.is_empty() && self.text.trim().is_empty();
        is_call.then(|| vec![Part::Call(self.name.clone()), Part::Arguments("{}".into())])
    }
}
