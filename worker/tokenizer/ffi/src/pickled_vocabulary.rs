// SPDX-License-Identifier: Apache-2.0
//! Reads the vocabulary out of a pickle (vocab.pkl of Transformer-XL) without running what the pickle says. A pickle is a
//! program for a stack machine; this reader knows dictionaries, lists, tuples, texts and numbers. Whatever a call would
//! make is an opaque value, except for the two kinds of dictionaries of Python's `collections`. Nothing is imported.
use std::collections::HashMap;

/// Limits of a pickle. The best-known vocabulary has 268,000 tokens in 10 MB.
const MAX_BYTES: usize = 64 << 20;
const MAX_VALUES: usize = 8 << 20;
const MAX_LINE: usize = 1 << 20;

/// Number of a value.
type Id = usize;

enum Value {
    Text(String),
    Number(i64),
    Dict(Vec<(Id, Id)>),
    List(Vec<Id>),
    /// a class of a module
    Global(bool),
    /// what the reader does not know
    Opaque,
}

/// Whole words with their ids.
pub struct WordList {
    /// tokens in the order of their ids
    pub tokens: Vec<String>,
    pub ids: HashMap<String, u32>,
    /// id of unknown tokens, where the file says it
    pub unk: Option<u32>,
}

struct Machine<'a> {
    rest: &'a [u8],
    values: Vec<Value>,
    stack: Vec<Id>,
    marks: Vec<usize>,
    memo: HashMap<u64, Id>,
}

/// Reads a pickle of a dictionary that has `sym2idx`, a dictionary of ids, and `idx2sym`, a list of tokens.
pub fn read(bytes: &[u8]) -> Result<WordList, String> {
    if bytes.len() > MAX_BYTES {
        return Err(format!("has {} bytes, expected at most {MAX_BYTES}", bytes.len()));
    }
    if bytes.starts_with(b"PK") {
        return Err("is an archive of torch.save; convert it to vocab.txt, a token in each line".into());
    }
    let mut machine = Machine {
        rest: bytes,
        values: Vec::new(),
        stack: Vec::new(),
        marks: Vec::new(),
        memo: HashMap::new(),
    };
    let top = machine.run()?;
    machine.vocabulary(top)
}

/// Returns a text of Latin 1 in which a backslash with `u` and four digits, or `U` and eight, stands for a character.
fn escaped(line: &str) -> Value {
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        let digits = match rest.as_bytes().get(at + 1) {
            Some(b'u') => 4,
            Some(b'U') => 8,
            _ => 0,
        };
        let code = rest.get(at + 2..at + 2 + digits).unwrap_or_default();
        let Some(c) = u32::from_str_radix(code, 16).ok().and_then(char::from_u32) else {
            return Value::Opaque;
        };
        out.push(c);
        rest = &rest[at + 2 + digits..];
    }
    Value::Text(out + rest)
}

impl<'a> Machine<'a> {
    fn take(&mut self, count: u64) -> Result<&'a [u8], String> {
        match usize::try_from(count).ok().filter(|count| *count <= self.rest.len()) {
            Some(count) => {
                let (taken, rest) = self.rest.split_at(count);
                self.rest = rest;
                Ok(taken)
            }
            None => Err("ends inside of a value".into()),
        }
    }

    /// Returns a little-endian number of so many bytes.
    fn number(&mut self, bytes: u64) -> Result<u64, String> {
        Ok(self
            .take(bytes)?
            .iter()
            .rev()
            .fold(0, |all, byte| all << 8 | u64::from(*byte)))
    }

    fn line(&mut self) -> Result<&'a str, String> {
        std::str::from_utf8(self.line_bytes()?).map_err(|_| "has a line that is not UTF-8".into())
    }

    fn line_bytes(&mut self) -> Result<&'a [u8], String> {
        let end = self.rest.iter().take(MAX_LINE).position(|byte| *byte == b'\n');
        let line = self.take(end.ok_or("has a line without an end")? as u64)?;
        self.take(1)?;
        Ok(line)
    }

    fn text(&mut self, bytes: u64) -> Result<Value, String> {
        let text = std::str::from_utf8(self.take(bytes)?);
        Ok(text.map_or(Value::Opaque, |text| Value::Text(text.to_string())))
    }

    fn push(&mut self, value: Value) -> Result<(), String> {
        if self.values.len() == MAX_VALUES {
            return Err(format!("has more than {MAX_VALUES} values"));
        }
        self.stack.push(self.values.len());
        self.values.push(value);
        Ok(())
    }

    fn pop(&mut self) -> Result<Id, String> {
        let bottom = self.marks.last().copied().unwrap_or(0);
        if self.stack.len() <= bottom {
            return Err("takes a value from an empty stack".into());
        }
        self.stack
            .pop()
            .ok_or_else(|| "takes a value from an empty stack".to_string())
    }

    fn top(&self) -> Result<Id, String> {
        self.stack
            .last()
            .copied()
            .ok_or_else(|| "has no value on its stack".to_string())
    }

    /// Returns what was pushed since the last mark.
    fn since_mark(&mut self) -> Result<Vec<Id>, String> {
        let mark = self.marks.pop().ok_or("has no mark")?;
        Ok(self.stack.split_off(mark.min(self.stack.len())))
    }

    fn remember(&mut self, key: u64) -> Result<(), String> {
        let top = self.top()?;
        self.memo.insert(key, top);
        Ok(())
    }

    fn recall(&mut self, key: u64) -> Result<(), String> {
        let found = self.memo.get(&key).ok_or("recalls what it did not store")?;
        self.stack.push(*found);
        Ok(())
    }

    fn key(&mut self) -> Result<u64, String> {
        self.line()?.parse().map_err(|_| "has no number of a memo".to_string())
    }

    /// Takes so many values off the stack and pushes a tuple of them.
    fn tuple(&mut self, count: usize) -> Result<(), String> {
        let mut items = Vec::with_capacity(count);
        for _ in 0..count {
            items.push(self.pop()?);
        }
        items.reverse();
        self.push(Value::List(items))
    }

    fn set_items(&mut self, items: Vec<Id>) -> Result<(), String> {
        let dict = self.top()?;
        if !items.chunks_exact(2).remainder().is_empty() {
            return Err("has a key without a value".into());
        }
        if let Value::Dict(entries) = &mut self.values[dict] {
            entries.extend(items.chunks_exact(2).map(|pair| (pair[0], pair[1])));
        }
        Ok(())
    }

    fn append(&mut self, items: Vec<Id>) -> Result<(), String> {
        let list = self.top()?;
        if let Value::List(values) = &mut self.values[list] {
            values.extend(items);
        }
        Ok(())
    }

    /// Pushes what a call gives: a dictionary of the pairs in its argument, or an opaque value.
    fn call(&mut self) -> Result<(), String> {
        let (arguments, callee) = (self.pop()?, self.pop()?);
        if !matches!(self.values[callee], Value::Global(true)) {
            return self.push(Value::Opaque);
        }
        let first = match &self.values[arguments] {
            Value::List(all) => all.first().copied(),
            _ => None,
        };
        let mut entries = Vec::new();
        match first.map(|first| &self.values[first]) {
            Some(Value::Dict(given)) => entries = given.clone(),
            Some(Value::List(pairs)) => {
                for pair in pairs {
                    if let Value::List(pair) = &self.values[*pair] {
                        if let [key, value] = pair[..] {
                            entries.push((key, value));
                        }
                    }
                }
            }
            _ => {}
        }
        self.push(Value::Dict(entries))
    }

    fn global(&mut self, module: &str, name: &str) -> Result<(), String> {
        let is_dict = module == "collections" && (name == "OrderedDict" || name == "Counter");
        self.push(Value::Global(is_dict))
    }

    /// Runs the program and returns its value.
    fn run(&mut self) -> Result<Id, String> {
        loop {
            let op = self.take(1)?[0];
            match op {
                b'.' => return self.pop(),
                0x80 => self.take(1).map(drop)?,
                0x95 => self.take(8).map(drop)?,
                b'(' => self.marks.push(self.stack.len()),
                b'0' => self.pop().map(drop)?,
                b'1' => self.since_mark().map(drop)?,
                b'2' => {
                    let top = self.top()?;
                    self.stack.push(top);
                }
                b'N' | 0x88 | 0x89 => self.push(Value::Opaque)?,
                b'}' => self.push(Value::Dict(Vec::new()))?,
                b']' | b')' => self.push(Value::List(Vec::new()))?,
                0x85..=0x87 => self.tuple(usize::from(op - 0x84))?,
                b't' | b'l' => {
                    let items = self.since_mark()?;
                    self.push(Value::List(items))?;
                }
                b'd' => {
                    let items = self.since_mark()?;
                    self.push(Value::Dict(Vec::new()))?;
                    self.set_items(items)?;
                }
                b's' => {
                    let (value, key) = (self.pop()?, self.pop()?);
                    self.set_items(vec![key, value])?;
                }
                b'u' => {
                    let items = self.since_mark()?;
                    self.set_items(items)?;
                }
                b'a' => {
                    let item = self.pop()?;
                    self.append(vec![item])?;
                }
                b'e' => {
                    let items = self.since_mark()?;
                    self.append(items)?;
                }
                b'q' | b'r' => {
                    let key = self.number(if op == b'q' { 1 } else { 4 })?;
                    self.remember(key)?;
                }
                0x94 => self.remember(self.memo.len() as u64)?,
                b'p' => {
                    let key = self.key()?;
                    self.remember(key)?;
                }
                b'h' | b'j' => {
                    let key = self.number(if op == b'h' { 1 } else { 4 })?;
                    self.recall(key)?;
                }
                b'g' => {
                    let key = self.key()?;
                    self.recall(key)?;
                }
                b'R' | 0x81 | 0x92 | b'b' | b'c' | 0x93 | b'i' | b'o' | 0x8f | 0x90 | 0x91 => self.object(op)?,
                _ => self.scalar(op)?,
            }
        }
    }

    /// Runs an instruction that makes objects, which are opaque, or sets.
    fn object(&mut self, op: u8) -> Result<(), String> {
        match op {
            b'R' | 0x81 => self.call(),
            0x92 => {
                self.pop()?;
                self.call()
            }
            b'b' => self.pop().map(drop),
            b'c' => {
                let (module, name) = (self.line()?, self.line()?);
                self.global(module, name)
            }
            0x93 => {
                let (name, module) = (self.pop()?, self.pop()?);
                let text = |id: Id| match &self.values[id] {
                    Value::Text(text) => text.clone(),
                    _ => String::new(),
                };
                let (module, name) = (text(module), text(name));
                self.global(&module, &name)
            }
            0x8f => self.push(Value::Opaque),
            0x90 => self.since_mark().map(drop),
            _ => {
                if op == b'i' {
                    self.line()?;
                    self.line()?;
                }
                self.since_mark()?;
                self.push(Value::Opaque)
            }
        }
    }

    /// Runs an instruction that pushes a number, a text or bytes.
    fn scalar(&mut self, op: u8) -> Result<(), String> {
        let value = match op {
            b'K' => Value::Number(self.number(1)? as i64),
            b'M' => Value::Number(self.number(2)? as i64),
            b'J' => Value::Number(i64::from(self.number(4)? as u32 as i32)),
            0x8a => match self.number(1)? {
                size @ 0..=7 => Value::Number(self.number(size)? as i64),
                size => self.take(size).map(|_| Value::Opaque)?,
            },
            b'I' | b'L' => {
                let line = self.line()?;
                let number = line.trim_end_matches('L').parse();
                number.map_or(Value::Opaque, Value::Number)
            }
            b'V' => escaped(&self.line_bytes()?.iter().copied().map(char::from).collect::<String>()),
            b'S' => {
                let line = self.line()?;
                let quoted = line.get(1..line.len().saturating_sub(1)).unwrap_or_default();
                match quoted.contains('\\') {
                    true => Value::Opaque,
                    false => Value::Text(quoted.to_string()),
                }
            }
            b'F' => self.line().map(|_| Value::Opaque)?,
            b'G' => self.take(8).map(|_| Value::Opaque)?,
            b'X' | b'T' => {
                let size = self.number(4)?;
                self.text(size)?
            }
            0x8c | b'U' => {
                let size = self.number(1)?;
                self.text(size)?
            }
            0x8d => {
                let size = self.number(8)?;
                self.text(size)?
            }
            b'B' | b'C' | 0x8b | 0x8e => {
                let size = self.number(match op {
                    b'C' => 1,
                    0x8e => 8,
                    _ => 4,
                })?;
                self.take(size).map(|_| Value::Opaque)?
            }
            _ => return Err(format!("has the instruction {op:#04x}, which is not read")),
        };
        self.push(value)
    }

    /// Returns the value of a key, of which the last counts.
    fn find(&self, dict: Id, key: &str) -> Option<Id> {
        let Value::Dict(entries) = &self.values[dict] else {
            return None;
        };
        let has_key = |(name, _): &&(Id, Id)| matches!(&self.values[*name], Value::Text(text) if text == key);
        entries.iter().rev().find(has_key).map(|(_, value)| *value)
    }

    fn vocabulary(&self, top: Id) -> Result<WordList, String> {
        if !matches!(self.values[top], Value::Dict(_)) {
            return Err(
                "has no dictionary in front, as of torch.save; convert it to vocab.txt, a token in each line".into(),
            );
        }
        let number = |id: Id| match &self.values[id] {
            Value::Number(number) => u32::try_from(*number).ok(),
            _ => None,
        };
        let text = |id: Id| match &self.values[id] {
            Value::Text(text) => Some(text.clone()),
            _ => None,
        };
        let (ids, tokens) = (self.find(top, "sym2idx"), self.find(top, "idx2sym"));
        let (Some(Value::Dict(ids)), Some(Value::List(tokens))) =
            (ids.map(|id| &self.values[id]), tokens.map(|id| &self.values[id]))
        else {
            return Err("has no sym2idx and idx2sym".into());
        };
        let ids: Option<HashMap<String, u32>> = ids.iter().map(|(k, v)| Some((text(*k)?, number(*v)?))).collect();
        let tokens: Option<Vec<String>> = tokens.iter().map(|token| text(*token)).collect();
        Ok(WordList {
            tokens: tokens.ok_or("has something else than texts in idx2sym")?,
            ids: ids.ok_or("has something else than texts and their ids in sym2idx")?,
            unk: self.find(top, "unk_idx").and_then(number),
        })
    }
}
