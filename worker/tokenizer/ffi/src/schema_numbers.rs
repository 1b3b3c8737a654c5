// SPDX-License-Identifier: Apache-2.0
//! Numbers of a JSON Schema. llguidance reads all of them as doubles and multiplies those of `multipleOf` in 32 bits;
//! what it would hold inexactly is refused.
use crate::json_schema::{DATA, NAMED};
use serde_json::{Map, Number, Value};

/// The least whole number whose neighbour is no double.
const MOST_EXACT: f64 = 9_007_199_254_740_992.0;
/// Below it the product of two steps has 32 bits.
const MOST_STEP: u64 = 1 << 16;
/// Bounds the sum of all. A step has as many states as its value, and 2^16 of them take 0.3 s and 60 MiB to compile.
const MOST_STEPS: u64 = 1 << 17;
/// A power of ten with more digits has more than 32 bits.
const MOST_DECIMALS: u32 = 9;

/// Replaces an excluded whole number by its neighbour in a range that ends before the next one: llguidance would let
/// through the 0 of the range from 0 exclusively to 0.5.
pub fn adapt_range(object: &mut Map<String, Value>) {
    let number = |key: &str| object.get(key).and_then(Value::as_f64);
    let (lower, upper) = (number("exclusiveMinimum"), number("exclusiveMaximum"));
    let below = [number("maximum"), upper];
    let above = [number("minimum"), lower];
    if let Some(excluded) = lower.filter(|e| below.into_iter().flatten().any(|end| lets_lower_through(*e, end))) {
        replace(object, "exclusiveMinimum", "minimum", neighbour(excluded), f64::max);
    }
    if let Some(excluded) = upper.filter(|e| above.into_iter().flatten().any(|end| lets_lower_through(-*e, -end))) {
        replace(object, "exclusiveMaximum", "maximum", -neighbour(-excluded), f64::min);
    }
}

/// Whether a range from an excluded number to another has the excluded one. Ranges below 0 are mirrored.
fn lets_lower_through(excluded: f64, end: f64) -> bool {
    excluded >= 0.0 && excluded.fract() == 0.0 && end > excluded && end < excluded + 1.0
}

/// The next larger number. Next to 0 one with a short decimal is near enough.
fn neighbour(number: f64) -> f64 {
    if number == 0.0 {
        1e-18
    } else {
        number.next_up()
    }
}

fn replace(object: &mut Map<String, Value>, exclusive: &str, bound: &str, value: f64, stricter: fn(f64, f64) -> f64) {
    object.shift_remove(exclusive);
    let other = object.get(bound).and_then(Value::as_f64).unwrap_or(value);
    object.insert(bound.into(), stricter(value, other).into());
}

/// The numbers of a schema by the keys that they stand under, wherever they stand: references and `allOf` bring
/// together what stands apart.
#[derive(Default)]
struct Numbers {
    lower: Vec<f64>,
    upper: Vec<f64>,
    exclusive_lower: Vec<f64>,
    exclusive_upper: Vec<f64>,
    steps: Vec<f64>,
    refers: bool,
    combines: bool,
}

/// Returns what cannot be held of a schema.
pub fn check(schema: &Value) -> Result<(), String> {
    let mut numbers = Numbers::default();
    numbers.collect(schema)?;
    numbers.check_ranges()?;
    numbers.check_steps()
}

impl Numbers {
    fn collect(&mut self, schema: &Value) -> Result<(), String> {
        match schema {
            Value::Array(list) => list.iter().try_for_each(|one| self.collect(one)),
            Value::Object(object) => {
                for (key, value) in object {
                    match value {
                        Value::Object(named) if NAMED.contains(&key.as_str()) => {
                            named.values().try_for_each(|one| self.collect(one))?
                        }
                        _ if DATA.contains(&key.as_str()) => check_constants(value)?,
                        Value::Number(number) => self.add(key, number)?,
                        _ => self.collect(value)?,
                    }
                    self.refers |= key == "$ref";
                    self.combines |= ["allOf", "anyOf", "oneOf"].contains(&key.as_str());
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn add(&mut self, key: &str, number: &Number) -> Result<(), String> {
        let value = number.as_f64().unwrap_or(f64::NAN);
        // Integers are compared as i64, to which a double beyond is cut. That may narrow a range, but not widen it.
        let (exact, held) = (whole(number).unwrap_or(value as i128), value as i64 as i128);
        let (list, holds) = match key {
            "minimum" => (&mut self.lower, held >= exact),
            "maximum" => (&mut self.upper, held <= exact),
            "exclusiveMinimum" => (&mut self.exclusive_lower, value.abs() < MOST_EXACT),
            "exclusiveMaximum" => (&mut self.exclusive_upper, value.abs() < MOST_EXACT),
            "multipleOf" => (&mut self.steps, value > 0.0),
            _ => return Ok(()),
        };
        list.push(value);
        if holds {
            Ok(())
        } else {
            Err(format!("{key} {number} cannot be held exactly"))
        }
    }

    fn check_ranges(&self) -> Result<(), String> {
        let clash = |excluded: &[f64], ends: [&[f64]; 2], sign: f64| {
            let ends = ends.concat();
            let through = |e: &f64| ends.iter().any(|end| lets_lower_through(sign * e, sign * end));
            excluded.iter().copied().find(through)
        };
        let lower = clash(&self.exclusive_lower, [&self.upper, &self.exclusive_upper], 1.0);
        let upper = clash(&self.exclusive_upper, [&self.lower, &self.exclusive_lower], -1.0);
        match lower.or(upper) {
            Some(bound) => Err(format!(
                "the exclusive bound {bound} cannot be held so close to another one"
            )),
            None => Ok(()),
        }
    }

    fn check_steps(&self) -> Result<(), String> {
        let most = self.steps.iter().map(|step| decimals(*step)).max().unwrap_or(0);
        let (mut multiple, mut total) = (1, 0);
        for step in &self.steps {
            total += scaled(*step, decimals(*step)).unwrap_or(MOST_STEPS);
            if total >= MOST_STEPS {
                return Err(format!("multipleOf {step} is too large or too fine"));
            }
            let together = scaled(*step, most).map_or(MOST_STEP, |whole| multiple / gcd(multiple, whole) * whole);
            multiple = together.min(MOST_STEP);
        }
        let combined = self.refers || self.combines && self.steps.len() > 1;
        if combined && multiple == MOST_STEP {
            return Err("values of multipleOf are too large or too fine to be held together".into());
        }
        Ok(())
    }
}

/// A step in units of its decimals, where it is small enough.
fn scaled(step: f64, decimals: u32) -> Option<u64> {
    let whole = (step * 10f64.powi(decimals as i32)).round();
    (decimals <= MOST_DECIMALS && whole < MOST_STEP as f64).then_some(whole as u64)
}

/// The value of a number that is written as an integer.
fn whole(number: &Number) -> Option<i128> {
    number
        .as_i64()
        .map(i128::from)
        .or_else(|| number.as_u64().map(i128::from))
}

/// The digits behind the decimal point.
fn decimals(step: f64) -> u32 {
    step.to_string()
        .split_once('.')
        .map_or(0, |(_, digits)| digits.len() as u32)
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 {
        a
    } else {
        gcd(b, a % b)
    }
}

fn check_constants(data: &Value) -> Result<(), String> {
    match data {
        Value::Number(number) => match whole(number) {
            Some(exact) if exact as f64 as i128 != exact => {
                Err(format!("the constant {number} cannot be held exactly"))
            }
            _ => Ok(()),
        },
        Value::Array(list) => list.iter().try_for_each(check_constants),
        Value::Object(named) => named.values().try_for_each(check_constants),
        _ => Ok(()),
    }
}
