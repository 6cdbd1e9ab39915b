"""An entry of the table of translations: names, argument and result types, and the SQL of DuckDB."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.expressions import kinds as k
from headrace.expressions.binding import Binding
from headrace.expressions.values import Value

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_PLACE = re.compile(r"\$(\d|\*|T)")


@dataclass(frozen=True, slots=True)
class Function:
    """One way to call one function of the table.

    `takes` names the arguments' classes; the last may end in `...` (one or more), those in brackets may be left out.
    `returns` is a type, `$1` for the type of the first argument, or a rule. `sql` is text with `$1`, `$2`, `$*` (all,
    with commas) and `$T` (the result's DuckDB type), or a rule. `raises`: some values make Spark, and us, raise.
    `build` replaces `returns` and `sql` where they are one decision. An argument that `sql` uses twice may be computed
    even where the other arguments would make Spark skip it; one that it uses once is not. `order`: Spark computes
    arguments from the "left" (or "right") and stops at a null, so that a later one cannot raise; "all": it
    computes them all, or `sql` does this itself. `ulp`: how many units in the last place the result may differ from
    the JVM's. `notes` go to the reference page.
    """

    names: tuple[str, ...]
    takes: tuple[str, ...]
    returns: str | Callable[[Sequence[Value]], pa.DataType] = ""
    sql: str | Callable[[Sequence[Value], pa.DataType], str] = ""
    examples: tuple[str, ...] = ()
    notes: str = ""
    raises: bool = False
    order: str = "left"
    ulp: int = 0
    prepare: Callable[[list[Value]], list[Value]] | None = None
    build: Callable[[list[Value]], Value] | None = None

    def apply(self, arguments: Sequence[Value]) -> Value:
        """Return the call over arguments that have their final types."""
        values = list(arguments)
        if self.prepare is not None:
            values = self.prepare(values)
        if self.names[0][0].isalpha():
            values = [value.apart() for value in values]
        guards: list[tuple[Value, Binding]] = []
        for i in self._guards(values):  # each is bound within the one before: it is not computed where that is null
            guard = Binding([values[i]], mark=f"\x03{i}")
            values[i] = guard.values[0]
            guards.append((values[i], guard))
        binding = Binding(values)
        values = binding.values
        if self.build is not None:
            result = self.build(values)
        else:
            kind = self._type(values)
            sql = self.sql(values, kind) if callable(self.sql) else expand(self.sql, values, kind)
            result = Value("", sql, kind, raises=self.raises or any(value.raises for value in values))
        columns = result.columns.union(*(value.columns for value in arguments))
        sql = binding.finish(result.sql)
        for value, guard in reversed(guards):
            sql = guard.finish(f"(CASE WHEN {value.sql} IS NOT NULL THEN {sql} END)")
        return Value("", sql, result.type, columns, result.raises, result.constant)

    def _guards(self, values: Sequence[Value]) -> list[int]:
        """Return which arguments, in the order of computing, must not be null for a later one to be computed."""
        if self.order == "all":
            return []
        order = list(range(len(values))) if self.order == "left" else list(reversed(range(len(values))))
        raising = [place for place, i in enumerate(order) if values[i].raises or self._may_cast(values, i)]
        before = order[: raising[-1]] if raising else []
        return [i for i in before if not values[i].is_constant]

    def _may_cast(self, values: Sequence[Value], place: int) -> bool:
        """Whether the rule may cast a text to the type of another argument, which raises."""
        text = values[place].type == k.STRING
        return self.build is not None and text and any(value.type not in (k.STRING, k.NULL) for value in values)

    def _type(self, values: Sequence[Value]) -> pa.DataType:
        if callable(self.returns):
            return self.returns(values)
        if self.returns.startswith("$"):
            return values[int(self.returns[1:]) - 1].type
        if self.returns.startswith("array<$"):
            return pa.list_(values[int(self.returns[7]) - 1].type)
        return k.parse_type(self.returns)


def entry(
    names: str,
    takes: str,
    returns: str | Callable[[Sequence[Value]], pa.DataType],
    sql: str | Callable[[Sequence[Value], pa.DataType], str],
    *examples: str,
    **more: object,
) -> Function:
    """Return an entry; `names` are separated by blanks, `takes` by commas."""
    return Function(tuple(names.split()), _split(takes), returns, sql, examples, **more)  # type: ignore[arg-type]


def built(names: str, takes: str, build: Callable[[list[Value]], Value], *examples: str, **more: object) -> Function:
    """Return an entry whose type and SQL are one decision."""
    return Function(tuple(names.split()), _split(takes), examples=examples, build=build, **more)  # type: ignore[arg-type]


def expand(template: str, values: Sequence[Value], kind: pa.DataType) -> str:
    """Return a template with its parameters filled in."""

    def fill(match: re.Match[str]) -> str:
        if match[1] == "*":
            return ", ".join(value.sql for value in values)
        return k.sql_type(kind) if match[1] == "T" else values[int(match[1]) - 1].sql

    return _PLACE.sub(fill, template)


def _split(takes: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in takes.split(",") if part.strip())
