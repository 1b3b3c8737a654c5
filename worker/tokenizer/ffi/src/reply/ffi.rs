// SPDX-License-Identifier: Apache-2.0
//! C ABI of replies, as that of tokenizers in lib.rs.
use crate::constraint::{grammar, Vocabulary};
use crate::folder::Folder;
use crate::reply::constrain::{self, Demand, FreeText, Reasoning};
use crate::reply::event::Event;
use crate::reply::forms::{self, CallForm, Form};
use crate::reply::parser::{Calls, Parser};
use crate::reply::template::{Target, Template};
use crate::{guard, put_text, slice, TxBuf};
use serde_json::Value;
use std::ffi::{c_char, CStr};
use std::path::Path;
use std::sync::Arc;

/// Parses and constrains the replies of a model; any number of replies share it.
pub struct ReplyForm {
    template: Arc<Template>,
    /// The form of the family; its template is that of the checkpoint where that has one.
    family: String,
    is_own: bool,
}

impl ReplyForm {
    /// Opens the template of a checkpoint, or that of a family's form where it is empty.
    fn open(template: &str, family: &str) -> Result<Self, String> {
        if !family.is_empty() {
            forms::form(family, "")?;
        }
        let is_own = !template.is_empty();
        let template = if is_own {
            Template::parse(template)?
        } else {
            forms::template(family)?
        };
        Ok(ReplyForm {
            template: Arc::new(template),
            family: family.into(),
            is_own,
        })
    }

    /// Returns how replies to a prompt are generated.
    fn form(&self, prompt: &str) -> Result<Form, String> {
        let family = if self.family.is_empty() {
            None
        } else {
            Some(forms::form(&self.family, prompt)?)
        };
        match family {
            Some(form) if !self.is_own => Ok(form),
            family => self.own_form(family),
        }
    }

    /// Returns the form of a checkpoint's own template: its reasoning, and the calls of the family if the template
    /// reads them.
    fn own_form(&self, family: Option<Form>) -> Result<Form, String> {
        let fields = &self.template.fields;
        let content = fields.iter().find(|field| field.target == Target::Content);
        let answer = match content.map(|field| (field.open.is_some(), field.texts.0.clone())) {
            Some((true, None)) => return Err("the answer begins with a pattern in response_template".into()),
            Some((true, Some(text))) => text,
            _ => String::new(),
        };
        let reasoning = fields.iter().find(|field| field.target == Target::Reasoning);
        let reasoning = reasoning.and_then(|field| Some((field.texts.0.clone()?, field.texts.1.clone()?)));
        let calls = family.and_then(|form| form.calls).filter(|calls| self.reads(calls, ""));
        Ok(Form {
            name: "of response_template".into(),
            calls,
            reasoning,
            answer,
        })
    }

    /// Returns whether the template parses a call of this form behind a text.
    fn reads(&self, calls: &CallForm, before: &str) -> bool {
        let call = calls
            .call
            .replace("{{name}}", "f")
            .replace("{{arguments}}", "{}")
            .replace("{{parameters}}", "");
        let mut parser = Parser::new(self.template.clone(), "", Calls::new(true, &Value::Null));
        let mut events = parser.feed(format!("{before}{}{call}{}", calls.begin, calls.end).as_bytes());
        events.extend(parser.finish());
        let expected = [
            Event::Call {
                index: 0,
                name: "f".into(),
            },
            Event::Arguments {
                index: 0,
                text: "{}".into(),
            },
        ];
        events.retain(|event| !matches!(event, Event::Content(_)));
        events == expected
    }

    /// Returns the grammar of a reply, a serialized one. `request`: {"prompt", "reasoning": the prompt ends in it} with
    /// {"kind", "text"} of a constraint, {"tools", "parallel"}, or both. With "text_too" and tools the reply may be
    /// text too.
    fn grammar(&self, vocabulary: &Vocabulary, request: &Value) -> Result<String, String> {
        let form = self.form(request["prompt"].as_str().unwrap_or_default())?;
        let reasoning = if request["reasoning"] == true {
            Reasoning::Open
        } else {
            Reasoning::Possible
        };
        let mut demand = Demand {
            tools: request["tools"].as_array().cloned(),
            parallel: request["parallel"] != false,
            answer: None,
            text: None,
        };
        if request["text_too"] == true {
            let calls = form.calls.as_ref();
            demand.text = Some(FreeText {
                excluded: self.template.texts_with_calls(),
                calls_first: calls.is_some_and(|calls| !self.reads(calls, "a ")),
            });
        }
        if let (Some(kind), Some(text)) = (request["kind"].as_u64(), request["text"].as_str()) {
            demand.answer = Some(grammar(kind as u32, text)?.grammars.remove(0));
        }
        let made = constrain::grammar(&form, reasoning, demand, vocabulary.special())?;
        serde_json::to_string(&made).map_err(|error| error.to_string())
    }
}

/// Writes `response_template` of a folder's tokenizer_config.json; empty where it has none.
/// # Safety
/// `path` is NUL-terminated; `out` and `error` are writable.
#[no_mangle]
pub unsafe extern "C" fn tx_response_template(path: *const c_char, out: *mut TxBuf, error: *mut TxBuf) -> i32 {
    guard(error, || {
        let folder = Folder::read(Path::new(CStr::from_ptr(path).to_str().map_err(|e| e.to_string())?))?;
        let template = folder
            .settings
            .get("response_template")
            .filter(|value| !value.is_null());
        put_text(out, template.map_or_else(String::new, Value::to_string));
        Ok(())
    })
}

/// Opens how a model's replies are parsed: `template`, the checkpoint's own in JSON, or where that is empty the form
/// `family`.
/// # Safety
/// `template` has `len` readable bytes, `family` is NUL-terminated, `out` and `error` are writable.
#[no_mangle]
pub unsafe extern "C" fn tx_reply_open(
    template: *const u8,
    len: usize,
    family: *const c_char,
    out: *mut *mut ReplyForm,
    error: *mut TxBuf,
) -> i32 {
    guard(error, || {
        let text = std::str::from_utf8(slice(template, len)).map_err(|e| e.to_string())?;
        let family = CStr::from_ptr(family).to_str().map_err(|e| e.to_string())?;
        *out = Box::into_raw(Box::new(ReplyForm::open(text, family)?));
        Ok(())
    })
}

/// Returns the grammar of a reply that is constrained (`ReplyForm::grammar`), a constraint of kind 4.
/// # Safety
/// `form` and `vocabulary` are open, `request` has `len` readable bytes, `out` and `error` are writable.
#[no_mangle]
pub unsafe extern "C" fn tx_reply_grammar(
    form: *const ReplyForm,
    vocabulary: *const Vocabulary,
    request: *const u8,
    len: usize,
    out: *mut TxBuf,
    error: *mut TxBuf,
) -> i32 {
    guard(error, || {
        let request = serde_json::from_slice(slice(request, len)).map_err(|e| e.to_string())?;
        put_text(out, (*form).grammar(&*vocabulary, &request)?);
        Ok(())
    })
}

/// Writes the response template of a form, or with an empty name the names of all forms, as JSON.
/// # Safety
/// `name` is NUL-terminated; `out` and `error` are writable.
#[no_mangle]
pub unsafe extern "C" fn tx_reply_form_json(name: *const c_char, out: *mut TxBuf, error: *mut TxBuf) -> i32 {
    guard(error, || {
        let name = CStr::from_ptr(name).to_str().map_err(|e| e.to_string())?;
        let value = if name.is_empty() {
            Value::from(forms::names())
        } else {
            forms::template_json(name)?
        };
        put_text(out, value.to_string());
        Ok(())
    })
}

/// # Safety
/// `form` comes from `tx_reply_open`, is freed once and no longer in use.
#[no_mangle]
pub unsafe extern "C" fn tx_reply_free(form: *mut ReplyForm) {
    if !form.is_null() {
        drop(Box::from_raw(form));
    }
}

/// Begins to parse the reply to a prompt. `tools`: the tools of the request in JSON, by which arguments are cast.
/// `calls`: calls are parsed; else they are content.
/// # Safety
/// `form` is open, `prompt` and `tools` have the given numbers of readable bytes, `out` and `error` are writable.
#[no_mangle]
pub unsafe extern "C" fn tx_parser_begin(
    form: *const ReplyForm,
    prompt: *const u8,
    prompt_len: usize,
    tools: *const u8,
    tools_len: usize,
    calls: bool,
    out: *mut *mut Parser,
    error: *mut TxBuf,
) -> i32 {
    guard(error, || {
        let prompt = String::from_utf8_lossy(slice(prompt, prompt_len));
        let tools = serde_json::from_slice(slice(tools, tools_len)).unwrap_or(Value::Null);
        let parser = Parser::new((*form).template.clone(), &prompt, Calls::new(calls, &tools));
        *out = Box::into_raw(Box::new(parser));
        Ok(())
    })
}

/// # Safety
/// `parser` comes from `tx_parser_begin`, is freed once and no longer in use.
#[no_mangle]
pub unsafe extern "C" fn tx_parser_free(parser: *mut Parser) {
    if !parser.is_null() {
        drop(Box::from_raw(parser));
    }
}

/// Returns whether the text so far ends in reasoning.
/// # Safety
/// `parser` is open.
#[no_mangle]
pub unsafe extern "C" fn tx_parser_is_reasoning(parser: *const Parser) -> bool {
    (*parser).is_reasoning()
}

/// Reads more of the reply, or ends it. `out`: events as JSON, [["content", text], ["reasoning", text],
/// ["call", index, name], ["arguments", index, text]].
/// # Safety
/// `parser` is used by no other thread, `text` has `len` readable bytes, `out` and `error` are writable.
#[no_mangle]
pub unsafe extern "C" fn tx_parser_feed(
    parser: *mut Parser,
    text: *const u8,
    len: usize,
    ends: bool,
    out: *mut TxBuf,
    error: *mut TxBuf,
) -> i32 {
    guard(error, || {
        let mut events = (*parser).feed(slice(text, len));
        if ends {
            events.extend((*parser).finish());
        }
        put_text(out, Value::from_iter(events.iter().map(Event::to_json)).to_string());
        Ok(())
    })
}
