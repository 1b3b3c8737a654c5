# SPDX-License-Identifier: Apache-2.0
"""What a JSON Schema allows by the jsonschema package: with exact numbers, regular expressions of ECMA-262, and the
formats of dates and times, which the package does not check alone.
"""

import datetime
import decimal
import fractions
import json
import re

import jsonschema

# what \s of ECMA-262 matches; that of Python's expressions is another set
SPACE = "\t\n\v\f\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
SETS = {"d": "0-9", "w": "0-9A-Za-z_", "s": SPACE}
LARGEST_EXPONENT = 400
ZONE = r"(?:[zZ]|[+-](?:[01]\d|2[0-3]):[0-5]\d)"
TIME = re.compile(rf"(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d+)?{ZONE}", re.ASCII)


def number(text):
    """A number with its digits; an exponent of more than four digits is cut."""
    mantissa, _, exponent = text.lower().partition("e")
    if len(exponent) > 5:
        exponent = ("-" if exponent[0] == "-" else "") + "9999"
    return decimal.Decimal(f"{mantissa}e{exponent}" if exponent else text)


def load(text):
    """JSON in which fractions keep their digits. Of names that come twice the last counts."""
    return json.loads(text, parse_float=number)


def exact(value):
    """The same with exact arithmetic. Exponents are cut, because a number may have any."""
    if isinstance(value, decimal.Decimal):
        sign, digits, exponent = value.as_tuple()
        exponent = max(-LARGEST_EXPONENT, min(LARGEST_EXPONENT, exponent))
        return fractions.Fraction(decimal.Decimal((sign, digits, exponent)))
    if isinstance(value, list):
        return [exact(one) for one in value]
    return {key: exact(one) for key, one in value.items()} if isinstance(value, dict) else value


def python_pattern(pattern):
    """An expression of ECMA-262 as Python has to read it."""
    made, in_class = "", False
    for part in re.findall(r"\\.|.", pattern, re.DOTALL):
        if part[0] == "\\" and part[1].lower() in SETS:
            members = SETS[part[1].lower()]
            made += members if in_class else f"[{'' if part[1].islower() else '^'}{members}]"
            assert not (in_class and part[1].isupper()), f"{pattern} is not supported by this test"
        elif in_class:
            in_class = part != "]"
            made += {"[": "\\[", "&": "\\&"}.get(part, part)
        else:
            in_class = part == "["
            made += {".": "[^\n\r\u2028\u2029]", "$": r"\Z", "\\/": "/"}.get(part, part)
    return made


def with_python_patterns(schema):
    if isinstance(schema, list):
        return [with_python_patterns(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    made = {}
    for key, value in schema.items():
        if key == "pattern" and isinstance(value, str):
            made[key] = python_pattern(value)
        elif key in ("properties", "$defs", "definitions", "patternProperties") and isinstance(value, dict):
            name = python_pattern if key == "patternProperties" else str
            made[key] = {name(one): with_python_patterns(inner) for one, inner in value.items()}
        else:
            made[key] = value if key in ("const", "enum") else with_python_patterns(value)
    return made


FORMATS = jsonschema.FormatChecker(formats=["ipv4", "ipv6", "uuid", "email"])


@FORMATS.checks("date")
def is_date(text):
    """Python has no year 0, which RFC 3339 has, and which is a leap year."""
    if not isinstance(text, str):
        return True
    found = re.fullmatch(r"(\d{4})-(\d\d)-(\d\d)", text, re.ASCII)
    try:
        return bool(found and datetime.date(int(found[1]) or 2000, int(found[2]), int(found[3])))
    except ValueError:
        return False


@FORMATS.checks("time")
def is_time(text):
    return not isinstance(text, str) or bool(TIME.fullmatch(text))


@FORMATS.checks("date-time")
def is_date_time(text):
    return not isinstance(text, str) or (is_date(text[:10]) and text[10:11] in ("T", "t") and is_time(text[11:]))


def is_integer(checker, value):
    whole = isinstance(value, fractions.Fraction) and value.denominator == 1
    return whole or (isinstance(value, int) and not isinstance(value, bool))


class Undefined(Exception):
    """A schema refers to itself about the same value, which JSON Schema leaves undefined."""


class Oracle:
    """One schema as text."""

    def __init__(self, text):
        schema = with_python_patterns(exact(load(text)))
        base = jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator)
        types = base.TYPE_CHECKER.redefine("integer", is_integer)
        self.validator = jsonschema.validators.extend(base, type_checker=types)(schema, format_checker=FORMATS)

    def error(self, value):
        """Why a value is not valid, nothing if it is. Raises Undefined."""
        try:
            found = next(self.validator.iter_errors(exact(value)), None)
        except RecursionError:
            raise Undefined from None
        return found and f"{found.validator}: {found.message[:200]}"
