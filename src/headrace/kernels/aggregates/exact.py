"""Sums of doubles that are exact, so that what is withdrawn leaves no trace: as SQL.

A double is a whole number times a power of two. Most fit into two parts, `hi` in units of 2**-18 and `lo` in units of
2**-81: magnitudes from 4e-9 to 1e13, and all smaller ones with few digits. These parts are added up as whole numbers
of 38 digits, by DuckDB. All other doubles, NaN and the infinities among them, go into `rest`, a list that is null where
there is none; what happens there, and how a total is read, is in `superaccumulator`. So a total does not depend on the
order, and a row that is withdrawn takes away what it brought. Only the result is rounded, once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.kernels.aggregates.aggregate_spec import Accumulator
from headrace.kernels.aggregates.superaccumulator import HI_BUCKET, LO_BITS, REST, WIDTH

if TYPE_CHECKING:
    from headrace.kernels.aggregates.aggregate_spec import Layers

ROOM = 2.0**62
"""What `hi` of one double stays below."""


@dataclass(frozen=True, slots=True)
class Columns:
    """A double's parts as columns: layers of names with SQL over the columns of the layer before."""

    layers: Layers
    hi: str
    lo: str
    rest: str


@dataclass(frozen=True, slots=True)
class Parts:
    """What is kept of a sum, as SQL."""

    hi: str
    lo: str
    rest: str

    @property
    def sql(self) -> str:
        """Return the three as one value."""
        return f"struct_pack(hi := {self.hi}, lo := {self.lo}, rest := {self.rest})"


def columns(name: str, double: str, weight: str) -> Columns:
    """Return what a double is in parts, in columns that begin with `name`; `weight` is how often it counts."""
    x, scaled, below, hi = (f"{name}_{part}" for part in ("x", "a", "f", "h"))
    unit = f"{2.0 ** (-WIDTH * HI_BUCKET)!r}::DOUBLE"
    once = "" if weight == "1" else f" AND abs({weight}) = 1"
    fits = f"abs({scaled}) < {ROOM!r}::DOUBLE AND {below} = trunc({below}){once}"
    times = "" if weight == "1" else f" * {weight}"
    return Columns(
        layers=(
            ((x, double), (scaled, f"({double}) * {unit}")),
            ((below, f"({scaled} - trunc({scaled})) * {2.0**LO_BITS!r}::DOUBLE"),),
            ((hi, f"CASE WHEN {fits} THEN trunc({scaled})::BIGINT END"),),
        ),
        hi=f"coalesce(sum({hi}{times}), 0)::HUGEINT",
        lo=f"coalesce(sum(CASE WHEN {hi} IS NOT NULL THEN {below}::BIGINT{times} END), 0)::HUGEINT",
        rest=f"list(struct_pack(x := {x}, w := {weight}::INTEGER)) FILTER (WHERE {x} IS NOT NULL AND {hi} IS NULL)",
    )


def accumulators(parts: Columns) -> tuple[Accumulator, Accumulator, Accumulator]:
    """Return the accumulators of a sum whose parts are columns."""
    rest = Accumulator(
        type=REST,
        partial=_called("bucketed", parts.rest),
        fold="list",
        finish=_called("together", f"nullif(flatten({{f}})::{REST}, [])"),
        merge=f"CASE WHEN {{d}} IS NULL THEN {{o}} ELSE {_called('together', 'list_concat({o}, {d})')} END",
    )
    return _integer_sum(parts.hi), _integer_sum(parts.lo), rest


def _integer_sum(partial: str) -> Accumulator:
    merge = "(coalesce({o}, 0) + {d})::HUGEINT"
    return Accumulator(type="HUGEINT", partial=partial, fold="sum", finish="({f})::HUGEINT", merge=merge)


def _called(function: str, rest: str) -> str:
    """Return SQL that calls a function for the groups that have a rest."""
    return f"CASE WHEN ({rest}) IS NOT NULL THEN exact_{function}({rest}) END"


def total(parts: Parts) -> str:
    """Return SQL for the double nearest to a sum."""
    return f"exact_total({parts.sql})"


def listed(double: str) -> Parts:
    """Return the parts of the sum of a group's doubles, all of them in the rest."""
    rest = f"exact_bucketed(list(struct_pack(x := {double}, w := 1::INTEGER)))"
    return Parts("0::HUGEINT", "0::HUGEINT", rest)


def layered(source: str, layers: Layers) -> str:
    """Return a relation with columns computed from others, layer by layer."""
    for layer in layers:
        source = f"(SELECT *, {', '.join(f'{sql} AS {name}' for name, sql in layer)} FROM {source})"
    return source
