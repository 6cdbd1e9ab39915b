"""How each aggregate function is kept: as additive accumulators where that is enough, else as a multiset of values.

An accumulator can be folded and merged in any order, so partial groups may be computed anywhere. Counts and sums of
integers and decimals are exact and can be withdrawn from. Sums of doubles are compensated where rows are only added,
and exact where rows are withdrawn (`exact`), and with them variances (`moments`). Minima, maxima and the like can be
kept as accumulators only where nothing is ever withdrawn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.kernels.aggregates import exact, higher_moments, moments, multisets, regression, users
from headrace.kernels.aggregates.aggregate_spec import Accumulator, Form, Multiset
from headrace.kernels.aggregates.exact import Parts
from headrace.kernels.aggregates.totals import decimal_mean, scale, total_of_type

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.kernels.aggregates.aggregate_spec import AggregateSpec, Layers, UserAggregate

_INTEGERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT")


class Accumulators:
    """Collects the accumulators and multisets that a set of calls needs; equal ones are kept once.

    `exact_sums`: sums of doubles are exact, as they are where rows are withdrawn.
    """

    def __init__(self, *, insert_only: bool, exact_sums: bool = False) -> None:
        self.insert_only = insert_only
        self.exact_sums = exact_sums or not insert_only
        self.accumulators: list[Accumulator] = []
        self.multisets: list[Multiset] = []
        self.calls: list[str] = []
        self.from_multiset: list[int | None] = []
        self.forms: list[Form | None] = []
        """What the calls are without SQL, where they are no more than an accumulator."""
        self.users: list[UserAggregate] = []
        self.ranked: set[int] = set()
        """The multisets whose values have ranks."""
        self.exact = False
        """Whether the functions of exact sums, or of higher moments, are called."""
        self._doubles: dict[str, str] = {}
        self._sums: dict[str, exact.Columns] = {}

    @property
    def layers(self) -> Layers:
        """The columns that the accumulators read in addition to those of the rows, layer by layer."""
        if not self._sums:
            return ()
        doubles = tuple((name, sql) for sql, name in self._doubles.items())
        parts = zip(*(total.layers for total in self._sums.values()), strict=True)
        return (doubles, *(tuple(column for columns in layer for column in columns) for layer in parts))

    def add(self, call: AggregateSpec) -> None:
        """Keep what a call needs; its result is `_a{i}` for the i-th call added."""
        if call.user is not None:
            self.calls.append(self._users(call.user, call))
            self.from_multiset.append(None)
        elif (
            call.distinct
            or call.function not in ACCUMULATED
            or (call.function in multisets.EXTREMES and not self.insert_only)
        ):
            self._from_multiset(call)
        else:
            self.calls.append(ACCUMULATED[call.function](self, call))
            self.from_multiset.append(None)
        self.forms.append(_form(self, call) if self.from_multiset[-1] is None and call.user is None else None)

    def accumulator(self, accumulator: Accumulator) -> str:
        """Return the name of an accumulator; equal ones are kept once."""
        if accumulator not in self.accumulators:
            self.accumulators.append(accumulator)
        return f"p{self.accumulators.index(accumulator)}"

    def weighted(self, value: str) -> str:
        """Return SQL for `value` times the row's weight."""
        return value if self.insert_only else f"({value}) * _weight"

    def double(self, sql: str) -> str:
        """Return the name of a column of doubles, computed once."""
        return self._doubles.setdefault(f"({sql})::DOUBLE", f"_headrace_double{len(self._doubles)}")

    def sum(self, double: str) -> Parts:
        """Return the parts of the exact sum of an expression over columns of doubles."""
        self.exact = True
        if double not in self._sums:
            weight = "1" if self.insert_only else "_weight"
            self._sums[double] = exact.columns(f"_headrace_sum{len(self._sums)}", double, weight)
        return Parts(*map(self.accumulator, exact.accumulators(self._sums[double])))

    def _users(self, user: UserAggregate, call: AggregateSpec) -> str:
        accumulator, result = users.accumulator(user, call.arguments, call.where, insert_only=self.insert_only)
        if user not in self.users:
            self.users.append(user)
        return result.format(p=self.accumulator(accumulator))

    def _from_multiset(self, call: AggregateSpec) -> None:
        present = [f"({sql}) IS NOT NULL" for sql in _not_null_arguments(call)]
        columns = tuple((f"v{i}", kind) for i, kind in enumerate(call.argument_types))
        partial = tuple(map(multisets.plain, call.arguments, call.argument_types))
        multiset = Multiset(columns=columns, partial=partial, where=" AND ".join(present) or "true")
        if multiset not in self.multisets:
            self.multisets.append(multiset)
        number = self.multisets.index(multiset)
        if call.function in multisets.RANKED:
            self.ranked.add(number)
        self.exact = self.exact or call.function in ("sum", "avg", *higher_moments.RESULTS)
        self.calls.append(multisets.FROM_MULTISET[call.function](call))
        self.from_multiset.append(number)


def _not_null_arguments(call: AggregateSpec) -> Sequence[str]:
    """Return the arguments whose nulls make the call skip a row."""
    if call.function == "listagg":  # the others are its order
        return call.arguments[:1]
    return call.arguments[1:] if call.function in ("min_by", "max_by") else call.arguments


# ---- accumulators ------------------------------------------------------------------------------------------


def _count(to: Accumulators, call: AggregateSpec) -> str:
    if not call.arguments:
        return "_n"
    every = " AND ".join(f"({sql}) IS NOT NULL" for sql in call.arguments)
    count = f"count({call.arguments[0]})" if len(call.arguments) == 1 else f"count(*) FILTER (WHERE {every})"
    if not to.insert_only:
        count = f"coalesce(sum(_weight) FILTER (WHERE {every}), 0)"
    whole = ("count", call.arguments[0]) if len(call.arguments) == 1 else None
    return to.accumulator(_added("BIGINT", f"({count})::BIGINT", whole))


def _added(kind: str, partial: str, whole: tuple[str, str] | None) -> Accumulator:
    merge = f"(coalesce({{o}}, 0) + {{d}})::{kind}"
    return Accumulator(type=kind, partial=partial, fold="sum", finish=f"({{f}})::{kind}", merge=merge, whole=whole)


def _form(to: Accumulators, call: AggregateSpec) -> Form | None:
    """Return what a call is without SQL; it has its accumulators already."""
    if call.function == "count":
        return Form(int(_count(to, call)[1:]) if call.arguments else None)
    if (call.function, call.type) in (("sum", "BIGINT"), ("avg", "DOUBLE")) and call.argument_types[0] in _INTEGERS:
        return Form(int(_total(to, call)[1:]), where=int(_count(to, call)[1:]), mean=call.function == "avg")
    if call.function in ("min", "max"):
        return Form(int(ACCUMULATED[call.function](to, call)[1:]))
    return None


def _sum(to: Accumulators, call: AggregateSpec) -> str:
    """A sum is null until there is a value, so the count of values is kept too."""
    total = _total(to, call)
    return f"CASE WHEN {_count(to, call)} > 0 THEN {total_of_type(total, call.type)} END"


def _total(to: Accumulators, call: AggregateSpec) -> str:
    argument, kind = call.arguments[0], call.argument_types[0]
    if kind in ("FLOAT", "DOUBLE"):
        return exact.total(to.sum(to.double(argument))) if to.exact_sums else _double_total(to, argument)
    wide = "HUGEINT" if kind in _INTEGERS else f"DECIMAL(38,{scale(kind)})"
    value = to.weighted(argument if to.insert_only else f"({argument})::{wide}")
    whole = ("sum", argument) if kind in _INTEGERS else None
    return to.accumulator(_added(wide, f"coalesce(sum({value}), 0)::{wide}", whole))


def _double_total(to: Accumulators, argument: str) -> str:
    """Keep a sum and its rounding error (Knuth's two-sum)."""
    value = f"({argument})::DOUBLE"
    compensated = f"CASE WHEN isfinite(fsum({value})) THEN fsum({value}) ELSE sum({value}) END"  # inf + 1: NaN as fsum
    name = to.accumulator(
        Accumulator(
            type="STRUCT(s DOUBLE, e DOUBLE)",
            partial=f"struct_pack(s := coalesce({compensated}, 0), e := 0::DOUBLE)",
            fold="list",
            finish=f"list_reduce({{f}}, lambda x, y: {_two_sum('x', 'y')})",
            merge=_kept_or("{o}", "{d}", _two_sum("{o}", "{d}")),
        )
    )
    return f"({name}.s + {name}.e)"


def _two_sum(x: str, y: str) -> str:
    total = f"({x}.s + {y}.s)"
    back = f"({total} - {x}.s)"
    error = f"(({x}.s - ({total} - {back})) + ({y}.s - {back}))"
    kept = f"CASE WHEN isfinite({total}) THEN {x}.e + {y}.e + {error} ELSE 0 END"
    return f"struct_pack(s := {total}, e := {kept})"


def _kept_or(old: str, new: str, joined: str) -> str:
    return f"CASE WHEN {old} IS NULL THEN {new} ELSE {joined} END"


def _avg(to: Accumulators, call: AggregateSpec) -> str:
    count, total = _count(to, call), _total(to, call)
    if call.type.startswith("DECIMAL"):
        return f"CASE WHEN {count} > 0 THEN {decimal_mean(total, count, call.argument_types[0], call.type)} END"
    return f"CASE WHEN {count} > 0 THEN ({total})::DOUBLE / {count} END"


def _extreme(function: str, sign: str) -> Callable[[Accumulators, AggregateSpec], str]:
    def make(to: Accumulators, call: AggregateSpec) -> str:
        whole = (function, call.arguments[0]) if call.type in (*_INTEGERS, "TIMESTAMP") else None
        return to.accumulator(_chosen(call.type, f"{function}({call.arguments[0]})", function, sign, whole))

    return make


def _chosen(kind: str, partial: str, function: str, sign: str, whole: tuple[str, str] | None = None) -> Accumulator:
    """The least or the greatest; a null on either side loses."""
    merge = f"CASE WHEN {{o}} IS NULL OR {{d}} {sign} {{o}} THEN {{d}} ELSE {{o}} END"
    return Accumulator(type=kind, partial=partial, fold=function, finish="{f}", merge=merge, whole=whole)


def _extreme_by(function: str, sign: str) -> Callable[[Accumulators, AggregateSpec], str]:
    """The row of the extreme `y`; of equal ones that of the extreme `x`, so that the answer is one."""

    def make(to: Accumulators, call: AggregateSpec) -> str:
        value, by = call.arguments
        kind = f"STRUCT(y {call.argument_types[1]}, x {call.argument_types[0]})"
        row = f"{function}(struct_pack(y := {by}, x := {value})) FILTER (WHERE ({by}) IS NOT NULL)"
        return f"{to.accumulator(_chosen(kind, row, function, sign))}.x"

    return make


def _distances(to: Accumulators, call: AggregateSpec) -> tuple[str, str]:
    """Return SQL for the count of the values and for the sum of their squared distances from the mean."""
    if not to.exact_sums:
        kept = to.accumulator(moments.accumulator(f"({call.arguments[0]})::DOUBLE"))
        squares = f"CASE WHEN {kept}.n = 1 THEN 0 ELSE greatest({kept}.m2, 0) END"
        finite = f"isfinite({kept}.m2) AND isfinite({kept}.mean)"  # one value is at no distance, but for NaN
        return f"{kept}.n", f"CASE WHEN {finite} THEN {squares} ELSE 'nan'::DOUBLE END"
    x, count = to.double(call.arguments[0]), _count(to, call)
    sums = [to.sum(term) for term in (x, x, f"{x} * {x}", moments.product_error(x, x))]
    return count, f"greatest({moments.distances(count, *sums)}, 0)"


def _spread(*, sample: bool, root: bool) -> Callable[[Accumulators, AggregateSpec], str]:
    """Variance or its root; it is null for a sample of one, as in Spark."""

    def make(to: Accumulators, call: AggregateSpec) -> str:
        count, squares = _distances(to, call)
        over, least = (f"({count} - 1)", 1) if sample else (count, 0)
        value = f"({squares}) / {over}"
        return f"CASE WHEN {count} > {least} THEN {f'sqrt({value})' if root else value} END"

    return make


def _paired(to: Accumulators, call: AggregateSpec) -> str:
    """Covariance and its kin: functions of pairs, of which those of regressions have y first."""
    x, y = call.arguments if not call.function.startswith("regr_") else reversed(call.arguments)
    x, y = (to.double(f"CASE WHEN ({other}) IS NOT NULL THEN {one} END") for one, other in ((x, y), (y, x)))
    return regression.result(call.function, regression.Pairs(_count(to, call), x, y, to.sum))


def _shape(to: Accumulators, call: AggregateSpec) -> str:
    """Skewness and kurtosis where rows only come."""
    to.exact = True
    kept = to.accumulator(higher_moments.accumulator(f"({call.arguments[0]})::DOUBLE"))
    return higher_moments.RESULTS[call.function](kept)


def _bits(function: str, joined: str) -> Callable[[Accumulators, AggregateSpec], str]:
    """Bits of whole numbers where rows only come; a null on either side loses."""

    def make(to: Accumulators, call: AggregateSpec) -> str:
        return to.accumulator(_bitwise(call.type, f"{function}({call.arguments[0]})", function, joined))

    return make


def _bitwise(kind: str, partial: str, function: str, joined: str) -> Accumulator:
    merge = f"CASE WHEN {{o}} IS NULL THEN {{d}} WHEN {{d}} IS NULL THEN {{o}} ELSE {joined} END"
    return Accumulator(type=kind, partial=f"({partial})::{kind}", fold=function, finish=f"({{f}})::{kind}", merge=merge)


def _exclusive(to: Accumulators, call: AggregateSpec) -> str:
    """A value that comes twice cancels out, and so does one that is withdrawn."""
    odd = "" if to.insert_only else " FILTER (WHERE _weight % 2 <> 0)"
    kept = to.accumulator(_bitwise(call.type, f"bit_xor({call.arguments[0]}){odd}", "bit_xor", "xor({o}, {d})"))
    return f"CASE WHEN {_count(to, call)} > 0 THEN coalesce({kept}, 0::{call.type}) END"


ACCUMULATED: dict[str, Callable[[Accumulators, AggregateSpec], str]] = {
    "count": _count,
    "sum": _sum,
    "avg": _avg,
    "min": _extreme("min", "<"),
    "max": _extreme("max", ">"),
    "min_by": _extreme_by("min", "<"),
    "max_by": _extreme_by("max", ">"),
    "stddev_samp": _spread(sample=True, root=True),
    "stddev_pop": _spread(sample=False, root=True),
    "var_samp": _spread(sample=True, root=False),
    "var_pop": _spread(sample=False, root=False),
    **dict.fromkeys(regression.RESULTS, _paired),
    **dict.fromkeys(higher_moments.RESULTS, _shape),
    "bit_and": _bits("bit_and", "{o} & {d}"),
    "bit_or": _bits("bit_or", "{o} | {d}"),
    "bit_xor": _exclusive,
}
