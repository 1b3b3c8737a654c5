// SPDX-License-Identifier: Apache-2.0
//! Response templates: what the delimiters of a reply are and how its regions become a message. The format is that of
//! `response_template` in tokenizer_config.json (transformers, utils/chat_parsing/response_templates.py).
use crate::reply::content::{placeholder, transform, Captures, Content};
use crate::reply::pattern::{containing, Pattern};
use serde_json::{Map, Value};

const MAX_BYTES: usize = 64 << 10;
const MAX_FIELDS: usize = 16;
const TEMPLATE_KEYS: [&str; 5] = ["version", "defaults", "fields", "start_anchor", "start_anchor_pattern"];
const FIELD_KEYS: [&str; 11] = [
    "open",
    "open_pattern",
    "close",
    "close_pattern",
    "content",
    "content_args",
    "repeats",
    "join",
    "optional",
    "transform",
    "transform_each",
];
const REASONING: [&str; 3] = ["reasoning_content", "reasoning", "thinking"];

/// The use of a region.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Target {
    Content,
    Reasoning,
    Calls,
    /// A field that no message has.
    Dropped,
}

/// The way in which a region of calls is passed on while it grows.
#[derive(Clone, Debug)]
pub enum Streaming {
    /// Not at all.
    Whole,
    /// The region is the arguments; its delimiter has the name in this group.
    Arguments { name: String },
    /// The region is an object, or an array of objects, with these keys.
    Objects { name: String, arguments: Vec<String> },
}

pub struct Field {
    pub name: String,
    pub target: Target,
    pub open: Option<Pattern>,
    pub close: Option<Pattern>,
    /// The first texts of the delimiters, where they are no patterns.
    pub texts: (Option<String>, Option<String>),
    pub content: Content,
    pub join: Option<String>,
    pub streaming: Streaming,
    transform: Option<Value>,
    each: bool,
}

pub struct Template {
    pub fields: Vec<Field>,
    /// The field of the text outside of the others.
    pub implicit: Option<usize>,
    anchor: Pattern,
}

fn delimiter(section: &Map<String, Value>, literal: &str, pattern: &str) -> Result<Option<Pattern>, String> {
    match (section.get(literal), section.get(pattern)) {
        (None, None) => Ok(None),
        (Some(_), Some(_)) => Err(format!("{literal} and {pattern} exclude each other")),
        (None, Some(Value::String(text))) => Pattern::new(text).map(Some),
        (None, Some(other)) => Err(format!("{pattern} is {other}; a text is expected")),
        (Some(value), None) => {
            let texts: Option<Vec<String>> = match value {
                Value::String(text) => Some(vec![text.clone()]),
                Value::Array(items) => items.iter().map(|item| item.as_str().map(str::to_string)).collect(),
                _ => None,
            };
            let texts = texts.filter(|texts| !texts.is_empty() && !texts.iter().any(String::is_empty));
            let wanted = || format!("{literal} is {value}; a text or a list of texts, none of them empty, is expected");
            Pattern::literals(&texts.ok_or_else(wanted)?).map(Some)
        }
    }
}

fn refuse_unknown(section: &Map<String, Value>, known: &[&str]) -> Result<(), String> {
    match section.keys().find(|key| !known.contains(&key.as_str())) {
        Some(key) => Err(format!("the key {key} is not known; there are {}", known.join(", "))),
        None => Ok(()),
    }
}

fn boolean(section: &Map<String, Value>, key: &str, default: bool) -> Result<bool, String> {
    match section.get(key) {
        None => Ok(default),
        Some(Value::Bool(value)) => Ok(*value),
        Some(other) => Err(format!("{key} is {other}; true or false is expected")),
    }
}

/// Refuses texts that mix a placeholder with other text.
fn check_transform(value: &Value) -> Result<(), String> {
    match value {
        Value::Object(map) => map.values().try_for_each(check_transform),
        Value::Array(items) => items.iter().try_for_each(check_transform),
        Value::String(text) if placeholder(text).is_none() => {
            let inner = text.split('{').skip(1).filter_map(|rest| rest.split_once('}'));
            let mixed = inner
                .map(|(name, _)| format!("{{{name}}}"))
                .any(|one| placeholder(&one).is_some());
            if mixed {
                return Err(format!("the transform {text:?} mixes a placeholder with other text"));
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Returns how calls of a transform can be passed on while they grow.
fn streaming(content: &Content, shape: Option<&Value>, each: bool) -> Streaming {
    let plain = matches!(content, Content::Json(dialect) if dialect.is_plain());
    let Some(function) = shape.and_then(|shape| shape.get("function")).filter(|_| plain) else {
        return Streaming::Whole;
    };
    let usual = || Streaming::Objects {
        name: "name".into(),
        arguments: vec!["arguments".into(), "parameters".into()],
    };
    if let Value::String(text) = function {
        return if text == "{content}" && !each {
            usual()
        } else {
            Streaming::Whole
        };
    }
    let path = |key: &str| function.get(key).and_then(Value::as_str).and_then(placeholder);
    match (path("name").as_deref(), path("arguments").as_deref()) {
        (Some([name]), Some(["content"])) if !each => Streaming::Arguments { name: name.to_string() },
        (Some(["content", name]), Some(["content", arguments])) if !each => Streaming::Objects {
            name: name.to_string(),
            arguments: vec![arguments.to_string()],
        },
        (Some([name]), Some([arguments])) if each => Streaming::Objects {
            name: name.to_string(),
            arguments: vec![arguments.to_string()],
        },
        _ => Streaming::Whole,
    }
}

/// Returns the text of a delimiter, the first of several.
fn first_text(value: Option<&Value>) -> Option<String> {
    let value = value?;
    value
        .as_array()
        .map_or(Some(value), |texts| texts.first())?
        .as_str()
        .map(str::to_string)
}

impl Field {
    fn new(name: &str, section: &Map<String, Value>) -> Result<Self, String> {
        refuse_unknown(section, &FIELD_KEYS)?;
        let none = Map::new();
        let options = section.get("content_args").and_then(Value::as_object).unwrap_or(&none);
        let kind = section.get("content").map_or(Some("text"), Value::as_str);
        let content = Content::new(kind.ok_or("content is no text")?, options, 0)?;
        let shape = section.get("transform").filter(|shape| !shape.is_null());
        let each = boolean(section, "transform_each", false)?;
        if each && shape.is_none() {
            return Err("transform_each needs a transform".into());
        }
        shape.map_or(Ok(()), check_transform)?;
        let repeats = boolean(section, "repeats", false)?;
        let join = match section.get("join") {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) if repeats => Some(text.clone()),
            Some(other) => return Err(format!("join is {other}; a text beside repeats: true is expected")),
        };
        let open = delimiter(section, "open", "open_pattern")?;
        let close = delimiter(section, "close", "close_pattern")?;
        let group = open.iter().chain(&close).flat_map(Pattern::group_names).next();
        if let (None, Some(group)) = (shape, group) {
            return Err(format!(
                "the group {group} of its pattern has no use without a transform"
            ));
        }
        let target = match name.split(':').next().unwrap_or_default() {
            "content" => Target::Content,
            "tool_calls" => Target::Calls,
            other if REASONING.contains(&other) => Target::Reasoning,
            _ => Target::Dropped,
        };
        Ok(Field {
            name: name.into(),
            target,
            streaming: streaming(&content, shape, each),
            texts: (first_text(section.get("open")), first_text(section.get("close"))),
            open,
            close,
            content,
            join,
            transform: shape.cloned(),
            each,
        })
    }

    /// Returns the value of a region.
    pub fn value(&self, body: &str, captures: &Captures) -> Result<Value, String> {
        let content = self.content.parse(body)?;
        let Some(template) = &self.transform else {
            return Ok(content);
        };
        let captured = |name: &str| {
            let found = captures.iter().find(|(group, _)| group == name);
            found.map(|(_, text)| Value::from(text.as_str()))
        };
        if !self.each {
            let scope = |name: &str| {
                if name == "content" {
                    Some(content.clone())
                } else {
                    captured(name)
                }
            };
            return transform(template, &scope);
        }
        let items = content.as_array().ok_or("it is no list")?;
        let filled = items.iter().map(|item| {
            let item = item.as_object().ok_or("an element is no object")?;
            transform(template, &|name: &str| {
                item.get(name).cloned().or_else(|| captured(name))
            })
        });
        filled.collect::<Result<Vec<_>, String>>().map(Value::Array)
    }
}

impl Template {
    /// Returns a regular expression of the texts in which a call begins; nothing where none ever does.
    pub fn texts_with_calls(&self) -> Option<String> {
        let calls = self.fields.iter().filter(|field| field.target == Target::Calls);
        containing(calls.filter_map(|field| field.open.as_ref()))
    }

    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() > MAX_BYTES {
            return Err(format!("it has {} bytes; at most {MAX_BYTES} are read", text.len()));
        }
        let value: Value = serde_json::from_str(text).map_err(|error| format!("it is not JSON: {error}"))?;
        Template::new(&value)
    }

    pub fn new(value: &Value) -> Result<Self, String> {
        let template = value.as_object().ok_or("it is no object")?;
        refuse_unknown(template, &TEMPLATE_KEYS)?;
        let version = template.get("version").map_or(Some(1), Value::as_i64);
        if version != Some(1) {
            return Err(format!("version is {}; 1 is supported", template["version"]));
        }
        if template.get("defaults").is_some_and(|defaults| !defaults.is_object()) {
            return Err("defaults is no object".into());
        }
        let sections = template
            .get("fields")
            .and_then(Value::as_object)
            .filter(|fields| !fields.is_empty());
        let sections = sections.ok_or("fields is missing; an object of at least one field is expected")?;
        if sections.len() > MAX_FIELDS {
            return Err(format!(
                "it has {} fields; at most {MAX_FIELDS} are read",
                sections.len()
            ));
        }
        let mut fields = Vec::new();
        for (name, section) in sections {
            let section = section
                .as_object()
                .ok_or_else(|| format!("the field {name} is no object"))?;
            fields.push(Field::new(name, section).map_err(|reason| format!("the field {name}: {reason}"))?);
        }
        let mut without_open = fields.iter().enumerate().filter(|(_, field)| field.open.is_none());
        let implicit = without_open.next().map(|(index, _)| index);
        if let (Some(_), Some((_, second))) = (implicit, without_open.next()) {
            return Err(format!(
                "the field {} is the second without open or open_pattern",
                second.name
            ));
        }
        let anchor = delimiter(template, "start_anchor", "start_anchor_pattern")?;
        Ok(Template {
            implicit,
            anchor: anchor.ok_or("start_anchor is missing; a text or start_anchor_pattern is expected")?,
            fields,
        })
    }

    /// Returns what a prompt already has of the reply: the text behind the last anchor. A prompt without one has
    /// nothing of it.
    pub fn started_reply<'a>(&self, prompt: &'a str) -> &'a str {
        self.anchor.last_end(prompt).map_or("", |end| &prompt[end..])
    }
}
