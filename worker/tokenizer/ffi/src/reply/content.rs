// SPDX-License-Identifier: Apache-2.0
//! Values of the regions of a reply: the content parsers and transforms of transformers' utils/chat_parsing.
use crate::python_text::strip;
use crate::reply::cast::{float, int};
use crate::reply::pattern::regex;
use regex::Regex;
use serde_json::{Map, Value};

/// Parsers of values nest; transforms are JSON and nest with it.
const MAX_DEPTH: usize = 8;

pub type Captures = Vec<(String, String)>;

/// A content parser with its options.
pub enum Content {
    Text { strips: bool },
    Int,
    Float,
    Bool,
    Json(JsonDialect),
    Xml(XmlInline),
    Lines(KvLines),
}

/// A dialect that a model writes in place of strict JSON.
#[derive(Default)]
pub struct JsonDialect {
    keys: Option<Regex>,
    strings: Vec<Regex>,
    allows_text: bool,
    strips: bool,
}

pub struct XmlInline {
    tag: Regex,
    value: Option<Box<Content>>,
    merges: bool,
}

pub struct KvLines {
    line: String,
    pair: String,
    strips: bool,
    value: Option<Box<Content>>,
}

fn flag(options: &Map<String, Value>, key: &str, default: bool) -> bool {
    match options.get(key) {
        None | Some(Value::Null) => default,
        Some(Value::Bool(value)) => *value,
        Some(Value::Number(number)) => number.as_f64() != Some(0.0),
        Some(Value::String(text)) => !text.is_empty(),
        Some(_) => true,
    }
}

fn text_option(options: &Map<String, Value>, key: &str, default: &str) -> Result<String, String> {
    match options.get(key) {
        None => Ok(default.into()),
        Some(Value::String(text)) if !text.is_empty() => Ok(text.clone()),
        Some(other) => Err(format!("{key} is {other}; a text that is not empty is expected")),
    }
}

fn value_parser(options: &Map<String, Value>, depth: usize) -> Result<Option<Box<Content>>, String> {
    let Some(Value::Object(parser)) = options.get("value_parser") else {
        return Ok(None);
    };
    let name = parser.get("name").and_then(Value::as_str).unwrap_or("text");
    let none = Map::new();
    let arguments = parser.get("args").and_then(Value::as_object).unwrap_or(&none);
    Ok(Some(Box::new(Content::new(name, arguments, depth + 1)?)))
}

impl JsonDialect {
    fn new(options: &Map<String, Value>) -> Result<Self, String> {
        let mut made = JsonDialect {
            allows_text: flag(options, "allow_non_json", false),
            strips: flag(options, "strip", true),
            ..JsonDialect::default()
        };
        if flag(options, "unquoted_keys", false) {
            made.keys = Some(regex(r"(?P<before>[{,])(?P<key>\w+):")?);
        }
        for pair in options
            .get("string_delims")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            let [Value::String(open), Value::String(close)] = pair.as_array().map_or(&[][..], Vec::as_slice) else {
                return Err(format!("string_delims has {pair}; a pair of texts is expected"));
            };
            let [open, close] = [regex::escape(open), regex::escape(close)];
            made.strings.push(regex(&format!("{open}(.*?){close}"))?);
        }
        Ok(made)
    }

    /// Returns whether texts are plain JSON, so that a part of one can be passed on as it is.
    pub fn is_plain(&self) -> bool {
        self.keys.is_none() && self.strings.is_empty() && !self.allows_text
    }

    fn parse(&self, text: &str) -> Result<Value, String> {
        if !self.strings.is_empty() && text.contains(['\u{1}', '\u{2}']) {
            return Err("it has control characters".into());
        }
        let mut captured: Vec<String> = Vec::new();
        let mut work = text.to_string();
        for pattern in &self.strings {
            let replaced = pattern.replace_all(&work, |found: &regex::Captures| {
                captured.push(found[1].to_string());
                format!("\u{1}{}\u{2}", captured.len() - 1)
            });
            work = replaced.into_owned();
        }
        if let Some(keys) = &self.keys {
            work = keys.replace_all(&work, "${before}\"${key}\":").into_owned();
        }
        for (number, string) in captured.iter().enumerate() {
            work = work.replace(
                &format!("\u{1}{number}\u{2}"),
                &Value::from(string.as_str()).to_string(),
            );
        }
        match serde_json::from_str(&work) {
            Ok(value) => Ok(value),
            Err(_) if self.allows_text => Ok(Value::from(if self.strips { strip(text) } else { text })),
            Err(error) => Err(format!("it is not JSON: {error}")),
        }
    }
}

impl Content {
    pub fn new(name: &str, options: &Map<String, Value>, depth: usize) -> Result<Self, String> {
        if depth > MAX_DEPTH {
            return Err(format!("value_parser is nested deeper than {MAX_DEPTH} levels"));
        }
        Ok(match name {
            "text" => Content::Text {
                strips: flag(options, "strip", true),
            },
            "int" => Content::Int,
            "float" => Content::Float,
            "bool" => Content::Bool,
            "json" => Content::Json(JsonDialect::new(options)?),
            "xml-inline" => {
                let tag = options.get("tag_pattern").and_then(Value::as_str);
                let tag = regex(tag.ok_or("xml-inline needs tag_pattern, a text")?)?;
                if !tag.capture_names().flatten().any(|name| name == "key") {
                    return Err("tag_pattern needs a group named key".into());
                }
                Content::Xml(XmlInline {
                    tag,
                    value: value_parser(options, depth)?,
                    merges: flag(options, "merge_duplicates", false),
                })
            }
            "kv-lines" => Content::Lines(KvLines {
                line: text_option(options, "line_sep", "\n")?,
                pair: text_option(options, "kv_sep", ":")?,
                strips: flag(options, "strip", true),
                value: value_parser(options, depth)?,
            }),
            other => {
                return Err(format!(
                    "content is {other:?}; text, int, float, bool, json, xml-inline or kv-lines is expected"
                ))
            }
        })
    }

    pub fn parse(&self, text: &str) -> Result<Value, String> {
        match self {
            Content::Text { strips } => Ok(Value::from(if *strips { strip(text) } else { text })),
            Content::Int => int(text).map(Value::from).ok_or("it is no integer".into()),
            Content::Float => float(text).map(Value::from).ok_or("it is no number".into()),
            Content::Bool => Ok(Value::Bool(
                ["true", "1"].contains(&strip(text).to_lowercase().as_str()),
            )),
            Content::Json(dialect) => dialect.parse(text),
            Content::Xml(xml) => xml.parse(text),
            Content::Lines(lines) => lines.parse(text),
        }
    }
}

fn parse_value(text: &str, parser: &Option<Box<Content>>) -> Result<Value, String> {
    parser
        .as_ref()
        .map_or_else(|| Ok(Value::from(text)), |parser| parser.parse(text))
}

impl XmlInline {
    fn parse(&self, text: &str) -> Result<Value, String> {
        let mut pairs = Map::new();
        for found in self.tag.captures_iter(text) {
            let key = found.name("key").ok_or("a tag has no key")?.as_str();
            let value = parse_value(found.name("value").map_or("", |value| value.as_str()), &self.value)?;
            match pairs.get_mut(key) {
                Some(Value::Array(values)) if self.merges => values.push(value),
                Some(first) if self.merges => *first = Value::Array(vec![first.take(), value]),
                _ => {
                    pairs.insert(key.into(), value);
                }
            }
        }
        Ok(Value::Object(pairs))
    }
}

impl KvLines {
    fn parse(&self, text: &str) -> Result<Value, String> {
        let trimmed = |text: &str| (if self.strips { strip(text) } else { text }).to_string();
        let mut pairs = Map::new();
        for line in text.split(&self.line) {
            let line = trimmed(line);
            if let Some((key, value)) = line.split_once(&self.pair) {
                pairs.insert(trimmed(key), parse_value(&trimmed(value), &self.value)?);
            }
        }
        Ok(Value::Object(pairs))
    }
}

/// Returns the path of a text that is one placeholder, "{content.name}" as ["content", "name"].
pub fn placeholder(text: &str) -> Option<Vec<&str>> {
    let inner = text.strip_prefix('{')?.strip_suffix('}')?;
    let path: Vec<&str> = inner.split('.').collect();
    let is_name = |name: &&str| !name.is_empty() && name.chars().all(|c| c == '_' || c.is_alphanumeric());
    path.iter().all(is_name).then_some(path)
}

/// Fills a transform; `scope` returns the value of a name.
pub fn transform(template: &Value, scope: &dyn Fn(&str) -> Option<Value>) -> Result<Value, String> {
    match template {
        Value::Object(map) => map
            .iter()
            .map(|(key, value)| Ok((key.clone(), transform(value, scope)?)))
            .collect::<Result<Map<_, _>, String>>()
            .map(Value::Object),
        Value::Array(items) => items.iter().map(|item| transform(item, scope)).collect(),
        Value::String(text) => match placeholder(text) {
            None => Ok(template.clone()),
            Some(path) => {
                let missing = || format!("there is no {text}");
                let mut value = scope(path[0]).ok_or_else(missing)?;
                for key in &path[1..] {
                    value = value.get(*key).cloned().ok_or_else(missing)?;
                }
                Ok(value)
            }
        },
        _ => Ok(template.clone()),
    }
}
