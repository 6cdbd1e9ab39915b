"""What groups keep of the values in a multiset: how many there are, the least and the greatest one.

It is brought level by the values that come and go in an epoch: so its cost follows these, not what a group has. Only
where the least or greatest value goes, and no other one comes in its place, the values of its group are looked at.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.kernels.aggregates.aggregate_spec import Accumulator
from headrace.kernels.aggregates.multisets import COUNT_VALUES, GREATEST, LEAST
from headrace.kernels.sql import alike, by_position
from headrace.kernels.state.tables import COUNT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.kernels.duck import Duck

_EXTREMES = {LEAST: ("min", "least", "<="), GREATEST: ("max", "greatest", ">=")}
"""Of a call over a multiset: its function, that of two values, and how such a value is to others."""


@dataclass(frozen=True, slots=True)
class KeptValue:
    """What a group keeps of multiset `number`: the result of `call`, of a type."""

    number: int
    call: str
    type: str

    @staticmethod
    def of(number: int | None, call: str, kind: str) -> KeptValue | None:
        """Return what is kept for a call over a multiset, whose first values are of this type; None: nothing."""
        if number is None or call not in (COUNT_VALUES, *_EXTREMES):
            return None
        return KeptValue(number, call, "BIGINT" if call == COUNT_VALUES else kind)

    @property
    def is_extreme(self) -> bool:
        """Whether it is the least or the greatest value, so that a group's values may be looked at again."""
        return self.call in _EXTREMES

    @property
    def accumulator(self) -> Accumulator:
        """How groups keep it; merged with it is how many values more there are, or a new extreme in a list, or null."""
        fold, merge = "sum", "(coalesce({o}, 0) + coalesce({d}, 0))::BIGINT"
        if self.is_extreme:
            fold, merge = (
                _EXTREMES[self.call][0],
                f"(CASE WHEN {{d}} IS NULL THEN {{o}} ELSE {{d}}[1] END)::{self.type}",
            )
        return Accumulator(type=self.type, partial="NULL", fold=fold, finish=f"({{f}})::{self.type}", merge=merge)


@dataclass(frozen=True, slots=True)
class ValueChanges:
    """The values of a multiset that an epoch touched: relation `touched` has groups, `v0…`, `_n` and the old `o_n`.

    `groups` are the columns of a group, `kept` a relation of the groups as they were, and `values` returns one of the
    values that groups of a relation have now: supersets both.
    """

    duck: Duck
    groups: Sequence[str]
    touched: str
    kept: str
    values: Callable[[str], str]

    def of(self, each: KeptValue, name: str) -> str:
        """Return a relation of the changed groups, each with what its kept value `name` is merged with, as `d`."""
        by = by_position([*self.groups])
        came, went = f"{COUNT} > 0 AND coalesce(o_n, 0) <= 0", f"{COUNT} <= 0 AND o_n > 0"
        if not each.is_extreme:
            more = f"count(*) FILTER ({came}) - count(*) FILTER ({went}) AS d"
            return self._now(f"SELECT {', '.join([*self.groups, more])} FROM {self.touched} {by}")
        function, of_both, reaches = _EXTREMES[each.call]
        ends = [f"{function}(v0) FILTER ({which}) AS {end}" for end, which in (("came", came), ("went", went))]
        changed = f"SELECT {', '.join([*self.groups, *ends])} FROM {self.touched} {by}"
        again = f"c.went IS NOT NULL AND coalesce(c.went {reaches} s.{name}, true)"
        again = f"({again} AND NOT coalesce(c.came {reaches} s.{name}, false)) AS again"
        level = f"{of_both}(s.{name}, c.came) AS level"
        found = self._now(
            f"SELECT {', '.join([*(f'c.{group}' for group in self.groups), again, level])} FROM ({changed}) c "
            f"LEFT JOIN {self.kept} s ON {alike('c', 's', self.groups)}"
        )
        if not self.duck.rows(f"SELECT coalesce(bool_or(again), false) FROM {found}")[0][0]:
            return f"(SELECT {', '.join([*self.groups, '[level] AS d'])} FROM {found})"
        looked = self._looked_at(f"(SELECT * FROM {found} WHERE again)", function)
        new = "[CASE WHEN f.again THEN a.v ELSE f.level END] AS d"
        joined = f"{found} f LEFT JOIN {looked} a ON {alike('f', 'a', self.groups)}"
        return f"(SELECT {', '.join([*(f'f.{group}' for group in self.groups), new])} FROM {joined})"

    def _now(self, sql: str) -> str:
        return self.duck.register(self.duck.arrow(sql))

    def _looked_at(self, those: str, function: str) -> str:
        """Return the extremes of groups from all values that they have."""
        columns = [*(f"g.{group}" for group in self.groups), f"{function}(s.v0) AS v"]
        source = f"{those} g JOIN {self.values(those)} s ON {alike('g', 's', self.groups)}"
        return f"(SELECT {', '.join(columns)} FROM {source} WHERE s.{COUNT} > 0 {by_position([*self.groups])})"
