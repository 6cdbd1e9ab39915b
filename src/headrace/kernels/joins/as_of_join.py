"""Rows of a stream, each beside the version of a table that was valid at a time of the row's; final when it comes out.

A version is what a record of the table said: valid from the record's time until the next version of its key, of several
of one time the later arrival's. A delete is a version too: from then on there is no row. State is

`versions`   by key and time, with the time of the next (`_until`) and whether the row is gone from then on;
`waiting`    the stream's rows whose answer may still change, which age by the time that they ask for.

A row is answered when the watermark has passed its time `_at` by more than `grace`, and what the epoch brings of the
table counts. A version is dropped when the next one is valid from `horizon` on, which is `grace` and `history` behind
the watermark: no row may ask for it any more. A row whose time is before the horizon is answered by what is still kept,
which is right or nothing: a version that comes late and would be dropped at once is not kept at all, so that it answers
for no other. A key that is gone is forgotten at the horizon too. The trap: an older version of it that comes still
later, against the promise of the watermark, is taken for a new row.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.kernels.dedupe import judged
from headrace.kernels.duck import without_zones
from headrace.kernels.firsts import distinct
from headrace.kernels.groups.grouped import Counts
from headrace.kernels.joins.lookup_join import ALWAYS, NEVER, all_known
from headrace.kernels.joins.version_search import latest
from headrace.kernels.order import PLACE, in_place, placed
from headrace.kernels.state.state import COUNT, TableSpec, alike, with_nulls

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.kernels.duck import Duck
    from headrace.kernels.spec import AsOfJoin
    from headrace.kernels.state.keyed import KeyedState

    Flags = np.ndarray[Any, np.dtype[np.bool_]]

VERSIONS, WAITING = "versions", "waiting"
_AT = "_at"


def tables(op: AsOfJoin) -> tuple[TableSpec, TableSpec]:
    """Return the tables that are kept."""
    others = tuple(column for column in op.join.right if column[0] not in op.identity)
    keys = tuple(column for column in op.join.right if column[0] in op.identity)
    return (
        TableSpec(
            name=VERSIONS,
            keys=(*keys, ("_from", "BIGINT")),
            values=(*others, ("_until", "BIGINT"), ("_gone", "BOOLEAN")),
            by=tuple(dict.fromkeys((op.identity, _shared(op)))),
        ),
        TableSpec(name=WAITING, keys=(), values=(*op.join.left, ("_time", "BIGINT")), ages=op.at),
    )


def _shared(op: AsOfJoin) -> tuple[str, ...]:
    """Return the table's columns in which rows agree with those of the stream."""
    return tuple(there for _, there in op.join.on)


@dataclass
class AsOfJoining:
    """One epoch of one join in one shard; `run` fills what comes out, what is late, and the counts."""

    duck: Duck
    op: AsOfJoin
    state: KeyedState
    watermark: int | None
    previous: int | None
    out: list[pa.Table] = field(default_factory=list)
    late: list[pa.Table] = field(default_factory=list)
    counts: Counts = field(default_factory=Counts)

    def run(self, left: list[pa.Table], right: list[pa.Table]) -> None:
        """Take versions in, answer the rows whose time has come, keep the others, and drop what none may ask for."""
        keys = list(_shared(self.op))
        parts = [part for part in (p.filter(all_known(p, keys)) for p in right) if part.num_rows]
        if parts:
            self._take(parts)
        came = self._in_time(left)
        due = None if came is None else self._due(came)
        ready = self._ready(came, due)
        if ready:
            self._answer(pa.concat_tables(ready))
        if self.watermark is not None and self.watermark != self.previous:
            self._forget(self.watermark)
        if came is not None:
            self.state.put(WAITING, came.filter(pc.invert(due)))
        self.state.oldest = self.state.least(WAITING, "_time")
        self.counts.rows_out = sum(part.num_rows for part in self.out)

    # ---- what the table says ----

    @property
    def _others(self) -> list[str]:
        return [name for name, _ in self.op.join.right if name not in self.op.identity]

    @property
    def _horizon(self) -> int | None:
        """The time before which versions have been dropped."""
        return None if self.previous is None else self.previous - self.op.grace - self.op.history

    def _take(self, parts: list[pa.Table]) -> None:
        """Put records into the versions: each at its time, until the next one."""
        nulls = with_nulls(parts)
        fresh = self.duck.arrow(self._fresh(self._dated(parts, nulls), once=self._once(parts, nulls)))
        came, key = self.duck.register(fresh), ", ".join(self.op.identity)
        names = [*self.op.identity, "_from", *self._others, "_gone"]
        first = f"SELECT {key}, min(_from) AS first FROM {came} GROUP BY {key}"
        known = self.duck.arrow(
            f"SELECT {_of('s', names)}, s._until AS o_until, s.rowid AS o_row "
            f"FROM {self.state.lookup(VERSIONS, self.op.identity, came)} s JOIN ({first}) f "
            f"ON {alike('s', 'f', self.op.identity, nulls=nulls)} AND s._until > f.first"
        )
        near, same = self.duck.register(known), alike("n", "c", [*self.op.identity, "_from"], nulls=nulls)
        either = (
            f"SELECT {', '.join(names)}, o_until, o_row, false AS is_new FROM {near} n "
            f"ANTI JOIN {came} c ON {same} UNION ALL SELECT {_of('c', names)}, NULL, n.o_row, true "
            f"FROM {came} c LEFT JOIN {near} n ON {same}"
        )
        until = f"coalesce(lead(_from) OVER (PARTITION BY {key} ORDER BY _from), {NEVER}) AS _until"
        changed = "is_new OR _until <> o_until"
        made = self.duck.arrow(
            f"SELECT *, {self._count()} AS {COUNT} FROM (SELECT *, {until} FROM ({either})) WHERE {changed}"
        )
        made = made.filter(pc.or_(pc.greater(made.column(COUNT), 0), pc.is_valid(made.column("o_row"))))
        self.state.replace(VERSIONS, made.select([*self.state.tables[VERSIONS].columns, "o_row"]), at="o_row")

    def _count(self) -> str:
        """Return SQL that is 0 for a version that came so late that it is over already."""
        return (
            "1::BIGINT" if self._horizon is None else f"CASE WHEN _until <= {self._horizon} THEN 0 ELSE 1 END::BIGINT"
        )

    def _dated(self, parts: list[pa.Table], nulls: frozenset[str]) -> str:
        """Return SQL for the records with their times; a delete without one has that of the last version before it."""
        rows = " UNION ALL ".join(f"SELECT * FROM {self.duck.register(part)}" for part in parts)
        if "_time" not in nulls:
            return f"SELECT *, _time AS _from FROM ({rows})"
        key = self.op.identity
        last = (
            f"SELECT {_of('s', key)}, max(s._from) AS last FROM {self.state.lookup(VERSIONS, key, f'({rows})')} s "
            f"SEMI JOIN ({rows}) d ON {alike('s', 'd', key)} GROUP BY ALL"
        )
        before = f"max(d._time) OVER (PARTITION BY {_of('d', key)} ORDER BY d.{PLACE})"
        dated = (
            f"SELECT d.*, coalesce(d._time, greatest({before}, l.last)) AS _from FROM ({rows}) d "
            f"LEFT JOIN ({last}) l ON {alike('d', 'l', key)}"
        )
        return f"SELECT * FROM ({dated}) WHERE _from IS NOT NULL"

    def _once(self, parts: list[pa.Table], nulls: frozenset[str]) -> bool:
        """Return whether it is plain that no two records are of one key and time."""
        if "_time" in nulls:
            return False
        rows = pa.concat_tables([part.select([*self.op.identity, "_time"]) for part in parts])
        return distinct([rows.column(name) for name in self.op.identity], rows.column("_time").to_numpy())

    def _fresh(self, dated: str, *, once: bool) -> str:
        """Return SQL for one version of each key and time: the later arrival's."""
        names = [*self.op.identity, "_from", *self._others]
        last = f"row_number() OVER (PARTITION BY {', '.join(self.op.identity)}, _from ORDER BY {PLACE} DESC) = 1"
        return f"SELECT {', '.join(names)}, _weight < 0 AS _gone FROM ({dated}){'' if once else f' QUALIFY {last}'}"

    # ---- what the stream asks ----

    def _in_time(self, left: list[pa.Table]) -> pa.Table | None:
        """Return the rows in time; the late ones are put aside."""
        taken, late, self.counts = judged(left, self.op.grace, self.watermark)
        self.late = [self._alone(part) for part in late]
        if not taken:
            return None
        names = [name for name, _ in self.op.join.left]
        rows = pa.concat_tables([part.select([*names, "_time"]) for part in taken], promote_options="permissive")
        return without_zones(rows)

    def _due(self, came: pa.Table) -> pa.ChunkedArray:
        """Return for each row whether its answer is final; one without a time has nothing to wait for."""
        at = self._at(came)
        return pc.is_null(at) if self.watermark is None else pc.fill_null(pc.less(at, self._past), fill_value=True)

    def _at(self, rows: pa.Table) -> pa.ChunkedArray:
        """Return the times that rows ask for."""
        return rows.column(self.op.at).cast(pa.int64())

    @property
    def _past(self) -> int:
        """The time before which answers are final."""
        assert self.watermark is not None  # noqa: S101 -- checked before
        return self.watermark - self.op.grace

    def _ready(self, came: pa.Table | None, due: pa.ChunkedArray | None) -> list[pa.Table]:
        """Return the rows to answer now: those that waited, then those that came."""
        ready = [came.filter(due)] if came is not None else []
        if self.watermark is not None and self.watermark != self.previous:
            ready = [*self.state.between(WAITING, None, self._past - 1), *ready]
        return [part for part in ready if part.num_rows]

    def _answer(self, ready: pa.Table) -> None:
        """Give out rows beside their versions, in the order in which they came."""
        rows, met = self._beside_one(ready) or self._beside_several(ready)
        if self._horizon is not None:
            alone = self._at(ready).filter(pa.array(~met))
            self.counts.too_old += pc.sum(pc.less(alone, self._horizon)).as_py() or 0
        if rows.num_rows:
            self.out.append(self._given(self.duck.register(rows)))

    def _beside_one(self, ready: pa.Table) -> tuple[pa.Table, Flags] | None:
        """Return rows beside the one version that each may meet, and which do; None where SQL must find them."""
        shared, asking = _shared(self.op), [here for here, _ in self.op.join.on]
        if set(shared) != set(self.op.identity):
            return None
        probe = [ready.column(name) for name in asking]
        parts = [part for part in self.state.found(VERSIONS, shared, probe, ready.num_rows) if part.num_rows]
        if not parts:
            return None
        versions = pa.concat_tables(parts).combine_chunks()
        keys, since = [versions.column(name) for name in shared], versions.column("_from").to_numpy()
        found = latest(probe, self._at(ready).fill_null(ALWAYS).to_numpy(), keys, since)
        if found is None:
            return None
        met = (found >= 0) & ~versions.column("_gone").to_numpy()[found]
        versions = versions.select([name for name, _ in self.op.join.right])
        if self.op.join.where:
            beside = self.duck.register(_joined(ready.filter(pa.array(met)), versions.take(pa.array(found[met]))))
            meets = self.duck.arrow(f"SELECT coalesce(({self.op.join.where})::BOOLEAN, false) FROM {beside}")
            met[met] = meets.column(0).to_numpy()
        if self.op.join.how == "left":
            return _joined(ready, versions.take(pa.array(found, mask=~met))), met
        return _joined(ready.filter(pa.array(met)), versions.take(pa.array(found[met]))), met

    def _beside_several(self, ready: pa.Table) -> tuple[pa.Table, Flags]:
        """Return rows beside the versions of the keys that agree with theirs, found by SQL, and which meet any."""
        (ready,) = placed([ready.append_column(_AT, self._at(ready))])
        columns = [*(name for name, _ in (*self.op.join.left, *self.op.join.right)), "_time", PLACE]
        valid = "NOT _gone" + (f" AND ({self.op.join.where})" if self.op.join.where else "")
        beside = self._versions_of(self.duck.register(ready))
        found = self.duck.arrow(f"SELECT {', '.join(columns)} FROM {beside} WHERE {valid}")
        met = np.zeros(ready.num_rows, dtype=np.bool_)
        met[found.column(PLACE).to_numpy()] = True
        if self.op.join.how == "left":
            alone = self.duck.register(ready.filter(pa.array(~met)))
            nulls = self.duck.arrow(f"SELECT {', '.join(columns)} FROM (SELECT *, {self._nothing} FROM {alone})")
            found = pa.concat_tables([found, nulls])
        return in_place(found, len(columns) - 1), met

    def _versions_of(self, probe: str) -> str:
        """Return SQL for each asking row and the last versions of its time or before, one of each key."""
        agree = " AND ".join(f"{here} = {there}" for here, there in self.op.join.on)
        asking = [here for here, _ in self.op.join.on]
        shared = _shared(self.op)
        versions = f"(FROM {self.state.lookup(VERSIONS, shared, probe, named=asking)} v SEMI JOIN {probe} a ON {agree})"
        if set(shared) == set(self.op.identity):
            return f"{probe} a ASOF JOIN {versions} v ON {agree} AND a.{_AT} >= v._from"
        ids = [f"{name} AS i{i}" for i, name in enumerate(self.op.identity)]
        known = f"(SELECT DISTINCT {', '.join([*ids, *shared])} FROM {versions})"
        each = f"(SELECT a.*, k.* EXCLUDE ({', '.join(shared)}) FROM {probe} a JOIN {known} k ON {agree})"
        same = " AND ".join(f"e.i{i} IS NOT DISTINCT FROM v.{name}" for i, name in enumerate(self.op.identity))
        return f"{each} e ASOF JOIN {versions} v ON {same} AND e.{_AT} >= v._from"

    @property
    def _nothing(self) -> str:
        """The table's columns where there is no row of it, in SQL."""
        return ", ".join(f"NULL::{kind} AS {name}" for name, kind in self.op.join.right)

    def _alone(self, part: pa.Table) -> pa.Table:
        """Return rows of the stream as rows of the join, with nothing beside them."""
        return self._given(f"(SELECT *, {self._nothing} FROM {self.duck.register(part)})")

    def _given(self, rows: str) -> pa.Table:
        """Return what comes out of rows of both sides."""
        gives = [f"({sql})::{kind} AS g{i}" for i, (_, sql, kind) in enumerate(self.op.join.gives)]
        made = self.duck.arrow(f"SELECT {', '.join([*gives, '1::INTEGER AS _weight', '_time'])} FROM {rows}")
        return made.rename_columns([*(name for name, _, _ in self.op.join.gives), "_weight", "_time"])

    # ---- what is kept ----

    def _forget(self, watermark: int) -> None:
        """Drop the rows that have been answered, and the versions that none may ask for."""
        horizon = watermark - self.op.grace - self.op.history
        over = f"_until <= {horizon} OR (_gone AND _until = {NEVER} AND _from <= {horizon})"
        self.state.expire(WAITING, self._past)
        self.state.evict(VERSIONS, over, of=("_until", "_gone", "_from"))


def _joined(left: pa.Table, right: pa.Table) -> pa.Table:
    """Return the columns of two tables of as many rows."""
    return pa.table([*left.columns, *right.columns], names=[*left.column_names, *right.column_names])


def _of(alias: str, names: Iterable[str]) -> str:
    return ", ".join(f"{alias}.{name}" for name in names)
