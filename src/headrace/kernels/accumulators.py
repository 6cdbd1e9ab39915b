"""How each aggregate function is kept: as additive pieces where that is enough, else as a multiset of values.

A piece can be folded and merged in any order, so partial groups may be made anywhere. Counts and sums of integers
and decimals are exact and can be withdrawn from; minima, maxima and their kin can be kept as pieces only where
nothing is ever withdrawn. Variance is kept as count, mean and sum of squared distances (Chan, Golub, LeVeque 1979),
which can be withdrawn from too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.kernels import users
from headrace.kernels.spec import Piece, Values

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.kernels.spec import UserAggregate

_INTEGERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT")
_MOMENTS = "STRUCT(n BIGINT, mean DOUBLE, m2 DOUBLE)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """An aggregate call to be kept: canonical function, arguments as SQL over the input, their types, result type.

    `user` is the user's own aggregate, given the rows that meet `where`.
    """

    function: str
    arguments: tuple[str, ...]
    argument_types: tuple[str, ...]
    distinct: bool
    type: str
    user: UserAggregate | None = None
    where: str | None = None


class Accumulators:
    """Collects the pieces and multisets that a set of calls needs; equal ones are kept once."""

    def __init__(self, *, insert_only: bool) -> None:
        self.insert_only = insert_only
        self.pieces: list[Piece] = []
        self.values: list[Values] = []
        self.calls: list[str] = []
        self.from_values: list[int | None] = []
        self.users: list[UserAggregate] = []

    def add(self, call: Call) -> None:
        """Keep what a call needs; its result is `_a{i}` for the i-th call added."""
        if call.user is not None:
            self.calls.append(self._users(call.user, call))
            self.from_values.append(None)
        elif (
            call.distinct
            or call.function in _FROM_VALUES_ALWAYS
            or (call.function in _EXTREMES and not self.insert_only)
        ):
            self._from_values(call)
        else:
            self.calls.append(_PIECES[call.function](self, call))
            self.from_values.append(None)

    def piece(self, piece: Piece) -> str:
        """Return the name of a piece, made once."""
        if piece not in self.pieces:
            self.pieces.append(piece)
        return f"p{self.pieces.index(piece)}"

    def weighted(self, value: str) -> str:
        """Return SQL for `value` times the row's weight."""
        return value if self.insert_only else f"({value}) * _weight"

    def _users(self, user: UserAggregate, call: Call) -> str:
        made = users.pieces(user, call.arguments, call.where, insert_only=self.insert_only)
        if user not in self.users:
            self.users.append(user)
        result = made.pop("result")
        return result.format(p=self.piece(Piece(fold="list", **made)))

    def _from_values(self, call: Call) -> None:
        present = [f"({sql}) IS NOT NULL" for sql in _judged(call)]
        columns = tuple((f"v{i}", kind) for i, kind in enumerate(call.argument_types))
        kept = Values(columns=columns, partial=call.arguments, where=" AND ".join(present) or "true")
        if kept not in self.values:
            self.values.append(kept)
        self.calls.append(_FROM_VALUES[call.function](call))
        self.from_values.append(self.values.index(kept))


def _judged(call: Call) -> Sequence[str]:
    """Return the arguments whose nulls make the call skip a row."""
    return call.arguments[1:] if call.function in ("min_by", "max_by") else call.arguments


# ---- pieces -----------------------------------------------------------------------------------------------


def _count(to: Accumulators, call: Call) -> str:
    if not call.arguments:
        return "_n"
    every = " AND ".join(f"({sql}) IS NOT NULL" for sql in call.arguments)
    made = f"count({call.arguments[0]})" if len(call.arguments) == 1 else f"count(*) FILTER (WHERE {every})"
    if not to.insert_only:
        made = f"coalesce(sum(_weight) FILTER (WHERE {every}), 0)"
    return to.piece(_added("BIGINT", f"({made})::BIGINT"))


def _added(kind: str, partial: str) -> Piece:
    merge = f"(coalesce({{o}}, 0) + {{d}})::{kind}"
    return Piece(type=kind, partial=partial, fold="sum", finish=f"({{f}})::{kind}", merge=merge)


def _sum(to: Accumulators, call: Call) -> str:
    """A sum is null until a value comes, so its count is kept beside it."""
    total = _total(to, call)
    return f"CASE WHEN {_count(to, call)} > 0 THEN {_held(total, call.type)} END"


def _held(total: str, kind: str) -> str:
    """Return SQL for a total in its type; a bigint that cannot hold it raises under Spark's condition."""
    if kind != "BIGINT":
        return f"({total})::{kind}"
    message = "[ARITHMETIC_OVERFLOW] the sum does not fit into a bigint; sum(cast(x as decimal(38,0))) holds it"
    fits = f"({total}) BETWEEN {-(2**63)}::HUGEINT AND {2**63 - 1}::HUGEINT"
    return f"CASE WHEN {fits} THEN ({total})::BIGINT ELSE error('{message}') END"


def _total(to: Accumulators, call: Call) -> str:
    argument, kind = call.arguments[0], call.argument_types[0]
    if kind in ("FLOAT", "DOUBLE"):
        return _double_total(to, argument)
    exact = "HUGEINT" if kind in _INTEGERS else f"DECIMAL(38,{_scale(kind)})"
    value = to.weighted(argument if to.insert_only else f"({argument})::{exact}")
    return to.piece(_added(exact, f"coalesce(sum({value}), 0)::{exact}"))


def _double_total(to: Accumulators, argument: str) -> str:
    """Keep a sum and its rounding error (Knuth's two-sum), so that withdrawals do not make it drift."""
    name = to.piece(
        Piece(
            type="STRUCT(s DOUBLE, e DOUBLE)",
            partial=f"struct_pack(s := coalesce(fsum({to.weighted(f'({argument})::DOUBLE')}), 0), e := 0::DOUBLE)",
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


def _avg(to: Accumulators, call: Call) -> str:
    count, total = _count(to, call), _total(to, call)
    if call.type.startswith("DECIMAL"):
        return f"CASE WHEN {count} > 0 THEN {_decimal_mean(total, count, call.type)} END"
    return f"CASE WHEN {count} > 0 THEN ({total})::DOUBLE / {count} END"


def _decimal_mean(total: str, count: str, kind: str) -> str:
    """Divide exactly, half up, in whole numbers of the result's last digit: DuckDB would divide as doubles."""
    scale = _scale(kind)
    digits = f"CAST(replace((({total})::DECIMAL(38,{scale}))::VARCHAR, '.', '') AS HUGEINT)"
    half = f"((abs({digits}) * 2 + {count}) // (2 * {count}))"
    text = f"lpad({half}::VARCHAR, greatest({scale + 1}, length({half}::VARCHAR))::INTEGER, '0')"
    sign = f"CASE WHEN {digits} < 0 THEN '-' ELSE '' END"
    if scale == 0:
        return f"({sign} || {text})::{kind}"
    return f"({sign} || left({text}, length({text}) - {scale}) || '.' || right({text}, {scale}))::{kind}"


def _extreme(function: str, sign: str) -> Callable[[Accumulators, Call], str]:
    def make(to: Accumulators, call: Call) -> str:
        return to.piece(_chosen(call.type, f"{function}({call.arguments[0]})", function, sign))

    return make


def _chosen(kind: str, partial: str, function: str, sign: str) -> Piece:
    """The least or the greatest; a null on either side gives way."""
    merge = f"CASE WHEN {{o}} IS NULL OR {{d}} {sign} {{o}} THEN {{d}} ELSE {{o}} END"
    return Piece(type=kind, partial=partial, fold=function, finish="{f}", merge=merge)


def _extreme_by(function: str, sign: str) -> Callable[[Accumulators, Call], str]:
    """The row of the extreme `y`; of equal ones that of the extreme `x`, so that the answer is one."""

    def make(to: Accumulators, call: Call) -> str:
        value, by = call.arguments
        kind = f"STRUCT(y {call.argument_types[1]}, x {call.argument_types[0]})"
        row = f"{function}(struct_pack(y := {by}, x := {value})) FILTER (WHERE ({by}) IS NOT NULL)"
        return f"{to.piece(_chosen(kind, row, function, sign))}.x"

    return make


def _moments(to: Accumulators, call: Call) -> str:
    argument = f"({call.arguments[0]})::DOUBLE"

    def made(where: str, sign: str) -> str:
        rows = f"FILTER (WHERE ({argument}) IS NOT NULL{where})"
        count = f"(count(*) {rows})"
        return (
            f"struct_pack(n := ({sign}{count})::BIGINT, mean := coalesce(avg({argument}) {rows}, 0)::DOUBLE, "
            f"m2 := ({sign}coalesce(var_pop({argument}) {rows} * {count}, 0))::DOUBLE)"
        )

    if to.insert_only:
        kind, partial = _MOMENTS, made("", "")
        joined = _joined
    else:
        kind = f"STRUCT(came {_MOMENTS}, went {_MOMENTS})"
        partial = f"struct_pack(came := {made(' AND _weight > 0', '')}, went := {made(' AND _weight < 0', '-')})"
        joined = _joined_sides
    piece = Piece(
        type=kind,
        partial=partial,
        fold="list",
        finish=f"list_reduce({{f}}, lambda x, y: {joined('x', 'y')})",
        merge=_kept_or("{o}", "{d}", joined("{o}", "{d}")) if to.insert_only else _withdrawn("{o}", "{d}"),
    )
    return to.piece(piece) if to.insert_only else f"{to.piece(piece)}.came"


def _joined_sides(x: str, y: str) -> str:
    came, went = _joined(f"{x}.came", f"{y}.came"), _joined(f"{x}.went", f"{y}.went")
    return f"struct_pack(came := {came}, went := {went})"


def _withdrawn(old: str, new: str) -> str:
    """Add what came, then take away what went: the two must not meet before, or a row that is replaced is lost."""
    nothing = "struct_pack(n := 0::BIGINT, mean := 0::DOUBLE, m2 := 0::DOUBLE)"
    came = _kept_or(old, f"{new}.came", _joined(f"{old}.came", f"{new}.came"))
    left = f"list_reduce([{came}, {new}.went], lambda x, y: {_joined('x', 'y')})"
    return f"struct_pack(came := {left}, went := {nothing})"


def _joined(x: str, y: str) -> str:
    count = f"({x}.n + {y}.n)"
    apart = f"({y}.mean - {x}.mean)"
    mean = f"{x}.mean + {apart} * {y}.n / {count}"
    m2 = f"{x}.m2 + {y}.m2 + {apart} * {apart} * {x}.n * {y}.n / {count}"
    return (
        f"struct_pack(n := {count}, mean := CASE WHEN {count} = 0 THEN 0 ELSE {mean} END, "
        f"m2 := CASE WHEN {count} = 0 THEN 0 ELSE {m2} END)"
    )


def _spread(*, sample: bool, root: bool) -> Callable[[Accumulators, Call], str]:
    """Variance or its root; Spark gives null for a sample of one, as we do."""

    def make(to: Accumulators, call: Call) -> str:
        m = _moments(to, call)
        over, least = (f"({m}.n - 1)", 1) if sample else (f"{m}.n", 0)
        spread = f"CASE WHEN {m}.n = 1 THEN 0 ELSE greatest({m}.m2, 0) END / {over}"
        value = f"CASE WHEN isfinite({m}.m2) THEN {spread} ELSE 'nan'::DOUBLE END"
        return f"CASE WHEN {m}.n > {least} THEN {f'sqrt({value})' if root else value} END"

    return make


def _scale(kind: str) -> int:
    return int(kind.rstrip(")").rpartition(",")[2])


_PIECES: dict[str, Callable[[Accumulators, Call], str]] = {
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
}

# ---- from a multiset: SQL aggregates over v0…, with the count _n of each value ----------------------------

_EXTREMES = ("min", "max", "min_by", "max_by")
_FROM_VALUES_ALWAYS = ("collect_list", "collect_set")


def _distinct_avg(call: Call) -> str:
    if call.type.startswith("DECIMAL"):
        total = f"sum(v0)::DECIMAL(38,{_scale(call.argument_types[0])})"
        return f"CASE WHEN count(*) > 0 THEN {_decimal_mean(total, 'count(*)', call.type)} END"
    return "avg(v0)::DOUBLE"


_FROM_VALUES: dict[str, Callable[[Call], str]] = {
    "count": lambda _: "count(*)",
    "sum": lambda call: _held("sum(v0)", call.type),
    "avg": _distinct_avg,
    "min": lambda _: "min(v0)",
    "max": lambda _: "max(v0)",
    "min_by": lambda _: "min(struct_pack(y := v1, x := v0)).x",
    "max_by": lambda _: "max(struct_pack(y := v1, x := v0)).x",
    "collect_set": lambda _: "coalesce(list(v0 ORDER BY v0), [])",
    "collect_list": lambda _: "coalesce(flatten(list(list_resize([v0], _n, v0) ORDER BY v0)), [])",
    "stddev_samp": lambda _: "stddev_samp(v0)",
    "stddev_pop": lambda _: "stddev_pop(v0)",
    "var_samp": lambda _: "var_samp(v0)",
    "var_pop": lambda _: "var_pop(v0)",
}
