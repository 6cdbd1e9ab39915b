"""One epoch of `over` in one shard: which rows are computed, from what is kept, and what is kept of them then."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.base.names import quote
from headrace.kernels.row_functions import LAST, PAST, ROWS
from headrace.kernels.sql import alike, by_position
from headrace.kernels.state.tables import COUNT

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.kernels.op import Context
    from headrace.kernels.row_functions import RowFunctions

TEMPORARY = tuple(
    f"over_{name}"
    for name in ("rows", "last", "numbered", "placed", "results", "touched", "changes", "kept", "marked", "closing")
)


class Run:
    """What final and corrected results share."""

    def __init__(self, functions: RowFunctions, context: Context, *, withdraws: bool) -> None:
        self.functions = functions
        self.duck = context.duck
        self.state = context.keyed
        self.watermark = context.watermark_moved
        self.closed_until = context.watermark
        self.withdraws = withdraws
        self.keys = functions.keys

    def compute(self, rows: str, extra: tuple[str, ...] = ()) -> None:
        """Create `over_results` of rows: their columns, `extra`, `_place`, `_nr`, `q0…`, `p0…` and results.

        `rows` are all open rows of their keys, with `_prior`: the number that a row had before, if any.
        """
        functions = self.functions
        self._create("over_rows", functions.numbered(rows))
        self._create("over_last", self._kept(LAST, "over_rows"))
        adds = [f"q{i}" for i in range(len(functions.accumulators))]
        before = f"SELECT {', '.join([*self.keys, 'max(_nr) AS _before'])} FROM over_last {by_position(self.keys)}"
        columns = [f"r.{name}" for name in (*functions.inside, *extra, "_id", "_place")]
        self._create(
            "over_numbered",
            f"SELECT {', '.join(columns)}, (r._place + coalesce(h._before, 0))::BIGINT AS _nr FROM over_rows r "
            f"LEFT JOIN ({before}) h ON {alike('r', 'h', self.keys)}",
        )
        added = ", ".join(["r.*", *(f"a.{name}" for name in adds)])
        join = f"JOIN ({functions.added('over_numbered')}) a ON a._id = r._id" if adds else ""
        self._create("over_placed", f"SELECT {added} FROM over_numbered r {join}")
        folds = [f"f.p{i}" for i in range(len(adds))]
        values = [f"l.l{j}" for j in range(len(functions.placed))]
        joined = f"SELECT {', '.join(['r.*', *folds, *values])} FROM over_placed r"
        if folds:
            joined += f" JOIN ({functions.framed('over_placed', self._past())}) f ON f._id = r._id"
        if values:
            joined += f" JOIN ({functions.located('over_placed', 'over_last')}) l ON l._id = r._id"
        names = [*functions.inside, *extra, "_place", "_nr", *adds, *(f"p{i}" for i in range(len(adds)))]
        self._create("over_results", functions.rendered(joined, names))

    def _kept(self, table: str, rows: str) -> str:
        """Return SQL for the kept rows of the keys of a relation, with `o_row`."""
        spec = self.state.tables.get(table)
        if spec is None:
            typed = dict(self.state.tables[ROWS].kinds)
            columns = [f"NULL::{typed[name]} AS {name}" for name in self.keys]
            columns += [f"NULL::{self.functions.arguments[i]} AS x{i}" for i in self.functions.lagged]
            columns += [f"NULL::{kept.type} AS q{i}" for i, kept in enumerate(self.functions.accumulators)]
            return f"SELECT {', '.join([*columns, 'NULL::BIGINT AS _nr', 'NULL::BIGINT AS o_row'])} WHERE false"
        touched = f"(SELECT DISTINCT {', '.join(self.keys) or '1'} FROM {rows})"
        found = self.state.lookup(table, self.keys, touched)
        same = alike("s", "t", self.keys)
        row = "" if spec.ages else ", s.rowid AS o_row"
        columns = [f"s.{name}" for name in spec.columns]
        return f"SELECT {', '.join(columns)}{row} FROM {found} s SEMI JOIN {touched} t ON {same}"

    def _past(self) -> str:
        """Return a relation of the past rows that frames reach into."""
        functions = self.functions
        if functions.frame.kind == "range":
            if PAST in self.state.tables:
                return f"({self._kept(PAST, 'over_rows')})"
            nothing = ["NULL::BIGINT AS _time", *(f"NULL AS q{i}" for i in range(len(functions.accumulators)))]
            return f"(SELECT {', '.join([*self.keys, *nothing])} FROM over_last WHERE false)"
        if functions.frame.kind == "rows":
            return "over_last"
        # only the last row has all that was added up to it
        newest = f"_nr = max(_nr) OVER ({functions.partition})"
        sums = [f"CASE WHEN {newest} THEN q{i} END AS q{i}" for i in range(len(functions.accumulators))]
        return f"(SELECT {', '.join([*self.keys, '_nr', *sums])} FROM over_last)"

    def close(self, where: str) -> None:
        """Put the rows of `over_results` that meet a condition into the past, as far as later rows need them."""
        functions = self.functions
        adds = [f"q{i}" for i in range(len(functions.accumulators))]
        if LAST in self.state.tables:
            seen = [f"x{i}" for i in functions.lagged]
            sums: list[str] = []
            if functions.frame.kind != "range":
                up_to = "p" if functions.frame.kind == "all" else "q"
                sums = [f"{up_to}{i} AS q{i}" for i in range(len(adds))]
            columns = [*self.keys, "_nr", *seen]
            kept = [*columns, *([] if functions.frame.kind == "range" else adds)]
            rows = f"SELECT {', '.join([*columns, *sums])}, NULL::BIGINT AS o_row FROM over_results WHERE {where}"
            rows += f" UNION ALL SELECT {', '.join(kept)}, o_row FROM over_last"
            back = f"row_number() OVER ({functions.partition}ORDER BY _nr DESC) <= {functions.behind}"
            count = f"CASE WHEN {back} THEN 1 ELSE 0 END::BIGINT AS {COUNT}"
            changed = f"SELECT *, {count} FROM ({rows}) QUALIFY (o_row IS NULL) = ({COUNT} = 1)"
            self.state.replace(LAST, self.duck.arrow(changed), at="o_row")
        if PAST in self.state.tables and self.closed_until is not None:
            first = self.closed_until - functions.frame.first
            self.state.expire(PAST, first)
            past = f"SELECT {', '.join([*self.keys, '_time', *adds])} FROM over_results"
            self.state.append(PAST, self.duck.arrow(f"{past} WHERE ({where}) AND _time >= {first}"))

    def named(self, results: str = "r") -> list[str]:
        """Return the step's columns, with the results whose names begin with `results`."""
        functions = self.functions
        columns = [f"c{i} AS {quote(name)}" for i, (name, _) in enumerate(functions.columns)]
        return [*columns, *(f"{results}{i} AS {quote(name)}" for i, (name, _, _) in enumerate(functions.results))]

    def forget(self) -> None:
        """Drop the temporary tables."""
        for name in TEMPORARY:
            self.duck.run(f"DROP TABLE IF EXISTS {name}")

    def _create(self, name: str, sql: str) -> None:
        self.duck.run(f"CREATE OR REPLACE TEMP TABLE {name} AS {sql}")

    def _arrived(self, parts: list[pa.Table]) -> str:
        return " UNION ALL ".join(f"SELECT * FROM {self.duck.register(part)}" for part in parts)


class FinalRun(Run):
    """Rows come out when the watermark has passed them."""

    def run(self, parts: list[pa.Table]) -> pa.Table | None:
        """Keep the rows that arrived, and return those that are final."""
        delta = None
        if self.watermark is not None:
            passed = self.state.between(ROWS, None, self.watermark - 1)
            if passed:
                delta = self._final(passed)
            self.state.expire(ROWS, self.watermark)
        if parts:
            columns = ", ".join(self.functions.inside)
            self.state.append(ROWS, self.duck.arrow(f"SELECT {columns} FROM ({self._arrived(parts)})"))
        return delta

    def _final(self, passed: list[pa.Table]) -> pa.Table:
        self.compute(f"(SELECT *, NULL::BIGINT AS _prior FROM ({self._arrived(passed)}))")
        order = ", ".join(["_time", "_place", *self.keys])
        columns = ", ".join([*self.named(), "1::INTEGER AS _weight", "_time"])
        rows = self.duck.arrow(f"SELECT {columns} FROM over_results ORDER BY {order}")
        self.close("true")
        self.forget()
        return rows


class OpenRun(Run):
    """Rows come out at once, and are corrected while they are open."""

    def run(self, parts: list[pa.Table]) -> pa.Table | None:
        """Compute the open rows of all keys that changed anew, and return what is different."""
        arrived = f"({self._arrived(parts)})" if parts else None
        if not self._touch(arrived):
            return None
        self._create("over_changes", self._netted(arrived))
        self.compute(f"({self._open()})", extra=("o_row", "_prior", *self._old))
        delta = self._delta()
        self._keep()
        self.forget()
        return delta

    @property
    def _results(self) -> list[str]:
        return [f"r{i}" for i in range(len(self.functions.results))]

    @property
    def _old(self) -> list[str]:
        return [f"o_{name}" for name in self._results]

    @property
    def _columns(self) -> list[str]:
        return [f"c{i}" for i in range(len(self.functions.columns))]

    def _touch(self, arrived: str | None) -> bool:
        """Create `over_touched`: the keys with rows that arrived, and when, or that the watermark passed."""
        keys = ", ".join(self.keys) or "1 AS one"
        parts = [] if arrived is None else [f"SELECT {keys}, _time AS _when FROM {arrived}"]
        if self.watermark is not None and not self.withdraws:
            passed = f"count(*) FILTER (_time < {self.watermark}) > {self.functions.ahead}"
            grouped = by_position(self.keys or ["one"])
            rows = f"SELECT {keys} FROM {self.state.name(ROWS)} {grouped} HAVING {passed}"
            parts.append(f"SELECT *, NULL::BIGINT AS _when FROM ({rows})")
        if not parts:
            return False
        names = self.keys or ["one"]
        columns = ", ".join([*names, "max(_when) AS _when"])
        self._create("over_touched", f"SELECT {columns} FROM ({' UNION ALL '.join(parts)}) {by_position(names)}")
        return bool(self.duck.rows("SELECT EXISTS (FROM over_touched)")[0][0])

    def _netted(self, arrived: str | None) -> str:
        """Return SQL for each row that was inserted or withdrawn once, with how often."""
        names = [*self._columns, "_time"]
        arguments = [f"x{i}" for i in range(len(self.functions.arguments))]
        if arrived is None:
            return (
                f"SELECT {', '.join(self.functions.inside)}, 0::BIGINT AS _copies FROM {self.state.name(ROWS)} LIMIT 0"
            )
        values = [f"any_value({name}) AS {name}" for name in arguments]
        net = "sum(_weight)::BIGINT AS _copies"
        return (
            f"SELECT {', '.join([*names, *values, net])} FROM {arrived} {by_position(names)} HAVING sum(_weight) <> 0"
        )

    def _open(self) -> str:
        """Return SQL for the open rows of the touched keys, without those that are withdrawn, and with new ones."""
        inside = self.functions.inside
        touched = f"(SELECT {', '.join(self.keys) or '1'} FROM over_touched)"
        found = self.state.lookup(ROWS, self.keys, touched)
        old = [f"s.{name} AS o_{name}" for name in self._results]
        columns = ", ".join([*(f"s.{name}" for name in inside), "s.rowid AS o_row", "s._nr AS _prior", *old])
        kept = f"SELECT {columns} FROM {found} s SEMI JOIN {touched} t ON {alike('s', 't', self.keys)}"
        self._create("over_kept", kept)
        names = [*self._columns, "_time"]
        copy = f"row_number() OVER (PARTITION BY {', '.join(names)} ORDER BY _prior DESC) AS _copy"
        gone = "-coalesce(w._copies, 0) >= k._copy"
        marked = (
            f"SELECT k.* EXCLUDE _copy, {gone} AS _gone FROM (SELECT *, {copy} FROM over_kept) k "
            f"LEFT JOIN over_changes w ON {alike('k', 'w', names)}"
        )
        self._create("over_marked", marked)
        types = dict(self.state.tables[ROWS].kinds)
        none = [f"NULL::{types[name]} AS o_{name}" for name in self._results]
        added = ", ".join([*inside, "NULL::BIGINT AS o_row", "NULL::BIGINT AS _prior", *none])
        return (
            f"SELECT * EXCLUDE _gone FROM over_marked WHERE NOT _gone UNION ALL SELECT {added} FROM "
            f"(SELECT *, unnest(range(_copies)) FROM over_changes WHERE _copies > 0)"
        )

    def _delta(self) -> pa.Table:
        """Return what is withdrawn, then what is inserted; a correction has the time of the row that caused it."""
        differs = " OR ".join(
            f"r.{new} IS DISTINCT FROM r.{old}" for new, old in zip(self._results, self._old, strict=True)
        )
        differs = differs or "false"
        when = "coalesce(t._when, r._time) AS _when"
        joined = f"JOIN over_touched t ON {alike('r', 't', self.keys)}"
        results = f"SELECT r.*, {when}, {differs} AS _differs FROM over_results r {joined}"
        gone = f"SELECT r.*, {when} FROM over_marked r {joined} WHERE r._gone"
        old, new = ", ".join(self.named("o_r")), ", ".join(self.named())
        return self.duck.arrow(
            f"SELECT {old}, -1::INTEGER AS _weight, _when AS _time FROM ({gone}) UNION ALL "
            f"SELECT {old}, -1::INTEGER, _when FROM ({results}) WHERE o_row IS NOT NULL AND _differs UNION ALL "
            f"SELECT {new}, 1::INTEGER, CASE WHEN o_row IS NULL THEN _time ELSE _when END FROM ({results}) "
            f"WHERE o_row IS NULL OR _differs"
        )

    def _keep(self) -> None:
        """Store the open rows that are new or changed, and put into the past what is final."""
        spec = self.state.tables[ROWS]
        passed = "false"
        if self.closed_until is not None and not self.withdraws:
            # a row that looks ahead is final when the rows that it sees are
            newest = f"max(_nr) FILTER (_time < {self.closed_until}) OVER ({self.functions.partition})"
            passed = f"coalesce(_time < {self.closed_until} AND _nr <= {newest} - {self.functions.ahead}, false)"
        self._create("over_closing", f"SELECT *, {passed} AS _passed FROM over_results")
        differs = " OR ".join(
            f"{new} IS DISTINCT FROM {old}" for new, old in zip(self._results, self._old, strict=True)
        )
        changed = f"_prior IS DISTINCT FROM _nr OR {differs or 'false'}"
        stored = [name for name in spec.columns if name != COUNT]
        rows = (
            f"SELECT {', '.join(stored)}, (NOT _passed)::BIGINT AS {COUNT}, o_row FROM over_closing "
            f"WHERE CASE WHEN _passed THEN o_row IS NOT NULL ELSE o_row IS NULL OR {changed} END"
        )
        gone = [f"o_{name} AS {name}" if name in self._results else name for name in stored if name != "_nr"]
        rows += (
            f" UNION ALL BY NAME SELECT {', '.join(gone)}, _prior AS _nr, 0::BIGINT AS {COUNT}, o_row FROM over_marked"
        )
        self.state.replace(ROWS, self.duck.arrow(f"{rows} WHERE _gone"), at="o_row")
        self._create("over_results", "SELECT * EXCLUDE _passed FROM over_closing WHERE _passed")
        self.close("true")
