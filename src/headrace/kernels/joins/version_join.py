"""Rows of a stream, each beside the version of a table that was valid at a time of the row's; final when it comes out.

A version is what a record of the table said: valid from the record's time until the next version of its key, of several
of one time the later arrival's. A delete is a version too: from then on there is no row. State is

`versions`   by key and time, with the time of the next (`_until`) and whether the row is gone from then on;
`waiting`    the stream's rows whose answer may still change, under numbers of their own.

A row is answered when the watermark has passed its time `_at` by more than `grace`, and what the epoch brings of the
table counts. A version is dropped when the next one is valid from `horizon` on, which is `grace` and `history` behind
the watermark: no row may ask for it any more. A row whose time is before the horizon is answered by what is still kept,
which is right or nothing: a version that comes late and would be dropped at once is not kept at all, so that it answers
for no other. A key that is gone is forgotten at the horizon too. The trap: an older version of it that comes still
later, against the promise of the watermark, is taken for a new row.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.kernels.dedupe import judged
from headrace.kernels.duck import without_zones
from headrace.kernels.groups.grouped import Counts
from headrace.kernels.joins.lookup_join import NEVER, all_known
from headrace.kernels.order import PLACE, in_place, placed
from headrace.kernels.state.state import COUNT, TableSpec, alike, with_nulls

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.kernels.duck import Duck
    from headrace.kernels.spec import VersionJoin
    from headrace.kernels.state.state import State

VERSIONS, WAITING = "versions", "waiting"
_ROW_BITS = 32  # a shard gets fewer rows in an epoch than this, and an app fewer epochs than the rest


def tables(op: VersionJoin) -> tuple[TableSpec, TableSpec]:
    """Return the tables that are kept."""
    times = (("_at", "BIGINT"), ("_time", "BIGINT"))
    others = tuple(column for column in op.meeting.right if column[0] not in op.identity)
    keys = tuple(column for column in op.meeting.right if column[0] in op.identity)
    return (
        TableSpec(
            name=VERSIONS,
            keys=(*keys, ("_from", "BIGINT")),
            values=(*others, ("_until", "BIGINT"), ("_gone", "BOOLEAN")),
        ),
        TableSpec(name=WAITING, keys=(("_row", "BIGINT"),), values=(*op.meeting.left, *times)),
    )


@dataclass
class Dating:
    """One epoch of one join in one shard; `run` fills what comes out, what is late, and the counts."""

    duck: Duck
    op: VersionJoin
    state: State
    epoch: int
    watermark: int | None
    previous: int | None
    out: list[pa.Table] = field(default_factory=list)
    late: list[pa.Table] = field(default_factory=list)
    counts: Counts = field(default_factory=Counts)

    def run(self, left: list[pa.Table], right: list[pa.Table]) -> None:
        """Take versions in, answer the rows whose time has come, keep the others, and drop what none may ask for."""
        parts = [part for part in (p.filter(all_known(p, self._shared)) for p in right) if part.num_rows]
        if parts:
            self._take(parts)
        came = self._in_time(left)
        due = None if came is None else self._due(came)
        ready = self._ready(came, due)
        if ready:
            self._answer(pa.concat_tables(ready))
        if came is not None:
            self._keep(came.filter(pc.invert(due)))
        if self.watermark is not None and self.watermark != self.previous:
            self._forget(self.watermark)
        self.state.oldest = self.duck.rows(f"SELECT min(_time) FROM {self.state.name(WAITING)}")[0][0]
        self.counts.rows_out = sum(part.num_rows for part in self.out)

    # ---- what the table says ----

    @property
    def _shared(self) -> list[str]:
        """The table's columns in which rows agree with those of the stream."""
        return [there for _, there in self.op.meeting.on]

    @property
    def _others(self) -> list[str]:
        return [name for name, _ in self.op.meeting.right if name not in self.op.identity]

    @property
    def _horizon(self) -> int | None:
        """The time before which versions have been dropped."""
        return None if self.previous is None else self.previous - self.op.grace - self.op.history

    def _take(self, parts: list[pa.Table]) -> None:
        """Put records into the versions: each at its time, until the next one."""
        nulls = with_nulls(parts)
        fresh = self.duck.arrow(self._fresh(self._dated(parts, nulls)))
        came, key = self.duck.register(fresh), ", ".join(self.op.identity)
        names = [*self.op.identity, "_from", *self._others, "_gone"]
        first = f"SELECT {key}, min(_from) AS first FROM {came} GROUP BY {key}"
        near = (
            f"SELECT {_of('s', names)}, s._until AS o_until, s.rowid AS o_row "
            f"FROM {self.state.name(VERSIONS)} s JOIN ({first}) f "
            f"ON {alike('s', 'f', self.op.identity, nulls=nulls)} AND s._until > f.first"
        )
        same = alike("n", "c", [*self.op.identity, "_from"], nulls=nulls)
        either = (
            f"SELECT {', '.join(names)}, o_until, o_row, false AS is_new FROM ({near}) n "
            f"ANTI JOIN {came} c ON {same} UNION ALL SELECT {_of('c', names)}, NULL, n.o_row, true "
            f"FROM {came} c LEFT JOIN ({near}) n ON {same}"
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
            f"SELECT {_of('s', key)}, max(s._from) AS last FROM {self.state.name(VERSIONS)} s "
            f"SEMI JOIN ({rows}) d ON {alike('s', 'd', key)} GROUP BY ALL"
        )
        before = f"max(d._time) OVER (PARTITION BY {_of('d', key)} ORDER BY d.{PLACE})"
        dated = (
            f"SELECT d.*, coalesce(d._time, greatest({before}, l.last)) AS _from FROM ({rows}) d "
            f"LEFT JOIN ({last}) l ON {alike('d', 'l', key)}"
        )
        return f"SELECT * FROM ({dated}) WHERE _from IS NOT NULL"

    def _fresh(self, dated: str) -> str:
        """Return SQL for one version of each key and time: the later arrival's."""
        names = [*self.op.identity, "_from", *self._others]
        once = f"row_number() OVER (PARTITION BY {', '.join(self.op.identity)}, _from ORDER BY {PLACE} DESC) = 1"
        return f"SELECT {', '.join(names)}, _weight < 0 AS _gone FROM ({dated}) QUALIFY {once}"

    # ---- what the stream asks ----

    def _in_time(self, left: list[pa.Table]) -> pa.Table | None:
        """Return the rows in time with their numbers; the late ones are put aside."""
        taken, late, self.counts = judged(left, self.op.grace, self.watermark)
        self.late = [self._alone(part) for part in late]
        if not taken:
            return None
        names = [name for name, _ in self.op.meeting.left]
        rows = pa.concat_tables([part.select([*names, "_time"]) for part in taken], promote_options="permissive")
        first = self.epoch << _ROW_BITS
        rows = rows.append_column("_row", pa.array(np.arange(first, first + rows.num_rows)))
        return without_zones(rows.append_column("_at", rows.column(self.op.at).cast(pa.int64())))

    def _due(self, came: pa.Table) -> pa.ChunkedArray:
        """Return for each row whether its answer is final; one without a time has nothing to wait for."""
        at = came.column("_at")
        return pc.is_null(at) if self.watermark is None else pc.fill_null(pc.less(at, self._past), fill_value=True)

    @property
    def _past(self) -> int:
        """The time before which answers are final."""
        assert self.watermark is not None  # noqa: S101 -- asked before
        return self.watermark - self.op.grace

    def _ready(self, came: pa.Table | None, due: pa.ChunkedArray | None) -> list[pa.Table]:
        """Return the rows to answer now: those that waited, then those that came."""
        columns = [*(name for name, _ in self.op.meeting.left), "_time", "_row", "_at"]
        ready = [came.select(columns).filter(due)] if came is not None else []
        if self.watermark is not None and self.watermark != self.previous:
            waited = f"SELECT {', '.join(columns)} FROM {self.state.name(WAITING)} WHERE _at < {self._past}"
            ready.insert(0, self.duck.arrow(waited))
        return [part for part in ready if part.num_rows]

    def _answer(self, ready: pa.Table) -> None:
        """Give out rows beside their versions, in the order in which they came."""
        (ready,) = placed([ready])
        asked = self.duck.register(ready)
        gives = [f"({sql})::{kind} AS g{i}" for i, (_, sql, kind) in enumerate(self.op.meeting.gives)]
        columns = ", ".join([*gives, "1::INTEGER AS _weight", "_time", PLACE])
        valid = "NOT _gone" + (f" AND ({self.op.meeting.where})" if self.op.meeting.where else "")
        found = self.duck.arrow(f"SELECT {columns} FROM {self._beside(asked)} WHERE {valid}")
        nobody = np.ones(ready.num_rows, dtype=np.bool_)
        nobody[found.column(PLACE).to_numpy()] = False
        alone = ready.filter(pa.array(nobody))
        if self._horizon is not None:
            self.counts.too_old += pc.sum(pc.less(alone.column("_at"), self._horizon)).as_py() or 0
        parts = [found] if found.num_rows else []
        if self.op.meeting.how == "left" and alone.num_rows:
            parts.append(self._nulls(self.duck.register(alone)))
        if parts:
            self.out.append(self._named(in_place(pa.concat_tables(parts), len(gives) + 2)))

    def _beside(self, asked: str) -> str:
        """Return SQL for each asking row and the last versions of its time or before, one of each key."""
        agree = " AND ".join(f"{here} = {there}" for here, there in self.op.meeting.on)
        versions = f"(FROM {self.state.name(VERSIONS)} v SEMI JOIN {asked} a ON {agree})"
        if set(self._shared) == set(self.op.identity):
            return f"{asked} a ASOF JOIN {versions} v ON {agree} AND a._at >= v._from"
        ids = [f"{name} AS i{i}" for i, name in enumerate(self.op.identity)]
        known = f"(SELECT DISTINCT {', '.join([*ids, *self._shared])} FROM {versions})"
        each = f"(SELECT a.*, k.* EXCLUDE ({', '.join(self._shared)}) FROM {asked} a JOIN {known} k ON {agree})"
        same = " AND ".join(f"e.i{i} IS NOT DISTINCT FROM v.{name}" for i, name in enumerate(self.op.identity))
        return f"{each} e ASOF JOIN {versions} v ON {same} AND e._at >= v._from"

    def _alone(self, part: pa.Table) -> pa.Table:
        """Return rows of the stream as rows of the join, with nothing beside them."""
        return self._named(self._nulls(self.duck.register(placed([part])[0])))

    def _nulls(self, rows: str) -> pa.Table:
        nothing = [f"NULL::{kind} AS {name}" for name, kind in self.op.meeting.right]
        gives = [f"({sql})::{kind} AS g{i}" for i, (_, sql, kind) in enumerate(self.op.meeting.gives)]
        columns = [*gives, "1::INTEGER AS _weight", "_time", PLACE]
        return self.duck.arrow(f"SELECT {', '.join(columns)} FROM (SELECT *, {', '.join(nothing)} FROM {rows})")

    def _named(self, made: pa.Table) -> pa.Table:
        names = [name for name, _, _ in self.op.meeting.gives]
        given = made.select([*(f"g{i}" for i in range(len(names))), "_weight", "_time"])
        return given.rename_columns([*names, "_weight", "_time"])

    # ---- what is kept ----

    def _keep(self, rows: pa.Table) -> None:
        """Keep the rows whose answer may still change."""
        rows = rows.append_column(COUNT, pa.repeat(pa.scalar(1, pa.int64()), rows.num_rows))
        self.state.replace(WAITING, rows.append_column("o_row", pa.nulls(rows.num_rows, pa.int64())), at="o_row")

    def _forget(self, watermark: int) -> None:
        """Drop the rows that have been answered, and the versions that none may ask for."""
        horizon = watermark - self.op.grace - self.op.history
        gone = {
            WAITING: f"_at < {self._past}",
            VERSIONS: f"_until <= {horizon} OR (_gone AND _until = {NEVER} AND _from <= {horizon})",
        }
        for table, where in gone.items():
            if self.duck.rows(f"SELECT EXISTS (FROM {self.state.name(table)} WHERE {where})")[0][0]:
                self.state.evict(table, where)


def _of(alias: str, names: Iterable[str]) -> str:
    return ", ".join(f"{alias}.{name}" for name in names)
