# SPDX-License-Identifier: Apache-2.0
"""Random JSON Schemas with every keyword, and random changes of values, after which they nearly follow a schema."""

import copy
import decimal
import json
import random
import re

NAMES = ["a", "b", "ab", "x1", "é", 'a"b', "n\\", "l\nf"]
PATTERNS = [
    "^a",
    "b$",
    "^[a-c]+$",
    "^\\d{2,3}$",
    "[^a]",
    '^[^"]*$',
    '^[^\\\\"a]{1,2}$',
    '^[^\n"]{1,3}$',
    "^(a|b)*$",
    "^$",
    "a|^b$",
    "(^a)|(b$)",
    "\\w\\s",
    "^.{1,3}$",
    "^.$",
    "^\\S+$",
    "^\\s?$",
    "é",
    "^x?$",
    "\\.",
    "^(?:ab)+$",
    "^[\\w-]+$",
    "^\\W$",
    "^\\D{2}$",
    "^[^\\w]$",
    "[0-9]{2,}",
    "^[a-z\\d_]{1,4}$",
    "^[a&&b]+$",
    "^[[a]$",
    "^[+--]$",
    "^\\/$",
    "^\\u0061+$",
    "\\n|a",
]
FORMATS = ["date", "time", "date-time", "ipv4", "ipv6", "uuid", "email", "duration", "hostname", "uri", "color"]
WHOLE = [0, 1, 2, 3, 5, 7, 10, 12, 100, 255, 1000, 1000000, 2**31, 2**53 - 1]
LARGE = [sign * number for number in (2**53, 2**53 + 1, 2**53 + 3, 2**63 - 1, 10**19) for sign in (1, -1)]
FRACTIONS = [0.5, 1.5, 0.1, 0.01, 2.25, 0.25, 1e-5, 99.99, 3.75, 9.5, 10.5, 0.05, 0.999, 1e3, 2.0, 1e20]
NUMBERS = [sign * number for number in (*WHOLE, *FRACTIONS) for sign in (1, -1)]
STEPS = [1, 2, 3, 7, 10, 0.5, 0.1, 0.01, 0.25, 2.5, 641, 643, 10**7, 1e-5]
VALUES = [
    None,
    True,
    False,
    0,
    1,
    -1,
    1.5,
    2.0,
    1e2,
    10**15 + 1,
    7,
    "",
    "a",
    "b",
    "ab",
    'é"\\\n日',
    "\t",
    "\r",
    "\u2028",
]
VALUES += ["2023-02-29", [], [1], [1, "a"], [[]], {}, {"a": 1}, {"b": [None], "a": "x"}, {'a"b': 0.5}]
REFUSED_VALUES = ["\u0001", "\u007f", 2**53 + 1]
INSTANCES = json.loads(json.dumps(VALUES), parse_float=decimal.Decimal)
UNSUPPORTED = {
    "uniqueItems": True,
    "contains": {"type": "null"},
    "minContains": 0,
    "not": {"type": "null"},
    "if": {"required": ["a"]},
    "propertyNames": {"maxLength": 2},
    "dependentRequired": {"a": ["b"]},
    "dependentSchemas": {"a": {"required": ["b"]}},
    "unevaluatedProperties": False,
    "unevaluatedItems": False,
}


class Schemas:
    """Draws one schema after another. Most of them are satisfiable, because types are seldom crossed."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.old, self.definitions = False, []

    def likely(self, probability):
        return self.random.random() < probability

    def one_of(self, choices):
        return self.random.choice(choices)

    def names(self, most):
        return list(dict.fromkeys(self.one_of(NAMES) for _ in range(self.random.randint(0, most))))

    def bounds(self, least, most, draw):
        """Limits in this order, except now and then."""
        low, high = sorted((draw(), draw()))
        pair = {least: low, most: high} if self.likely(0.9) else {least: high, most: low}
        return {key: value for key, value in pair.items() if self.likely(0.4)}

    def number(self):
        if self.likely(0.05):
            return self.one_of(LARGE)
        return self.one_of(NUMBERS) if self.likely(0.3) else self.random.randint(-20, 20) / self.one_of([1, 1, 2, 10])

    def plain_number(self):
        number = self.number()
        return int(number) if number == int(number) and self.likely(0.8) else number

    def numbers(self, depth):
        keys = self.one_of([("minimum", "maximum"), ("exclusiveMinimum", "exclusiveMaximum")])
        made = self.bounds(*keys, self.plain_number)
        made |= self.bounds("minimum", "exclusiveMaximum", self.plain_number) if self.likely(0.2) else {}
        return made | ({"multipleOf": self.one_of(STEPS)} if self.likely(0.2) else {})

    def size(self):
        return self.one_of([0, 1, 1, 2, 2, 3, 4])

    def strings(self, depth):
        made = self.bounds("minLength", "maxLength", self.size)
        made |= {"pattern": self.one_of(PATTERNS)} if self.likely(0.4) else {}
        return made | ({"format": self.one_of(FORMATS)} if self.likely(0.1) else {})

    def arrays(self, depth):
        prefix, rest = ("items", "additionalItems") if self.old else ("prefixItems", "items")
        made = {rest: self.within(depth)} if self.likely(0.5) else {}
        if self.likely(0.3):
            made[prefix] = [self.within(depth) for _ in range(self.random.randint(1, 3))]
            made |= {"additionalItems": self.within(depth)} if self.likely(0.2) else {}
        return made | self.bounds("minItems", "maxItems", self.size)

    def objects(self, depth):
        made = {}
        if self.likely(0.7):
            made["properties"] = {name: self.within(depth) for name in self.names(4)}
        if self.likely(0.4):
            declared = list(made.get("properties", {})) if self.likely(0.4) else []
            made["required"] = list(dict.fromkeys(self.names(2) + declared))
        if self.likely(0.4):
            made["additionalProperties"] = self.within(depth) if self.likely(0.6) else False
        if self.likely(0.2):
            made["patternProperties"] = {
                self.one_of(PATTERNS): self.within(depth) for _ in range(self.one_of([1, 1, 2]))
            }
        return made | (self.bounds("minProperties", "maxProperties", self.size) if self.likely(0.15) else {})

    def values(self, most):
        """Constants, now and then with one that cannot be held."""
        made = self.random.sample(VALUES, self.random.randint(1, most))
        return [*made[1:], self.one_of(REFUSED_VALUES)] if self.likely(0.05) else made

    def leaf(self):
        kind = self.random.randrange(10)
        if kind < 2:
            return {"const": self.values(1)[0]}
        if kind < 4:
            return {"enum": self.values(4)}
        if kind < 6 and self.definitions:
            return self.reference()
        return {"type": self.one_of(["null", "boolean", "integer", "number", "string"])} if kind < 9 else {}

    def reference(self):
        return {"$ref": f"#/{self.definitions_key()}/{self.one_of(self.definitions)}"}

    def definitions_key(self):
        return "definitions" if self.old else "$defs"

    def within(self, depth):
        return self.likely(0.7) if self.likely(0.06) else self.schema(depth - 1)

    def several(self, depth):
        """Keywords that combine schemas, most of them of one kind."""
        made = {}
        for key, probability in (("allOf", 0.12), ("anyOf", 0.12), ("oneOf", 0.08)):
            if self.likely(probability):
                made[key] = [self.within(depth) for _ in range(self.random.randint(1, 3))]
        if self.definitions and self.likely(0.08):
            made |= self.reference()
        return made

    def tagged(self, depth):
        """Objects of which a constant says which one it is."""
        tags = self.random.sample(["a", "b", 1, None], self.random.randint(2, 3))
        return {
            self.one_of(["oneOf", "oneOf", "anyOf"]): [
                {
                    "type": "object",
                    "properties": {"kind": {"const": tag}, **{name: self.within(depth) for name in self.names(2)}},
                    "required": ["kind"],
                }
                for tag in tags
            ]
        }

    def schema(self, depth):
        if depth <= 0 or self.likely(0.12):
            return self.leaf()
        if self.likely(0.04):
            return self.tagged(depth)
        kinds = self.random.sample(["number", "string", "array", "object"], self.one_of([1, 1, 1, 1, 2, 4]))
        made = {}
        if self.likely(0.75):
            types = [self.one_of(["number", "integer"]) if kind == "number" else kind for kind in kinds]
            types += self.one_of([[], [], [], ["null"]])
            made["type"] = types[0] if len(types) == 1 else types
        for kind in kinds:
            made |= getattr(self, kind + "s")(depth)
        made |= self.several(depth)
        made |= {"enum": self.values(8)} if self.likely(0.05) else {}
        made |= {"title": "t"} if self.likely(0.1) else {}
        made |= dict([self.one_of(list(UNSUPPORTED.items()))]) if self.likely(0.03) else {}
        order = list(made.items())
        if self.likely(0.5):
            self.random.shuffle(order)
        return dict(order)

    def draw(self):
        """A whole schema, with definitions that refer to each other in some; one of eight of draft 7."""
        self.old = self.likely(0.125)
        self.definitions = self.one_of([[], [], ["p"], ["p", "q"]])
        made = {"$schema": "http://json-schema.org/draft-07/schema#"} if self.old else {}
        made |= self.schema(self.one_of([1, 2, 2, 3]))
        if self.definitions:
            made[self.definitions_key()] = {name: self.within(2) for name in self.definitions}
        return made


def places(value, at=()):
    """The paths of a value and of all that it holds."""
    yield at
    if isinstance(value, (dict, list)):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(inner, (*at, key))


def numbers_of(schema):
    """The numbers of a schema as text, and those beside them."""
    found = map(decimal.Decimal, re.findall(r"(?<![\w.])-?\d+(?:\.\d+)?", schema))
    return [number + more for number in dict.fromkeys(found) for more in (-1, 0, 1)]


def small(number):
    return abs(decimal.Decimal(number).adjusted()) < 20


def changed_part(value, random, others):
    """A value that is like another one, or one of others."""
    way = random.randrange(4)
    if way == 0:
        return random.choice(others)
    if isinstance(value, dict):
        members = list(value.items())
        if members and way == 1:
            members.pop(random.randrange(len(members)))
        else:
            members.insert(random.randint(0, len(members)), (random.choice(NAMES), random.choice(others)))
        return dict(members)
    if isinstance(value, list):
        parts = list(value)
        if parts and way == 1:
            parts.pop(random.randrange(len(parts)))
        else:
            parts.insert(random.randint(0, len(parts)), random.choice(others))
        return parts
    if isinstance(value, str):
        at = random.randint(0, len(value))
        return (
            value[:at] + random.choice(["", "a", '"', "\\", "é", "\n", "0", "\u2028", " "]) + value[at + (way == 1) :]
        )
    if isinstance(value, (int, decimal.Decimal)) and not isinstance(value, bool) and small(value):
        return value + random.choice([1, -1, decimal.Decimal("0.5"), decimal.Decimal("-0.1"), -value, -2 * value])
    return random.choice(others)


def changed(value, random, others):
    """A copy of a value in which one part is another."""
    path = random.choice(list(places(value)))
    made = copy.deepcopy(value)
    if not path:
        return changed_part(made, random, others)
    holder = made
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = changed_part(holder[path[-1]], random, others)
    return made
