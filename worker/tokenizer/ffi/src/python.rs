// SPDX-License-Identifier: Apache-2.0
//! Formats values as Python does: `str()`, `repr()` and `json.dumps`. Chat templates are written for these formats.
use minijinja::value::{Value, ValueKind};

/// `repr` of a float: the shortest digits that read back, an exponent below 1e-4 and from 1e16 on.
fn float(number: f64) -> String {
    if !number.is_finite() {
        return if number.is_nan() {
            "nan".into()
        } else if number > 0.0 {
            "inf".into()
        } else {
            "-inf".into()
        };
    }
    let short = format!("{number:e}");
    let (digits, exponent) = short.split_once('e').unwrap_or((&short, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if number != 0.0 && !(-4..16).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exponent.abs());
    }
    let plain = format!("{number}");
    if plain.contains('.') {
        plain
    } else {
        plain + ".0"
    }
}

fn number(value: &Value) -> String {
    if value.is_integer() {
        value.to_string()
    } else {
        f64::try_from(value.clone()).map_or_else(|_| value.to_string(), float)
    }
}

fn quoted(text: &str) -> String {
    let quote = if text.contains('\'') && !text.contains('"') {
        '"'
    } else {
        '\''
    };
    let mut out = String::from(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => {
                out.push('\\');
                out.push(c);
            }
            c if (c as u32) < 0x20 || (0x7f..=0xa0).contains(&(c as u32)) || c == '\u{ad}' => {
                out.push_str(&format!("\\x{:02x}", c as u32))
            }
            c => out.push(c),
        }
    }
    out.push(quote);
    out
}

/// Returns keys and values of a map, in their order.
fn pairs(map: &Value) -> Vec<(Value, Value)> {
    let keys = map.try_iter().into_iter().flatten();
    keys.map(|key| (key.clone(), map.get_item(&key).unwrap_or_default()))
        .collect()
}

fn items(list: &Value) -> Vec<Value> {
    list.try_iter().into_iter().flatten().collect()
}

fn repr(value: &Value) -> String {
    match value.kind() {
        ValueKind::String => quoted(value.as_str().unwrap_or_default()),
        ValueKind::Seq | ValueKind::Iterable => {
            format!("[{}]", items(value).iter().map(repr).collect::<Vec<_>>().join(", "))
        }
        ValueKind::Map => format!(
            "{{{}}}",
            pairs(value)
                .iter()
                .map(|(k, v)| format!("{}: {}", repr(k), repr(v)))
                .collect::<Vec<_>>()
                .join(", ")
        ),
        ValueKind::None => "None".into(),
        ValueKind::Bool => {
            if value.is_true() {
                "True".into()
            } else {
                "False".into()
            }
        }
        ValueKind::Number => number(value),
        _ => value.to_string(),
    }
}

/// Returns `str(value)`; an empty string for an undefined value.
pub fn text(value: &Value) -> String {
    match value.kind() {
        ValueKind::Undefined => String::new(),
        ValueKind::String => value.as_str().unwrap_or_default().to_string(),
        _ => repr(value),
    }
}

/// Arguments of `json.dumps`.
pub struct Json {
    pub ascii: bool,
    pub indent: Option<String>,
    pub item_separator: String,
    pub key_separator: String,
    pub sort_keys: bool,
}

impl Json {
    /// Appends `value` at nesting level `depth`.
    pub fn write(&self, value: &Value, depth: usize, out: &mut String) -> Result<(), String> {
        match value.kind() {
            ValueKind::None => out.push_str("null"),
            ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => out.push_str(&match number(value).as_str() {
                "nan" => "NaN".to_string(),
                "inf" => "Infinity".to_string(),
                "-inf" => "-Infinity".to_string(),
                other => other.to_string(),
            }),
            ValueKind::String => self.string(value.as_str().unwrap_or_default(), out),
            ValueKind::Seq | ValueKind::Iterable => self.group('[', ']', items(value), depth, out, |item, out| {
                self.write(item, depth + 1, out)
            })?,
            ValueKind::Map => {
                let mut all = pairs(value);
                if self.sort_keys {
                    all.sort_by_key(|(key, _)| text(key));
                }
                self.group('{', '}', all, depth, out, |(key, value), out| {
                    match key.kind() {
                        ValueKind::String => self.string(key.as_str().unwrap_or_default(), out),
                        _ => {
                            out.push('"');
                            self.write(key, depth + 1, out)?;
                            out.push('"');
                        }
                    }
                    out.push_str(&self.key_separator);
                    self.write(value, depth + 1, out)
                })?
            }
            kind => return Err(format!("a value that is {kind} cannot be written as JSON")),
        }
        Ok(())
    }

    fn group<T>(
        &self,
        open: char,
        close: char,
        all: Vec<T>,
        depth: usize,
        out: &mut String,
        mut write: impl FnMut(&T, &mut String) -> Result<(), String>,
    ) -> Result<(), String> {
        out.push(open);
        for (i, one) in all.iter().enumerate() {
            if i > 0 {
                out.push_str(&self.item_separator);
            }
            self.new_line(depth + 1, out);
            write(one, out)?;
        }
        if !all.is_empty() {
            self.new_line(depth, out);
        }
        out.push(close);
        Ok(())
    }

    fn new_line(&self, depth: usize, out: &mut String) {
        if let Some(indent) = &self.indent {
            out.push('\n');
            out.push_str(&indent.repeat(depth));
        }
    }

    fn string(&self, text: &str, out: &mut String) {
        out.push('"');
        for c in text.chars() {
            match c {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\u{8}' => out.push_str("\\b"),
                '\u{c}' => out.push_str("\\f"),
                c if (c as u32) < 0x20 || (self.ascii && !c.is_ascii()) => {
                    let mut units = [0; 2];
                    for unit in c.encode_utf16(&mut units) {
                        out.push_str(&format!("\\u{unit:04x}"));
                    }
                }
                c => out.push(c),
            }
        }
        out.push('"');
    }
}
