// SPDX-License-Identifier: Apache-2.0
//! Casts the arguments of a tool call that are text by the tool's JSON Schema, as transformers'
//! utils/chat_parsing/response_parser.py does.
use crate::python_text::strip;
use serde_json::{Map, Number, Value};

/// Schemas nest in anyOf and oneOf; deeper ones declare nothing.
const MAX_DEPTH: usize = 16;

/// Returns the declared types in their order.
pub fn types_of(schema: &Value, depth: usize, types: &mut Vec<String>) {
    let Some(schema) = schema.as_object().filter(|_| depth < MAX_DEPTH) else {
        return;
    };
    match schema.get("type") {
        Some(Value::String(one)) => types.push(one.clone()),
        Some(Value::Array(several)) => types.extend(several.iter().filter_map(Value::as_str).map(str::to_string)),
        _ => {}
    }
    for union in ["anyOf", "oneOf"] {
        for choice in schema.get(union).and_then(Value::as_array).into_iter().flatten() {
            types_of(choice, depth + 1, types);
        }
    }
    if schema.get("nullable").and_then(Value::as_bool) == Some(true) && !types.iter().any(|one| one == "null") {
        types.push("null".into());
    }
}

/// Removes the underscores that Python allows between digits. Returns nothing where one stands elsewhere.
fn digits(text: &str) -> Option<String> {
    let text = strip(text);
    let bytes = text.as_bytes();
    let inner =
        |at: usize| at > 0 && at + 1 < bytes.len() && bytes[at - 1].is_ascii_digit() && bytes[at + 1].is_ascii_digit();
    let sound = (0..bytes.len()).all(|at| bytes[at] != b'_' || inner(at));
    (sound && text.is_ascii()).then(|| text.replace('_', ""))
}

/// Python's float().
pub fn float(text: &str) -> Option<f64> {
    digits(text)?.parse().ok()
}

/// Python's int(), of numbers that JSON can hold here.
pub fn int(text: &str) -> Option<i64> {
    digits(text)?.parse().ok()
}

fn whole(number: f64) -> Option<Value> {
    let exact = number.is_finite() && number.fract() == 0.0 && number.abs() < 9.0e18;
    exact.then(|| Value::from(number as i64))
}

fn cast_to(text: &str, name: &str) -> Option<Value> {
    let lower = strip(text).to_lowercase();
    match name {
        "integer" => int(text)
            .map(Value::from)
            .or_else(|| digits(text)?.parse::<u64>().ok().map(Value::from))
            .or_else(|| whole(float(text)?)),
        "number" => {
            let number = float(text).filter(|number| number.is_finite())?;
            let short = whole(number).filter(|_| !text.contains('.'));
            short.or_else(|| Number::from_f64(number).map(Value::Number))
        }
        "boolean" if ["true", "1"].contains(&lower.as_str()) => Some(Value::Bool(true)),
        "boolean" if ["false", "0"].contains(&lower.as_str()) => Some(Value::Bool(false)),
        "null" if ["null", "None"].contains(&strip(text)) => Some(Value::Null),
        "object" => serde_json::from_str(text).ok().filter(Value::is_object),
        "array" => serde_json::from_str(text).ok().filter(Value::is_array),
        _ => None,
    }
}

fn cast(text: &str, types: &[String]) -> Option<Value> {
    types.iter().find_map(|name| cast_to(text, name))
}

/// Casts arguments by the properties of their tool.
pub fn cast_arguments(arguments: &mut Map<String, Value>, properties: &Map<String, Value>) {
    for (key, argument) in arguments.iter_mut() {
        let mut types = Vec::new();
        if let Some(schema) = properties.get(key) {
            types_of(schema, 0, &mut types);
        }
        match argument {
            Value::String(text) => {
                if let Some(value) = cast(text, &types) {
                    *argument = value;
                }
            }
            // a parameter that the reply has several times
            Value::Array(items) if !types.is_empty() && !types.iter().any(|one| one == "array") => {
                for item in items {
                    if let Some(value) = item.as_str().and_then(|text| cast(text, &types)) {
                        *item = value;
                    }
                }
            }
            _ => {}
        }
    }
}
