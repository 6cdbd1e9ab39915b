"""A grouped aggregate as a plain value, and the tables that it keeps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headrace.kernels.aggregates import higher_moments, superaccumulator
from headrace.kernels.aggregates.users import define
from headrace.kernels.groups.kept_values import KeptValue
from headrace.kernels.state.tables import TableSpec

if TYPE_CHECKING:
    from headrace.kernels.aggregates.aggregate_spec import Accumulator, Form, Layers, Multiset, UserAggregate
    from headrace.kernels.duck import Duck
    from headrace.kernels.groups.windows import Panes, Session, Sliding

GROUPS = "groups"
HELD = "held"
"""Rows whose own sliding window was closed when they came, and that no open window has yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouping:
    """A grouped aggregate: what is kept, and how results are computed from it.

    Inside, keys are `k0…`, accumulators `p0…`. `calls[i]` is SQL for `_a{i}`: over the accumulators' names, or, where
    `from_multiset[i]` is a number, an aggregate over that multiset's columns `v0…` and count `_n`.
    `results` are SQL over `_a{i}` and the keys' own names. `users` are the user's aggregates that the SQL calls.
    `layers` are columns that accumulators read in addition to those of the rows; `exact`: the SQL calls the functions
    of exact sums, or of higher moments. The values of the multisets `ranked` have ranks: `_upto`, how many are not
    above, and `_all`, how many there are.
    """

    keys: tuple[tuple[str, str, str], ...]  # name, SQL over the input's columns, type
    panes: Panes | None
    final: bool
    insert_only: bool
    accumulators: tuple[Accumulator, ...]
    multisets: tuple[Multiset, ...]
    calls: tuple[str, ...]
    from_multiset: tuple[int | None, ...]
    results: tuple[tuple[str, str, str], ...]  # name, SQL, type
    users: tuple[UserAggregate, ...] = ()
    session: Session | None = None
    sliding: Sliding | None = None
    layers: Layers = ()
    exact: bool = False
    ranked: frozenset[int] = frozenset()
    forms: tuple[Form | None, ...] = ()
    """What calls are without SQL, where that is known."""
    held: tuple[tuple[str, str], ...] = ()
    """The columns of the input and their types, where rows wait for a window that takes them, else are late."""
    values: tuple[KeptValue, ...] = ()
    """What groups keep of their multisets, behind the accumulators."""

    @property
    def late_after_exchange(self) -> bool:
        """Whether rows that may be late travel along: only where the state is, it is known whether they are."""
        return self.session is not None or bool(self.held)

    @property
    def windowed(self) -> bool:
        """Whether results are of windows."""
        return self.panes is not None or self.session is not None or self.sliding is not None

    @property
    def reads_twice(self) -> bool:
        """Whether its rows are gone through more than once."""
        return bool(self.multisets or self.session or (self.panes and self.panes.calendar))

    @property
    def kept(self) -> tuple[Accumulator, ...]:
        """What a group keeps: `p0…`, the accumulators and then what it keeps of its multisets."""
        return (*self.accumulators, *(each.accumulator for each in self.values))

    @property
    def read_values(self) -> tuple[int, ...]:
        """The multisets whose values results are computed from."""
        return tuple(sorted({number for number in self.from_multiset if number is not None}))

    @property
    def simple(self) -> bool:
        """Whether a result can be computed from one kept row alone."""
        return not self.read_values and (self.panes is None or self.panes.pane == self.panes.size == self.panes.every)


def tables(grouping: Grouping) -> tuple[TableSpec, ...]:
    """Return the tables that a grouping keeps."""
    keys = tuple((f"k{i}", kind) for i, (_, _, kind) in enumerate(grouping.keys))
    if grouping.windowed:
        keys = (*keys, ("_pane", "BIGINT"))
    accumulators = tuple((f"p{i}", kept.type) for i, kept in enumerate(grouping.kept))
    if grouping.session:
        accumulators = (("_last", "BIGINT"), *accumulators)
    group = tuple(name for name, _ in keys)
    by = () if grouping.windowed else (group,)  # windows that close are found by scanning
    specs = [TableSpec(name=GROUPS, keys=keys, values=accumulators, by=by)]
    for number, multiset in enumerate(grouping.multisets):
        value = (*group, *(name for name, _ in multiset.columns))
        looked_at = {*grouping.read_values, *(each.number for each in grouping.values if each.is_extreme)}
        found = (value, group) if number in looked_at else (value,)
        specs.append(TableSpec(name=f"values{number}", keys=(*keys, *multiset.columns), values=(), by=by and found))
    if grouping.held:
        columns = tuple((f"c{i}", kind) for i, (_, kind) in enumerate(grouping.held))
        specs.append(TableSpec(name=HELD, keys=(*columns, ("_pane", "BIGINT")), values=()))
    return tuple(specs)


def with_kept_values(grouping: Grouping) -> Grouping:
    """Return a grouping that keeps results of multisets beside its groups, where it can: windows have one pane."""
    calls, sources = list(grouping.calls), list(grouping.from_multiset)
    kept: dict[KeptValue, str] = {}
    for i, (call, number) in enumerate(zip(grouping.calls, grouping.from_multiset, strict=True)):
        kind = "" if number is None else grouping.multisets[number].columns[0][1]
        each = KeptValue.of(number, call, kind)
        if each is not None:
            calls[i] = kept.setdefault(each, f"p{len(grouping.accumulators) + len(kept)}")
            sources[i] = None
    return replace(grouping, values=tuple(kept), calls=tuple(calls), from_multiset=tuple(sources))


class CallsAggregates:
    """An operation of a grouped aggregate: its SQL may call aggregates of the user's, exact sums and higher moments."""

    __slots__ = ()

    step: str
    grouping: Grouping

    @property
    def calls_users(self) -> bool:
        """Whether aggregates of the user's are among the calls."""
        return bool(self.grouping.users)

    def define(self, duck: Duck) -> None:
        """Make these aggregates, exact sums and higher moments callable."""
        define(duck, self.step, self.grouping.users)
        if self.grouping.exact:
            superaccumulator.define(duck)
            higher_moments.define(duck)
