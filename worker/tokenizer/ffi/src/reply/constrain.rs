// SPDX-License-Identifier: Apache-2.0
//! Grammars of replies that have to be calls of tools, or to follow a schema once their reasoning has ended.
use crate::reply::forms::{CallForm, Form};
use llguidance::api::{GrammarWithLexer, TopLevelGrammar};
use serde_json::{json, Map, Value};
use std::fmt::Write;

/// The demand on a reply: its answer follows a grammar, or it calls some of these tools, once unless `parallel`. One
/// of both with both.
#[derive(Default)]
pub struct Demand {
    pub answer: Option<GrammarWithLexer>,
    pub tools: Option<Vec<Value>>,
    pub parallel: bool,
    /// Text may come before the calls, or in place of them. Only the arguments of strict tools follow their schema.
    pub text: Option<FreeText>,
}

/// The text of a reply that decides itself whether it calls tools.
pub struct FreeText {
    /// The regular expression of what it may not be: texts in which a call begins.
    pub excluded: Option<String>,
    /// Calls are read at the beginning of a reply only.
    pub calls_first: bool,
}

/// The state in which the prompt leaves the reply.
#[derive(Clone, Copy, PartialEq)]
pub enum Reasoning {
    /// The reply begins in reasoning, which has to end first.
    Open,
    /// The reply may begin with reasoning.
    Possible,
}

/// Makes the rules of one reply.
struct Rules<'a> {
    special: &'a [(String, u32)],
    lark: String,
    grammars: Vec<GrammarWithLexer>,
}

/// A text of JSON is a text of Lark.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

fn named(name: String, schema: Value) -> Result<GrammarWithLexer, String> {
    let mut made = crate::json_schema::json_schema(&schema.to_string())?.grammars.remove(0);
    if let Some(schema) = &made.json_schema {
        crate::json_schema::check_schema(schema)?;
    }
    made.name = Some(name);
    Ok(made)
}

/// Returns a regular expression as Lark writes it: between slashes, on one line.
fn regex_literal(pattern: &str) -> String {
    let mut literal = String::from("/");
    let mut characters = pattern.chars();
    while let Some(c) = characters.next() {
        match c {
            '\\' => {
                literal.push(c);
                literal.extend(characters.next());
            }
            '/' => literal.push_str("\\/"),
            '\n' => literal.push_str("\\n"),
            _ => literal.push(c),
        }
    }
    literal + "/"
}

fn as_object(mut schema: Value) -> Value {
    if let Some(object) = schema.as_object_mut() {
        object.entry("type").or_insert_with(|| "object".into());
    }
    schema
}

/// Keys of a schema that a text in plain form need not be checked for.
const SOFT: [&str; 7] = [
    "type",
    "title",
    "description",
    "default",
    "examples",
    "nullable",
    "enum",
];

impl Rules<'_> {
    /// Returns a text as an expression in which special tokens stand for themselves.
    fn literal(&self, text: &str) -> String {
        let mut parts: Vec<String> = Vec::new();
        let mut rest = text;
        while let Some((at, name, id)) = self.first_special(rest) {
            if at > 0 {
                parts.push(quoted(&rest[..at]));
            }
            parts.push(format!("<[{id}]>"));
            rest = &rest[at + name.len()..];
        }
        if !rest.is_empty() {
            parts.push(quoted(rest));
        }
        parts.join(" ")
    }

    /// Returns the first special token of a text, the longest of several.
    fn first_special(&self, text: &str) -> Option<(usize, &str, u32)> {
        let found = self
            .special
            .iter()
            .filter_map(|(name, id)| Some((text.find(name.as_str())?, name.as_str(), *id)));
        found.min_by_key(|(at, name, _)| (*at, usize::MAX - name.len()))
    }

    fn rule(&mut self, name: &str, body: &str) {
        let _ = writeln!(self.lark, "{name}: {body}");
    }

    /// Writes the rule of text up to a delimiter and with it. Whitespace before it belongs to the text, that behind it
    /// is optional.
    fn text_until(&mut self, name: &str, close: &str) {
        let core = close.trim();
        let (first, rest) = match self.first_special(core) {
            Some((0, token, _)) => (String::new(), core[token.len()..].to_string() + "\0" + token),
            Some((at, _, _)) => (core[..at].to_string(), core[at..].to_string()),
            None => (core.to_string(), String::new()),
        };
        if first.is_empty() {
            let (after, token) = rest.split_once('\0').unwrap_or_default();
            let close = self.literal(&format!("{token}{after}"));
            self.rule(name, &format!("/(?s:.*)/ {close} /[ \\n]{{1,4}}/?"));
            return;
        }
        let tail = self.literal(&rest);
        self.rule(&format!("{name}_text[lazy]"), &format!("/(?s:.*)/ {}", quoted(&first)));
        self.rule(name, &format!("{name}_text {tail} /[ \\n]{{1,4}}/?"));
    }

    fn reasoning(&mut self, form: &Form, reasoning: Reasoning) -> Result<String, String> {
        match (&form.reasoning, reasoning) {
            (None, Reasoning::Possible) => Ok(String::new()),
            (None, Reasoning::Open) => Err(format!(
                "the prompt ends in reasoning, and the form {} does not say how it ends",
                form.name
            )),
            (Some((open, close)), _) => {
                self.text_until("reasoning", close);
                if reasoning == Reasoning::Open {
                    return Ok("reasoning ".into());
                }
                Ok(format!("({} reasoning)? ", self.literal(open)))
            }
        }
    }

    /// Adds the grammar of a schema. Returns its reference.
    fn schema(&mut self, name: &str, schema: Value) -> Result<String, String> {
        self.grammars.push(named(name.to_string(), schema)?);
        Ok(format!("@{name}"))
    }

    /// Writes the rules of one call: call_N, and rest_N without the text before the name. Arguments of a tool that is not
    /// strict are any where they need not follow its schema (`held`), or where it cannot be held.
    fn call(&mut self, number: usize, form: &CallForm, tool: &Value, held: bool) -> Result<String, String> {
        let function = tool.get("function").unwrap_or(tool);
        let name = function
            .get("name")
            .and_then(Value::as_str)
            .ok_or("a tool has no name")?;
        let none = json!({"type": "object", "properties": {}, "additionalProperties": false});
        let parameters = function
            .get("parameters")
            .filter(|schema| !schema.is_null())
            .unwrap_or(&none);
        // in a text of JSON the name is written as JSON has it
        let spelled = if form.call.contains("\"{{name}}\"") {
            quoted(name).trim_matches('"').to_string()
        } else {
            name.to_string()
        };
        let call = form.call.replace("{{name}}", &spelled);
        let marks = [("{{arguments}}", false), ("{{parameters}}", true)];
        let Some((mark, is_list)) = marks.into_iter().find(|(mark, _)| call.contains(mark)) else {
            return Err("the form has no place for arguments".into());
        };
        let (before, after) = call.split_once(mark).unwrap_or_default();
        let rule = format!("call_{number}");
        let rest = |rules: &mut Self, middle: &str| {
            let own = rules.literal(before.strip_prefix(form.head()).unwrap_or(before));
            rules.rule(&format!("rest_{number}"), &format!("{own} {middle}"));
            let head = rules.literal(form.head());
            rules.rule(&rule, &format!("{head} rest_{number}"));
        };
        let arguments = format!("arguments_{number}");
        let made = match held {
            true if is_list => self.parameters(number, form, parameters),
            true => self.schema(&arguments, as_object(parameters.clone())),
            false => Err(String::new()),
        };
        if let Err(reason) = &made {
            if function.get("strict") == Some(&Value::Bool(true)) {
                return Err(format!("the tool {name}: {reason}"));
            }
            if is_list {
                self.text_until(&arguments, after);
                rest(self, &arguments);
                return Ok(rule);
            }
        }
        let middle = match made {
            Ok(middle) => middle,
            Err(_) => self.schema(&arguments, as_object(json!({})))?,
        };
        let after = self.literal(after);
        rest(self, &format!("{middle} {after}"));
        Ok(rule)
    }

    /// Writes the rules of parameters that are not JSON, in the order of the schema.
    fn parameters(&mut self, number: usize, form: &CallForm, schema: &Value) -> Result<String, String> {
        let (open, close) = form.parameter.as_ref().ok_or("the form has no parameters")?;
        let known = [
            "type",
            "properties",
            "required",
            "additionalProperties",
            "title",
            "description",
            "$schema",
        ];
        let object = schema.as_object().ok_or("parameters is no object")?;
        if let Some(key) = object.keys().find(|key| !known.contains(&key.as_str())) {
            return Err(format!(
                "{key} of parameters is not supported in this model's form of calls"
            ));
        }
        if schema.to_string().contains("\"$ref\"") {
            return Err("$ref is not supported in this model's form of calls".into());
        }
        let none = Map::new();
        let properties = object.get("properties").and_then(Value::as_object).unwrap_or(&none);
        let required: Vec<&str> = object
            .get("required")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        if let Some(missing) = required.iter().find(|key| !properties.contains_key(**key)) {
            return Err(format!("required names {missing}, which properties does not have"));
        }
        let mut all = String::new();
        for (at, (key, schema)) in properties.iter().enumerate() {
            let rule = format!("parameter_{number}_{at}");
            let value = self
                .value(&rule, schema, close)
                .map_err(|reason| format!("the parameter {key}: {reason}"))?;
            let body = format!("{} {value}", self.literal(&open.replace("{{key}}", key)));
            self.rule(&rule, &body);
            all += &rule;
            all += if required.contains(&key.as_str()) { " " } else { "? " };
        }
        Ok(all)
    }

    /// Returns the expression of a value with the text behind it.
    fn value(&mut self, rule: &str, schema: &Value, close: &str) -> Result<String, String> {
        let mut types = Vec::new();
        crate::reply::cast::types_of(schema, 0, &mut types);
        let is_text = types.is_empty() || types.iter().any(|one| one == "string");
        if !is_text {
            let value = self.schema(&format!("{rule}_value"), schema.clone())?;
            return Ok(format!("{value} {}", self.literal(close)));
        }
        let object = schema.as_object().ok_or("its schema is no object")?;
        if let Some(key) = object
            .keys()
            .find(|key| !SOFT.contains(&key.as_str()) && key.as_str() != "anyOf")
        {
            return Err(format!(
                "{key} of a text is not supported in this model's form of calls"
            ));
        }
        if let Some(values) = object.get("enum").and_then(Value::as_array) {
            let texts: Option<Vec<&str>> = values.iter().map(Value::as_str).collect();
            let texts = texts.ok_or("enum of texts and other values is not supported in this model's form of calls")?;
            let choices: Vec<String> = texts.iter().map(|text| self.literal(text)).collect();
            return Ok(format!("({}) {}", choices.join(" | "), self.literal(close)));
        }
        let core = close.trim();
        let after = &close[close.find(core).unwrap_or(0) + core.len()..];
        self.rule(&format!("{rule}_text[lazy]"), &format!("/(?s:.*)/ {}", quoted(core)));
        Ok(format!("{rule}_text {}", self.literal(after)))
    }

    /// Writes the rules of calls. Returns the expressions of the text before the first one's name, and of all behind it.
    fn calls(&mut self, form: &Form, demand: &Demand, tools: &[Value]) -> Result<(String, String), String> {
        let missing = || {
            format!(
                "the form {} of this model's replies does not say how a call is written",
                form.name
            )
        };
        let call_form = form.calls.clone().ok_or_else(missing)?;
        let mut rules = Vec::new();
        for (number, tool) in tools.iter().enumerate() {
            let strict = tool.get("function").unwrap_or(tool).get("strict");
            let held = demand.text.is_none() || strict == Some(&Value::Bool(true));
            rules.push(self.call(number, &call_form, tool, held)?);
        }
        if rules.is_empty() {
            return Err("there is no tool to call".into());
        }
        let first: Vec<String> = (0..rules.len()).map(|number| format!("rest_{number}")).collect();
        self.rule("call", &rules.join(" | "));
        self.rule("first", &first.join(" | "));
        let more = match call_form.between.as_ref().filter(|_| demand.parallel) {
            Some(between) => format!("({} call)*", self.literal(between)),
            None => String::new(),
        };
        let rest = format!("first {more} {}", self.literal(&call_form.end));
        Ok((call_form.begin.clone() + call_form.head(), rest))
    }

    /// Writes the rules of a reply that has text, calls, or both. Returns its expression.
    fn text_or_calls(&mut self, form: &Form, text: &FreeText, head: &str, rest: &str) -> String {
        let mut excluded = text.excluded.clone().into_iter().collect::<Vec<String>>();
        if text.calls_first {
            excluded.push(format!("(?s:\\s*{}.*)", regex::escape(head)));
        }
        let but = if excluded.is_empty() {
            String::new()
        } else {
            format!(" & ~{}", regex_literal(&excluded.join("|")))
        };
        self.rule("TEXT", &format!("/(?s:.*)/{but}"));
        let (answer, call) = (self.literal(&form.answer), self.literal(head));
        // text before a call would end an answer that has a delimiter of its own
        if text.calls_first || !form.answer.is_empty() {
            return format!("{answer} TEXT | {call} {rest}");
        }
        let before = self.first_special(head).map_or(head.len(), |(at, _, _)| at);
        if before == 0 {
            return format!("TEXT ({call} {rest})?");
        }
        self.rule("opened[lazy]", &format!("TEXT {}", quoted(&head[..before])));
        let call = self.literal(&head[before..]);
        format!("opened {call} {rest} | TEXT")
    }
}

/// Returns the grammar of a reply. `special`: the tokenizer's special tokens.
pub fn grammar(
    form: &Form,
    reasoning: Reasoning,
    mut demand: Demand,
    special: &[(String, u32)],
) -> Result<TopLevelGrammar, String> {
    let mut rules = Rules {
        special,
        lark: String::new(),
        grammars: Vec::new(),
    };
    let before = rules.reasoning(form, reasoning)?;
    let mut bodies = Vec::new();
    if let Some(mut answer) = demand.answer.take() {
        answer.name = Some("answer".into());
        rules.grammars.push(answer);
        bodies.push(format!("{} @answer", rules.literal(&form.answer)));
    }
    if let Some(tools) = &demand.tools {
        let (head, rest) = rules.calls(form, &demand, tools)?;
        bodies.push(match &demand.text {
            Some(text) => rules.text_or_calls(form, text, &head, &rest),
            None => format!("{} {rest}", rules.literal(&head)),
        });
    }
    rules.rule("reply", &bodies.join(" | "));
    let main = format!("start: {before}reply\n{}", rules.lark);
    let mut grammars = vec![GrammarWithLexer {
        lark_grammar: Some(main),
        ..GrammarWithLexer::default()
    }];
    grammars.extend(rules.grammars);
    Ok(TopLevelGrammar {
        grammars,
        max_tokens: None,
    })
}
