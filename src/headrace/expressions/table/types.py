"""Types by name: `int(x)` is `cast(x as int)`; `typeof` says what a type is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.base.names import literal
from headrace.expressions import kinds as k
from headrace.expressions.casts import cast
from headrace.expressions.functions import Function, built
from headrace.expressions.values import Value

if TYPE_CHECKING:
    from collections.abc import Callable

_TYPES = {
    "tinyint": ("tinyint(i)", "tinyint(s)"),
    "smallint": ("smallint(l)", "smallint('7')"),
    "int": ("int(s)", "int(d)"),
    "bigint": ("bigint(s)", "bigint(at)"),
    "float": ("float(d)", "float(s)"),
    "double": ("double(s)", "double(i)"),
    "decimal": ("decimal(i)", "decimal(d)"),
    "boolean": ("boolean(i)", "boolean(s)"),
    "string": ("string(i)", "string(at)"),
    "binary": ("binary(s)",),
}


def _cast(name: str) -> Callable[[list[Value]], Value]:
    return lambda values: cast(values[0], k.decimal(10, 0) if name == "decimal" else k.parse_type(name))


def _typeof(values: list[Value]) -> Value:
    name = literal(k.shown(values[0].type))
    return Value("", name, k.STRING, raises=values[0].raises)


ENTRIES: tuple[Function, ...] = (
    *(built(name, "any", _cast(name), *examples) for name, examples in _TYPES.items()),
    built("typeof", "any", _typeof, "typeof(i + l)", "typeof(counts)", "typeof(m * n)", order="all"),
)
