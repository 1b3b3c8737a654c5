# SPDX-License-Identifier: Apache-2.0
"""The texts that mean one JSON value: other orders of names, numbers written in other ways, escapes, whitespace, and
names that come twice.
"""

import decimal
import itertools
import json

from schema_oracle import load

MOST_ORDERS = 60
MOST_DIGITS = 400


def escaped(text):
    """Each UTF-16 unit as \\uXXXX."""
    units = text.encode("utf-16-be", "surrogatepass")
    return '"' + "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2)) + '"'


def plain(text):
    return json.dumps(text, ensure_ascii=False)


def plain_number(number):
    """A whole number without a fraction, because the grammar of integers has none."""
    if isinstance(number, decimal.Decimal) and number.adjusted() < MOST_DIGITS and number == int(number):
        return f"{int(number)}"
    return f"{number}"


def twice(members):
    """Members behind others of the same names, of which parsers take the last."""
    return [member for name, text in members for member in ((name, "null"), (name, "0"), (name, text))]


def write(value, number=plain_number, text=plain, name=plain, gap="", members=list):
    """One text of a value."""
    if isinstance(value, dict):
        parts = [(name(key), write(one, number, text, name, gap, members)) for key, one in value.items()]
        return "{" + f"{gap},{gap}".join(f"{key}{gap}:{gap}{one}" for key, one in members(parts)) + "}"
    if isinstance(value, list):
        return "[" + f"{gap},{gap}".join(write(one, number, text, name, gap, members) for one in value) + "]"
    if isinstance(value, str):
        return text(value)
    return json.dumps(value) if value is None or isinstance(value, bool) else number(value)


def orders(value):
    """The value with the names of its objects in other orders, at most a few."""
    if isinstance(value, dict):
        inner = [[(key, one) for one in orders(inner)] for key, inner in value.items()]
        made = (dict(order) for chosen in itertools.product(*inner) for order in itertools.permutations(chosen))
    elif isinstance(value, list):
        made = (list(chosen) for chosen in itertools.product(*map(orders, value)))
    else:
        made = [value]
    return itertools.islice(made, MOST_ORDERS)


def orders_of(value):
    """The plain texts of a value."""
    return list(dict.fromkeys(map(write, orders(value))))


def spellings(value):
    """Texts of a value in which a grammar might take it for another one."""
    whole = isinstance(value, (dict, list, str))
    made = [write(value), write(value, number=str), *itertools.islice(orders_of(value), 6)]
    for suffix in (".0", "e0", ".00", "0e-1"):
        made.append(write(value, number=lambda one: with_suffix(one, suffix)))
    if whole:
        made += [write(value, name=escaped), write(value, text=escaped), write(value, name=escaped, text=escaped)]
        made += [write(value, gap=" "), write(value, members=twice)]
    return [text for text in dict.fromkeys(made) if load(text) == value]


def with_suffix(number, suffix):
    """A number written longer, 0 with a sign."""
    text = plain_number(number)
    if text in ("0", "-0"):
        return "-0" + suffix.lstrip("0")
    return text + (suffix if text.lstrip("-").isdigit() else "0")
