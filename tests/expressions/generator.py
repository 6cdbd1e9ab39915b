"""Random expressions, typed: the examples of the table are the rules, their columns the slots to fill.

`substr(s, i, j)` returns a string and has the slots `s` (string), `i` and `j` (int). A slot takes a column or a literal
of its type, or another rule that returns this type. A composed expression that the table refuses is dropped.
"""

import math
import random
import re
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache

import pyarrow as pa
from adversaries import _EPOCH, SCHEMA, VALUES, _array

from headrace.base.errors import PlanError
from headrace.base.schema import type_name
from headrace.expressions import scalar
from headrace.expressions.table import FAMILIES
from headrace.expressions.table.json import STRICT_NOTE

TOKEN = re.compile(r"""r?'(?:[^'\\]|\\.|'')*'|"[^"]*"|interval\s[^,)]*|[A-Za-z_][\w.]*|[\d.]+\w*|\s+|.""", re.DOTALL)
LAMBDA = re.compile(r"\(?((?:\w+\s*,\s*)*\w+)\)?\s*->")
UNIT = re.compile(r"(?i)(timestamp(diff|add)|timediff|date_?(diff|add)|extract|date_?part)\s*\(\s*\w+\s*(,|from)")
# what makes long values of large numbers would fill the memory of both
LONG = ("repeat(", "space(", "lpad(", "rpad(", "sequence(", "array_insert(", "array_repeat(", "factorial(")
# known differences: what docs/expressions.md says about digits of other scripts and bytes that are no text
UNLIKE = {"s": "\uff11\uff12", "bin": b"\x00\xff", "bin2": b"\x00\xff"}
FRACTION_TO_TEXT = "|| 'Infinity'"
ROWS = 20


@dataclass(frozen=True)
class Rule:
    """An example of the table: text between slots, the types of the slots, the type that it returns."""

    parts: tuple[str, ...]
    slots: tuple[pa.DataType, ...]
    returns: pa.DataType
    ulp: int
    of_columns: bool
    """Whether its slots take columns alone: of texts that are nearly JSON, Spark reads what stands before garbage."""


@dataclass(frozen=True)
class Expression:
    """An expression, how exact it is, and the expressions in its slots."""

    text: str
    ulp: int = 0
    inner: tuple["Expression", ...] = field(default=())
    constant: bool = False

    def all(self):
        """Return this expression and all within it, the smallest first."""
        found = [expression for part in self.inner for expression in part.all()]
        return sorted([*found, self], key=lambda expression: len(expression.text))


@cache
def rules():
    """Return the rules of the whole table."""
    found = []
    for functions in FAMILIES.values():
        for function in functions:
            for text in function.examples:
                if any(word in text for word in LONG):
                    continue
                kind = scalar(text, SCHEMA, step="rule").type
                parts, slots = _split(text)
                found.append(Rule(parts, slots, kind, function.ulp, STRICT_NOTE in function.notes))
    return found


def _split(text):
    """Cut a text at its columns."""
    bound = {name.strip() for found in LAMBDA.finditer(text) for name in found[1].split(",")}
    parts, slots, start = [""], [], 0
    unit = UNIT.search(text)
    for token in TOKEN.finditer(text):
        name, _, _ = token[0].partition(".")
        start = token.end()
        called = text[start : start + 1] == "("
        named = unit and token.start() < unit.end()
        if name not in SCHEMA.names or name in bound or called or named or token[0].startswith("interval"):
            parts[-1] += token[0]
            continue
        slots.append(scalar(token[0], SCHEMA, step="place").type)
        parts.append("")
    return tuple(parts), tuple(slots)


class Generator:
    """Makes expressions, the same ones from the same seed."""

    def __init__(self, seed):
        self.chance = random.Random(seed)  # noqa: S311 a seeded choice
        self.rules = rules()
        self.by_type = {}
        for rule in self.rules:
            self.by_type.setdefault(rule.returns, []).append(rule)
        self.columns = {}
        for column in SCHEMA:
            self.columns.setdefault(column.type, []).append(column.name)

    def expression(self, depth=3):
        """Return an expression that the table takes, with its compiled form."""
        while True:
            expression = self._from(self.chance.choice(self.rules), depth, root=True)
            if expression.constant and expression.inner:
                continue
            try:
                compiled = scalar(expression.text, SCHEMA, step="random")
            except PlanError:
                continue
            deep = FRACTION_TO_TEXT in compiled.sql and any(part.inner for part in expression.inner)
            if not deep and len(compiled.sql) < 60_000:
                return expression, compiled

    def _from(self, rule, depth, *, root=False):
        ulp = rule.ulp if root else 0
        inner = [self.of(kind, 0 if rule.of_columns else depth - 1) for kind in rule.slots]
        text = rule.parts[0] + "".join(
            self._bracketed(expression.text) + part for expression, part in zip(inner, rule.parts[1:], strict=True)
        )
        constant = all(expression.constant for expression in inner)
        return Expression(text, max([ulp, *(expression.ulp for expression in inner)]), tuple(inner), constant)

    def _bracketed(self, text):
        return text if re.fullmatch(r"\w+", text) else f"({text})"

    def of(self, kind, depth):
        """Return an expression of a type; now and then one of another type that becomes it."""
        chance = self.chance.random()
        if chance < 0.05:
            kind = self.chance.choice([pa.int32(), pa.int64(), pa.float64(), pa.string(), pa.int8(), kind])
        exact = [rule for rule in self.by_type.get(kind, ()) if not rule.ulp]
        if depth > 0 and exact and chance < 0.75:
            expression = self._from(self.chance.choice(exact), depth)
            if (
                not expression.constant
            ):  # constants that raise do so before there is a row, or never, as optimizers please
                return expression
        if chance < 0.9 and kind in self.columns:
            return Expression(self.chance.choice(self.columns[kind]))
        return Expression(self._literal(kind), constant=True)

    def _literal(self, kind):
        names = self.columns.get(kind)
        known = [value for value in VALUES[names[0]] if value is not None] if names else []
        value = self.chance.choice(known) if known else None
        try:
            return _written(value, kind)
        except TypeError:
            return self.chance.choice(names)

    def rows(self):
        """Return rows of all columns, chosen from the adversarial values."""
        arrays, fields = [pa.array(list(range(ROWS)), pa.int32())], [pa.field("_row", pa.int32())]
        for column in SCHEMA:
            values = [value for value in VALUES[column.name] if value != UNLIKE.get(column.name, "")]
            values = values or VALUES[column.name]
            arrays.append(_array([self.chance.choice(values) for _ in range(ROWS)], column.type))
            fields.append(pa.field(column.name, column.type))
        return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def _written(value, kind):
    """Return a literal of a type; a TypeError where there is none."""
    name = type_name(kind)
    if value is None:
        return f"cast(null as {name})"
    if pa.types.is_boolean(kind):
        return str(value).lower()
    if pa.types.is_integer(kind):
        suffix = {"tinyint": "Y", "smallint": "S", "bigint": "L"}.get(name, "")
        return f"{value}{suffix}"
    if pa.types.is_floating(kind):
        text = f"'{value}'" if not math.isfinite(value) else f"'{value!r}'"
        return f"cast({text} as {name})"
    if pa.types.is_decimal(kind):
        return f"cast('{value:f}' as {name})"
    if pa.types.is_string(kind):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'").replace("\x00", "\\0") + "'"
    if pa.types.is_binary(kind):
        return f"X'{value.hex()}'"
    if pa.types.is_date(kind):
        return f"date'{value.isoformat()}'"
    if pa.types.is_timestamp(kind):
        micros = (value - _EPOCH) // timedelta(microseconds=1)
        return f"timestamp_micros({micros}L)" if kind.tz else f"cast(timestamp_micros({micros}L) as timestamp_ntz)"
    raise TypeError(name)
