// SPDX-License-Identifier: Apache-2.0
//! Chat templates: renders a checkpoint's Jinja template as transformers' `apply_chat_template` does, with the same
//! environment, by minijinja.
use crate::folder::{self, Folder};
use crate::gguf::Metadata;
use crate::python::{self, Json};
use crate::tokenizer_classes;
use minijinja::value::{Kwargs, Rest, Serde, Value, ValueKind};
use minijinja::{context, Environment, Error, ErrorKind, State};
use serde_json::{Map, Value as Data};
use std::path::Path;

/// Limit of the steps of one rendering; real templates take a few hundred per message.
const FUEL: u64 = 20_000_000;
const TAG: &str = "CONTINUE_FINAL_MESSAGE_TAG ";
/// Keys of a message's reasoning; the first is the standard one.
const REASONING: [&str; 3] = ["reasoning_content", "thinking", "reasoning"];

pub struct Chat {
    environment: Environment<'static>,
    /// Special tokens such as bos_token, which templates read.
    tokens: Map<String, Data>,
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, message.into())
}

/// The error of a template's raise_exception.
#[derive(Debug)]
struct Raised(String);
impl std::fmt::Display for Raised {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}
impl std::error::Error for Raised {}

fn raise_exception(message: String) -> Result<Value, Error> {
    Err(invalid(message.clone()).with_source(Raised(message)))
}

fn to_json(value: &Value, given: Rest<Value>, named: Kwargs) -> Result<Value, Error> {
    let argument = |i: usize, name: &str| -> Option<Value> {
        let found = given
            .get(i)
            .cloned()
            .or_else(|| named.get::<Option<Value>>(name).ok().flatten());
        found.filter(|v| !v.is_none() && !v.is_undefined())
    };
    let indent = argument(1, "indent").map(|v| {
        v.as_str().map_or_else(
            || " ".repeat(usize::try_from(v.clone()).unwrap_or(0).min(64)),
            str::to_string,
        )
    });
    let separators: Vec<String> = argument(2, "separators").map_or(vec![], |v| {
        v.try_iter().into_iter().flatten().map(|s| python::text(&s)).collect()
    });
    let spaced = if indent.is_some() { "," } else { ", " };
    let json = Json {
        ascii: argument(0, "ensure_ascii").is_some_and(|v| v.is_true()),
        item_separator: separators.first().map_or(spaced, |s| s).to_string(),
        key_separator: separators.get(1).map_or(": ", |s| s).to_string(),
        sort_keys: argument(3, "sort_keys").is_some_and(|v| v.is_true()),
        indent,
    };
    named.assert_all_used()?;
    let mut out = String::new();
    json.write(value, 0, &mut out).map_err(invalid)?;
    Ok(Value::from_safe_string(out))
}

/// Implements methods of Python's types that minijinja's own set lacks.
fn method(state: &mut State, value: &Value, name: &str, arguments: &[Value]) -> Result<Value, Error> {
    if let (Some(text), Some(part)) = (value.as_str(), arguments.first().and_then(|a| a.as_str())) {
        match name {
            "removeprefix" => return Ok(text.strip_prefix(part).unwrap_or(text).into()),
            "removesuffix" => return Ok(text.strip_suffix(part).unwrap_or(text).into()),
            "rsplit" => {
                let most = arguments.get(1).and_then(|a| usize::try_from(a.clone()).ok());
                let mut parts: Vec<&str> =
                    most.map_or_else(|| text.rsplit(part).collect(), |n| text.rsplitn(n + 1, part).collect());
                parts.reverse();
                return Ok(parts.into_iter().map(Value::from).collect());
            }
            _ => {}
        }
    }
    match (value.as_str(), name) {
        (Some(text), "title") if arguments.is_empty() => Ok(title(text).into()),
        _ => minijinja_contrib::pycompat::unknown_method_callback(state, value, name, arguments),
    }
}

/// Implements Python's str.title: a letter that follows a non-letter becomes upper case.
fn title(text: &str) -> String {
    let mut inside = false;
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if inside {
            out.extend(c.to_lowercase())
        } else {
            out.extend(c.to_uppercase())
        }
        inside = c.is_alphabetic();
    }
    out
}

fn environment() -> Result<Environment<'static>, Error> {
    let mut environment = Environment::new();
    environment.set_syntax(
        minijinja::syntax::SyntaxConfig::builder()
            .trim_blocks(true)
            .lstrip_blocks(true)
            .build()?,
    );
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    environment.set_unknown_method_callback(method);
    environment.set_fuel(Some(FUEL));
    environment.set_formatter(|out, _, value| out.write_str(&python::text(value)).map_err(Error::from));
    environment.add_function("raise_exception", raise_exception);
    environment.add_filter("tojson", to_json);
    environment.add_filter("string", |value: &Value| python::text(value));
    // In Jinja a Python string, list or dict is a sequence.
    environment.add_test("sequence", |value: &Value| {
        matches!(value.kind(), ValueKind::Seq | ValueKind::String | ValueKind::Map)
    });
    environment.add_test("iterable", |value: &Value| {
        matches!(
            value.kind(),
            ValueKind::Seq | ValueKind::String | ValueKind::Map | ValueKind::Iterable | ValueKind::Undefined
        )
    });
    Ok(environment)
}

/// Removes {% generation %}, with which transformers marks assistant text; the text between is kept.
fn without_marks(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(begin) = rest.find("{%") {
        let Some(length) = rest[begin..].find("%}") else { break };
        let block = &rest[begin..begin + length + 2];
        out.push_str(&rest[..begin]);
        match block[2..length].trim_matches(|c: char| c.is_whitespace() || c == '-' || c == '+') {
            "generation" => out.push_str(&block.replace("generation", "if true")),
            "endgeneration" => out.push_str(&block.replace("endgeneration", "endif")),
            _ => out.push_str(block),
        }
        rest = &rest[begin + length + 2..];
    }
    out.push_str(rest);
    out
}

/// Returns the templates by name, in transformers' order: chat_template.jinja with additional_chat_templates/, else the
/// template of tokenizer_config.json, else a processor's chat_template.json.
fn sources(path: &Path, folder: &Folder) -> Result<Vec<(String, String)>, String> {
    let read =
        |file: &Path| String::from_utf8(folder::read(file)?).map_err(|_| format!("{} is not UTF-8", file.display()));
    let mut found = Vec::new();
    let file = path.join("chat_template.jinja");
    if file.is_file() {
        found.push(("default".to_string(), read(&file)?));
    }
    for entry in std::fs::read_dir(path.join("additional_chat_templates"))
        .into_iter()
        .flatten()
        .flatten()
    {
        let file = entry.path();
        if let (Some(name), Some("jinja")) = (
            file.file_stem().and_then(|n| n.to_str()),
            file.extension().and_then(|e| e.to_str()),
        ) {
            found.push((name.to_string(), read(&file)?));
        }
    }
    if !found.is_empty() {
        return Ok(found);
    }
    let processor = path.join("chat_template.json");
    let of_processor: Option<Data> = if processor.is_file() {
        let data: Data = serde_json::from_slice(&folder::read(&processor)?)
            .map_err(|e| format!("{} is not JSON: {e}", processor.display()))?;
        data.get("chat_template").cloned()
    } else {
        None
    };
    match folder
        .settings
        .get("chat_template")
        .filter(|t| !t.is_null())
        .or(of_processor.as_ref())
    {
        None | Some(Data::Null) => {}
        Some(Data::String(source)) => found.push(("default".into(), source.clone())),
        Some(Data::Array(named)) => {
            for one in named {
                let text = |key| {
                    one.get(key)
                        .and_then(Data::as_str)
                        .ok_or_else(|| format!("{}: chat_template has an entry without {key}", path.display()))
                };
                found.push((text("name")?.to_string(), text("template")?.to_string()));
            }
        }
        Some(Data::Object(named)) => {
            for (name, source) in named {
                found.push((
                    name.clone(),
                    source
                        .as_str()
                        .ok_or_else(|| format!("{}: chat_template.{name} is not a string", path.display()))?
                        .to_string(),
                ));
            }
        }
        Some(_) => {
            return Err(format!(
                "{}: chat_template is neither a text nor a list of templates",
                path.display()
            ))
        }
    }
    Ok(found)
}

/// Returns the special tokens with a role and the named extra ones as strings.
fn tokens_of(folder: &Folder) -> Map<String, Data> {
    let tokenizer_class = tokenizer_classes::tokenizer_class(folder);
    let mut tokens = Map::new();
    for role in folder::ROLES {
        let default = tokenizer_class
            .and_then(|r| r.roles.iter().find(|(name, _)| *name == role))
            .map_or("", |(_, token)| token);
        if let Some(token) = folder.token(role, default) {
            tokens.insert(role.to_string(), token.content.into());
        }
    }
    for key in ["model_specific_special_tokens", "extra_special_tokens"] {
        if let Some(Data::Object(named)) = folder.settings.get(key) {
            for (name, token) in named {
                if let Some(token) = folder::token_of(token, true) {
                    tokens.insert(name.clone(), token.content.into());
                }
            }
        }
    }
    tokens
}

/// Returns a message as templates see it: without null values, its reasoning under all names.
fn message_of(message: &Data) -> Result<Map<String, Data>, String> {
    let given = message.as_object().ok_or("a message is not a JSON object")?;
    let message: Map<String, Data> = given
        .iter()
        .filter(|(_, v)| !v.is_null())
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect();
    let Some(reasoning) = REASONING.iter().find_map(|key| message.get(*key)).cloned() else {
        return Ok(message);
    };
    let mut message: Map<String, Data> = std::iter::once(("thinking".to_string(), reasoning.clone()))
        .chain(message)
        .collect();
    message.insert("reasoning_content".into(), reasoning);
    Ok(message)
}

impl Chat {
    /// Returns None for a folder without a template. Errors: a file that cannot be read, a template that is not Jinja.
    pub fn open(path: &Path, gguf: Option<&Metadata>) -> Result<Option<Self>, String> {
        let folder = Folder::with_gguf(path, gguf)?;
        let found = sources(path, &folder)?;
        if found.is_empty() {
            return Ok(None);
        }
        let mut environment = environment().map_err(|e| e.to_string())?;
        for (name, source) in found {
            environment
                .add_template_owned(name.clone(), without_marks(&source))
                .map_err(|e| format!("{}: chat template \"{name}\": {e:#}", path.display()))?;
        }
        Ok(Some(Chat {
            environment,
            tokens: tokens_of(&folder),
        }))
    }

    /// Renders {"messages": [...], "tools", "documents", "add_generation_prompt", "continue_final_message", "kwargs":
    /// {...}, "now": seconds, "developer_is_system"}. "developer_is_system" renames the role "developer" for a template
    /// that does not know it.
    pub fn render(&self, conversation: &Data) -> Result<String, String> {
        let messages = conversation
            .get("messages")
            .and_then(Data::as_array)
            .ok_or("messages is missing or not a list")?;
        let mut messages = messages.iter().map(message_of).collect::<Result<Vec<_>, _>>()?;
        let flag = |key: &str| conversation.get(key).and_then(Data::as_bool).unwrap_or(false);
        let tools = conversation.get("tools").unwrap_or(&Data::Null);
        let template = if tools.is_null() {
            None
        } else {
            self.environment.get_template("tool_use").ok()
        };
        let template = match template.map_or_else(|| self.environment.get_template("default"), Ok) {
            Ok(template) => template,
            Err(_) => {
                let names: Vec<&str> = self.environment.templates().map(|(name, _)| name).collect();
                return Err(format!(
                    "the model has the chat templates {} and none named default",
                    names.join(", ")
                ));
            }
        };
        if flag("developer_is_system") && !template.source().contains("developer") {
            for message in &mut messages {
                if message.get("role").is_some_and(|role| role == "developer") {
                    message.insert("role".into(), "system".into());
                }
            }
        }
        let continued = if flag("continue_final_message") {
            Some(mark_last(&mut messages)?)
        } else {
            None
        };
        let mut values = self.tokens.clone();
        values.extend(
            conversation
                .get("kwargs")
                .and_then(Data::as_object)
                .cloned()
                .unwrap_or_default(),
        );
        values.insert("messages".into(), messages.into_iter().map(Data::Object).collect());
        values.insert("tools".into(), tools.clone());
        values.insert(
            "documents".into(),
            conversation.get("documents").cloned().unwrap_or(Data::Null),
        );
        values.insert("add_generation_prompt".into(), flag("add_generation_prompt").into());
        let now = conversation.get("now").and_then(Data::as_i64).unwrap_or(0);
        let clock = Value::from_function(move |format: String| -> Result<String, Error> {
            time_text(now, &format).ok_or_else(|| invalid("strftime_now got an invalid format"))
        });
        let scope = context! { strftime_now => clock, ..Value::from(Serde(&values)) };
        let text = template.render(scope).map_err(|error| message_text(&error))?;
        match continued {
            Some(words) => cut_at_mark(text, &words),
            None => Ok(text),
        }
    }
}

/// Returns a template's own error message where it raised one, else where and why rendering failed.
fn message_text(error: &Error) -> String {
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        if let Some(raised) = inner.downcast_ref::<Raised>() {
            return raised.0.clone();
        }
        source = inner.source();
    }
    format!("{error:#}").lines().next().unwrap_or_default().to_string()
}

/// Appends a mark to the last message's text; returns the text.
fn mark_last(messages: &mut [Map<String, Data>]) -> Result<String, String> {
    let last = messages.last_mut().ok_or("there is no message to continue")?;
    match last.get_mut("content") {
        Some(Data::String(text)) => {
            let words = text.clone();
            text.push_str(TAG);
            Ok(words)
        }
        _ => Err("the last message has no text to continue".into()),
    }
}

fn cut_at_mark(text: String, words: &str) -> Result<String, String> {
    let place = text.rfind(TAG.trim_end()).filter(|_| text.contains(words.trim()));
    let place = place.ok_or("the template does not show the last message as it is, so that it cannot be continued")?;
    let cut = &text[..place];
    Ok(if text[place..].starts_with(TAG) {
        cut
    } else {
        cut.trim_end()
    }
    .to_string())
}

#[repr(C, align(8))]
struct Tm([u8; 256]);
extern "C" {
    fn localtime_r(seconds: *const i64, out: *mut Tm) -> *mut Tm;
    fn strftime(out: *mut u8, size: usize, format: *const std::ffi::c_char, time: *const Tm) -> usize;
}

/// Formats local time with C's strftime, as Python does.
fn time_text(now: i64, format: &str) -> Option<String> {
    let format = std::ffi::CString::new(format).ok().filter(|f| !f.is_empty())?;
    let (mut time, mut out) = (Tm([0; 256]), [0u8; 512]);
    // Safety: struct tm is far smaller than the buffer; strftime writes at most the size that it is given.
    let length = unsafe {
        if localtime_r(&now, &mut time).is_null() {
            return None;
        }
        strftime(out.as_mut_ptr(), out.len(), format.as_ptr(), &time)
    };
    String::from_utf8(out[..length].to_vec()).ok()
}
