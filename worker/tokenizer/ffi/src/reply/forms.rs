// SPDX-License-Identifier: Apache-2.0
//! The forms of replies that checkpoints without a response template use: data in forms.json. A form is made of parts,
//! which are fields of a response template. A field's name may go on behind a colon, so that several fields are of one
//! kind. Two groups of patterns have a meaning that templates of checkpoints do not have: the region begins with the
//! group `body` of its opening pattern, and ends before the group `next` of its closing one.
use crate::reply::template::Template;
use serde_json::{json, Map, Value};
use std::sync::OnceLock;

fn data() -> &'static Value {
    static DATA: OnceLock<Value> = OnceLock::new();
    DATA.get_or_init(|| serde_json::from_str(include_str!("forms.json")).unwrap_or_default())
}

/// The texts of a generated call, with {{name}}, {{arguments}} and {{parameters}}.
#[derive(Clone, Debug)]
pub struct CallForm {
    pub begin: String,
    pub call: String,
    /// Nothing: one call only.
    pub between: Option<String>,
    pub end: String,
    /// The texts around a parameter's value; the first has {{key}}.
    pub parameter: Option<(String, String)>,
}

impl CallForm {
    /// Returns the text of a call before its first placeholder.
    pub fn head(&self) -> &str {
        self.call.split("{{").next().unwrap_or_default()
    }
}

/// The texts of a reply that has to follow a constraint.
#[derive(Clone, Debug)]
pub struct Form {
    pub name: String,
    pub calls: Option<CallForm>,
    /// The texts around reasoning.
    pub reasoning: Option<(String, String)>,
    /// The text before the answer.
    pub answer: String,
}

/// Returns the names of all forms.
pub fn names() -> Vec<&'static str> {
    let forms = data()["forms"].as_object();
    forms
        .map(|forms| forms.keys().map(String::as_str).collect())
        .unwrap_or_default()
}

fn section(name: &str) -> Result<&'static Value, String> {
    let known = || format!("there is no form of replies {name}; there are {}", names().join(", "));
    data()["forms"].get(name).ok_or_else(known)
}

fn texts(value: &Value) -> impl Iterator<Item = &str> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str)
}

/// Returns the response template of a form.
pub fn template_json(name: &str) -> Result<Value, String> {
    let form = section(name)?;
    let mut fields = Map::new();
    for part in texts(&form["parts"]) {
        fields.extend(data()["parts"][part].as_object().cloned().unwrap_or_default());
    }
    Ok(json!({"start_anchor": form["start_anchor"], "fields": fields}))
}

pub fn template(name: &str) -> Result<Template, String> {
    Template::new(&template_json(name)?)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_string()
}

fn pair(value: &Value) -> Option<(String, String)> {
    let both: Vec<&str> = texts(value).collect();
    (both.len() == 2).then(|| (both[0].to_string(), both[1].to_string()))
}

/// Returns how replies of a form to a prompt are generated: the first kind of calls whose mark the prompt has.
pub fn form(name: &str, prompt: &str) -> Result<Form, String> {
    let section = section(name)?;
    let mut kinds = texts(&section["calls"]).map(|kind| &data()["calls"][kind]);
    let calls = kinds.find(|kind| kind["when"].as_str().is_none_or(|mark| prompt.contains(mark)));
    Ok(Form {
        name: name.into(),
        reasoning: pair(&section["reasoning"]),
        answer: text(&section["answer"]),
        calls: calls.map(|kind| CallForm {
            begin: text(&kind["begin"]),
            call: text(&kind["call"]),
            between: kind["between"].as_str().map(str::to_string),
            end: text(&kind["end"]),
            parameter: pair(&kind["parameter"]),
        }),
    })
}
