// SPDX-License-Identifier: Apache-2.0
//! JSON Schemas as llguidance has to read them: what it does not know or reads differently is written in another way,
//! what it would hold only in part is refused.
use crate::constraint::limits;
use crate::json_pattern::translate;
use crate::schema_numbers;
use llguidance::api::TopLevelGrammar;
use llguidance::{GrammarBuilder, JsonCompileOptions};
use serde_json::{json, Map, Value};

/// Whitespace between the tokens of JSON. It is bounded, because a model that once prefers it would go on to the end.
const WHITESPACE: &str = r"[\x20\x0A\x0D\x09]{1,64}";
/// The escapes of strings. With `\u` a character has two spellings, and a name could be that of a property although the
/// spelling of the property is excluded.
const ESCAPES: &str = "nrbtf\\\"";
/// Keys whose values are data.
pub const DATA: [&str; 2] = ["const", "enum"];
/// Keys whose values have a schema for each of their names.
pub const NAMED: [&str; 5] = [
    "properties",
    "patternProperties",
    "dependentSchemas",
    "$defs",
    "definitions",
];

macro_rules! date {
    () => {
        concat!(
            r"^(?:[0-9]{4}-(?:0[13-9]|1[0-2]|02-(?:[01][0-9]|2[0-8]))",
            r"|(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29)",
        )
    };
}
/// Dates and times as llguidance's formats are not: 29 February in leap years only, and no leap seconds, which only few
/// minutes have.
const FORMATS: [(&str, &str); 3] = [
    ("date", date!()),
    ("time", "^[^:]*:[^:]*:[0-5]"),
    ("date-time", concat!(date!(), "[^:]*:[^:]*:[0-5]")),
];

/// Returns why a schema that json_schema() has returned cannot be compiled.
pub fn check_schema(schema: &Value) -> Result<(), String> {
    let builder = GrammarBuilder::new(None, limits());
    let made = JsonCompileOptions::default().json_to_llg(builder, schema.clone());
    made.map(|_| ()).map_err(|error| error.to_string())
}

/// Returns the grammar of a schema, or why it cannot be held.
pub fn json_schema(text: &str) -> Result<TopLevelGrammar, String> {
    let schema = serde_json::from_str(text).map_err(|e| format!("it is not JSON: {e}"))?;
    Ok(TopLevelGrammar::from_json_schema(held_schema(schema)?))
}

/// Returns a schema as llguidance has to read it, or why it cannot be held.
pub fn held_schema(mut schema: Value) -> Result<Value, String> {
    if schema == Value::Bool(true) {
        schema = Value::Object(Default::default());
    }
    let Some(object) = schema.as_object() else {
        return Err("a schema is an object or true".into());
    };
    // llguidance's own key of options, which could relax the schema
    if object.contains_key("x-guidance") {
        return Err("x-guidance is not supported".into());
    }
    let mut references = References::default();
    references.collect(&schema);
    if references.are_ambiguous() {
        return Err("oneOf and keywords beside a $ref cannot both be held in this draft".into());
    }
    adapt(&mut schema)?;
    schema_numbers::check(&schema)?;
    JsonCompileOptions {
        whitespace_pattern: Some(WHITESPACE.into()),
        json_allowed_escapes: Some(ESCAPES.into()),
        ..JsonCompileOptions::default()
    }
    .apply_to(&mut schema);
    Ok(schema)
}

/// Rewrites a schema and all within. Values of keys that are not known are taken for schemas, because a reference may
/// name them.
fn adapt(schema: &mut Value) -> Result<(), String> {
    match schema {
        Value::Array(list) => list.iter_mut().try_for_each(adapt),
        Value::Object(object) => {
            adapt_object(object)?;
            for (key, value) in object.iter_mut() {
                match value {
                    Value::Object(named) if NAMED.contains(&key.as_str()) => named.values_mut().try_for_each(adapt)?,
                    _ if DATA.contains(&key.as_str()) => check_texts(value)?,
                    _ => adapt(value)?,
                }
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

fn adapt_object(object: &mut Map<String, Value>) -> Result<(), String> {
    // data that no constraint reads
    object.shift_remove("default");
    object.shift_remove("examples");
    if object.get("$ref").and_then(Value::as_str).is_some_and(refers_to_data) {
        return Err("a $ref names a constant".into());
    }
    // zod writes it for records
    let open = object.get("propertyNames").is_some_and(|names| match names {
        Value::Bool(any) => *any,
        Value::Object(keys) => keys.iter().all(|(key, value)| key == "type" && value == "string"),
        _ => false,
    });
    if open {
        object.shift_remove("propertyNames");
    }
    if let Some(Value::String(pattern)) = object.get_mut("pattern") {
        *pattern = translate(pattern)?;
    }
    if let Some(Value::Object(named)) = object.get_mut("patternProperties") {
        let count = named.len();
        let translated = std::mem::take(named)
            .into_iter()
            .map(|(key, value)| Ok((translate(&key)?, value)));
        *named = translated.collect::<Result<_, String>>()?;
        if named.len() < count {
            return Err("patternProperties has a pattern in two spellings".into());
        }
    }
    adapt_items(object)?;
    adapt_exclusive(object, "minimum", "exclusiveMinimum")?;
    adapt_exclusive(object, "maximum", "exclusiveMaximum")?;
    schema_numbers::adapt_range(object);
    check_count(object)?;
    adapt_format(object)
}

/// Up to draft 7 keywords beside `$ref` have no effect. They are held nevertheless, as many validators do, which narrows
/// a schema. In `oneOf` that may let values through, because a value of two schemas would be one of the other only.
#[derive(Default)]
struct References {
    old_draft: bool,
    one_of: bool,
    siblings: bool,
}

impl References {
    fn collect(&mut self, schema: &Value) {
        const ANNOTATIONS: [&str; 8] = [
            "$ref",
            "$schema",
            "$id",
            "$comment",
            "definitions",
            "$defs",
            "title",
            "description",
        ];
        match schema {
            Value::Array(list) => list.iter().for_each(|one| self.collect(one)),
            Value::Object(object) => {
                let mut beside = object.keys().filter(|key| !ANNOTATIONS.contains(&key.as_str()));
                self.siblings |= object.contains_key("$ref") && beside.next().is_some();
                for (key, value) in object {
                    self.old_draft |= key == "$schema" && value.as_str().is_some_and(|name| name.contains("/draft-0"));
                    self.one_of |= key == "oneOf";
                    self.collect(value);
                }
            }
            _ => (),
        }
    }

    fn are_ambiguous(&self) -> bool {
        self.old_draft && self.one_of && self.siblings
    }
}

/// Whether a reference names a part of a constant, which has not been adapted.
fn refers_to_data(reference: &str) -> bool {
    let pointer = reference.split_once('#').map_or("", |(_, fragment)| fragment);
    let mut named = false;
    for part in pointer.split('/').skip(1) {
        // an escape may write one of the keys
        if !named && (part.contains('%') || DATA.contains(&part)) {
            return true;
        }
        named = !named && NAMED.contains(&part);
    }
    false
}

/// Brings the keys of old drafts together, because llguidance reads those on either side of an `anyOf` or the like
/// alone. `additionalItems` beside another form of `items` has no effect, but would make it forget `prefixItems`.
fn adapt_items(object: &mut Map<String, Value>) -> Result<(), String> {
    let Some(additional) = object.shift_remove("additionalItems") else {
        return Ok(());
    };
    if !object.get("items").is_some_and(Value::is_array) {
        return Ok(());
    }
    if object.contains_key("prefixItems") {
        return Err("prefixItems and an array as items cannot both be held".into());
    }
    if let Some(items) = object.shift_remove("items") {
        object.insert("items".into(), items);
        object.insert("additionalItems".into(), additional);
    }
    Ok(())
}

/// Writes the `exclusiveMinimum: true` of draft 4 as later drafts do.
fn adapt_exclusive(object: &mut Map<String, Value>, bound: &str, exclusive: &str) -> Result<(), String> {
    let Some(Value::Bool(set)) = object.get(exclusive) else {
        return Ok(());
    };
    if !*set {
        object.shift_remove(exclusive);
        return Ok(());
    }
    let Some(value) = object.shift_remove(bound) else {
        return Err(format!("{exclusive} is true without {bound}"));
    };
    object.insert(exclusive.into(), value);
    Ok(())
}

/// Refuses `minProperties` that names which come twice would reach.
fn check_count(object: &Map<String, Value>) -> Result<(), String> {
    let Some(least) = object.get("minProperties").and_then(Value::as_u64) else {
        return Ok(());
    };
    let mut required: Vec<_> = object
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .collect();
    required.sort_by_key(|name| name.as_str());
    required.dedup();
    if least > required.len() as u64 + 1 {
        return Err("minProperties is held up to one more than the names that are required".into());
    }
    Ok(())
}

fn adapt_format(object: &mut Map<String, Value>) -> Result<(), String> {
    let format = object.get("format").and_then(Value::as_str);
    let Some((_, pattern)) = FORMATS.iter().find(|(name, _)| Some(*name) == format) else {
        return Ok(());
    };
    if !object.contains_key("pattern") {
        object.insert("pattern".into(), (*pattern).into());
        return Ok(());
    }
    let Value::Array(all) = object.entry("allOf").or_insert_with(|| json!([])) else {
        return Err("allOf must be an array".into());
    };
    all.push(json!({"pattern": pattern}));
    Ok(())
}

/// Refuses texts with control characters that have no escape of their own: none of ESCAPES writes them.
fn check_texts(data: &Value) -> Result<(), String> {
    match data {
        Value::String(text) => match text
            .chars()
            .find(|c| c.is_ascii_control() && !"\n\r\t\x08\x0c".contains(*c))
        {
            Some(c) => Err(format!("a constant has the control character U+{:04X}", c as u32)),
            None => Ok(()),
        },
        Value::Array(list) => list.iter().try_for_each(check_texts),
        Value::Object(named) => named.values().try_for_each(check_texts),
        _ => Ok(()),
    }
}
