"""Every operator, alone: what it makes of rows, what it keeps, what is late. A new one needs a test here."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pytest
import test_row_operators  # noqa: F401 -- its tests count, too
from one_shard import delta
from shown import HERE, SHOWN, shows

import headrace.kernels
from headrace.base.time import END_OF_TIME
from headrace.kernels.aggregates.accumulators import Accumulators
from headrace.kernels.aggregates.aggregate_spec import AggregateSpec
from headrace.kernels.apply import Apply
from headrace.kernels.call import Call, FunctionCall
from headrace.kernels.dedupe import Dedupe
from headrace.kernels.groups.grouping import Grouping
from headrace.kernels.groups.merge import Merge
from headrace.kernels.groups.partial import Partial
from headrace.kernels.groups.window_top import PANE, AssignPane
from headrace.kernels.groups.windows import Panes, Session
from headrace.kernels.joins import side_join
from headrace.kernels.joins.as_of_join import AsOfJoin
from headrace.kernels.joins.join_spec import JoinSpec
from headrace.kernels.joins.lookup_join import EffectiveTimes, LookupJoin
from headrace.kernels.joins.side_join import SideJoin
from headrace.kernels.joins.stream_join import StreamJoin
from headrace.kernels.joins.table_join import TableJoin
from headrace.kernels.keep import Keep
from headrace.kernels.late import SplitLate
from headrace.kernels.latest import Arrival, Upsert
from headrace.kernels.op import Operator, StatefulOp
from headrace.kernels.order import NumberArrivals
from headrace.kernels.query import Query
from headrace.kernels.ranking import Ranking
from headrace.kernels.rename import Facts, Rename
from headrace.kernels.search.search import ParseQueries, Search
from headrace.kernels.snapshot import Snapshot
from headrace.kernels.suppress import Suppress
from headrace.kernels.table_columns import TableColumns
from headrace.kernels.top import PartialTop, Top

TEXT, NUMBER = pa.string(), pa.int64()
BOTH = {"step": "s", "inputs": (0, 1), "output": 2, "late": 3}


def words(*rows):
    return delta(*rows, k=TEXT, x=NUMBER)


def left(*rows):
    return delta(*rows, l0=TEXT, l1=NUMBER)


def arriving(*rows):
    """Return rows that arrive at their own time."""
    rows = left(*rows)
    return rows.append_column("_arrival", rows.column("_time"))


def right(*rows):
    return delta(*rows, r0=TEXT, r1=NUMBER)


# ---- the laws ----


def operators():
    """Return every operator of the room that is not abstract."""
    for module in pkgutil.walk_packages(headrace.kernels.__path__, "headrace.kernels."):
        importlib.import_module(module.name)
    found, kinds = set(), [Operator]
    while kinds:
        kind = kinds.pop()
        kinds += kind.__subclasses__()
        if not inspect.isabstract(kind) and kind.__module__.startswith("headrace.kernels."):
            found.add(getattr(importlib.import_module(kind.__module__), kind.__name__))  # slots make a second class
    return found


def test_every_operator_is_shown_here():
    assert operators() == SHOWN


@pytest.mark.parametrize("kind", sorted(operators(), key=lambda kind: kind.__name__), ids=lambda kind: kind.__name__)
def test_an_operator_says_itself_how_it_runs_and_what_it_keeps(kind):
    assert "run" in vars(kind)
    assert not issubclass(kind, StatefulOp) or "tables" in vars(kind)


# ---- without state ----


@shows(Query)
@pytest.mark.parametrize("shared", [False, True])
def test_a_query_is_sql_over_all_its_inputs(shard, shared):
    op = Query(step="s", inputs=(0, 1), output=2, before="SELECT x + 1 AS x FROM", after="WHERE x > 1", shared=shared)
    assert shard(op).step(words(("a", 1, 1, 0), ("b", 2, 1, 0)), words(("c", 3, 1, 0))) == [(3,), (4,)]
    assert shard(op).step([], []) == []


@shows(Rename)
def test_renamed_rows_have_the_columns_that_are_named_alone(shard):
    run = shard(Rename(**HERE, names=(("x", "y"), ("_weight", "_weight"), ("_time", "_time"))))
    assert run.step(words(("a", 4, -1, 7))) == [(4, -1, 7)]
    assert run.result.delta[0].column_names == ["y", "_weight", "_time"]


@shows(Facts)
def test_facts_are_the_records_as_they_were_read_each_inserted(shard):
    """Whatever the parts are that they were read in; times lose their zone, which is UTC."""
    at = pa.timestamp("us", tz="UTC")
    parts = [pa.table({"t": pa.array([n], at), "l": [[n]], "x": [f"x{n}"], "_time": [n]}) for n in range(3)]
    run = shard(Facts(**HERE, columns=("x", "t", "l")))
    rows = pa.concat_tables(parts)
    run.step(rows)
    (found,) = run.result.delta
    assert found.column_names == ["x", "t", "l", "_weight", "_time"]
    assert found.column("_weight").to_pylist() == [1, 1, 1]
    assert found.column("x").to_pylist() == ["x0", "x1", "x2"]
    assert found.schema.field("t").type == pa.timestamp("us")
    assert found.column("x").num_chunks == 1


@shows(Apply)
def test_a_function_over_batches_sees_the_columns_with_their_times(shard):
    kinds = pa.schema({"k": TEXT, "x": NUMBER})
    run = shard(Apply(**HERE, takes=kinds, returns=kinds, function=lambda rows: rows.slice(0, rows.num_rows)))
    assert run.step(words(("a", 1, 1, 5))) == [("a", 1, 1, 5)]
    assert run.result.counts.rows_out == 1


@shows(Call)
def test_a_call_adds_the_column_of_its_results(shard):
    call = FunctionCall(
        column="_c0", name="double", function=lambda x: pc.multiply(x, 2), arguments=(('"x"', NUMBER),), returns=NUMBER
    )
    assert shard(Call(**HERE, calls=(call,))).step(words(("a", 4, 1, 0))) == [("a", 4, 1, 0, 8)]


@shows(SplitLate)
def test_rows_too_far_behind_the_watermark_are_late(shard):
    run = shard(SplitLate(**HERE, late=2, reach=10))
    rows = words(("old", 1, 1, 89), ("just", 2, 1, 90))
    assert run.step(rows) == [("old", 1, 1, 89), ("just", 2, 1, 90)]
    assert run.step(rows, watermark=100) == [("just", 2, 1, 90)]
    assert run.late == [("old", 1, 1, 89)]
    assert (run.result.counts.rows_in, run.result.counts.late) == (2, 1)


@shows(NumberArrivals)
def test_arrivals_are_numbered_in_their_order(shard):
    run = shard(NumberArrivals(**HERE))
    rows = run.step([words(("a", 1, 1, 9)), words(("b", 1, 1, 3), ("c", 1, 1, 4))])
    assert [(row[0], row[-1]) for row in rows] == [("a", 0), ("b", 1), ("c", 2)]


@shows(EffectiveTimes)
def test_a_change_is_in_force_no_earlier_than_those_before_it(shard):
    run = shard(EffectiveTimes(**HERE, key=("r0",)))
    assert run.step(right(("a", 1, 1, 7), ("a", 1, -1, 5), ("b", 1, 1, 3))) == [
        ("a", 1, 1, 7),
        ("a", 1, -1, 7),
        ("b", 1, 1, 3),
    ]


# ---- by key ----


@shows(Dedupe)
def test_the_first_row_of_a_key_passes_until_the_key_is_forgotten(shard):
    op = Dedupe(**HERE, columns=(("k", "VARCHAR"), ("x", "BIGINT")), keys=("k",), within=10)
    run = shard(op)
    assert run.step(words(("a", 2, 1, 6), ("a", 1, 1, 5), (None, 3, 1, 7))) == [("a", 1, 1, 5), (None, 3, 1, 7)]
    assert run.step(words(("a", 4, 1, 15), ("b", 5, 1, 8)), watermark=15) == [("b", 5, 1, 8)]
    assert run.kept() == {"seen": 3}
    assert run.step(words(("a", 6, 1, 16)), watermark=16) == [("a", 6, 1, 16)]
    assert isinstance(op.before_exchange(0, 5, output=6, late=7), SplitLate)


COLUMNS = (("k", "VARCHAR"), ("x", "BIGINT"))


@shows(Arrival)
def test_rows_of_a_table_arrive_under_the_names_inside(shard):
    run = shard(Arrival(**HERE, columns=TableColumns.of(COLUMNS, ["k"])))
    run.step(words(("a", 1, 1, 0), ("a", 1, -1, 0)))
    assert run.result.delta[0].column_names == ["k0", "v0", "_weight", "_time", "_order"]
    assert run.result.counts.rows_in == 2


@shows(Upsert)
def test_a_row_replaces_the_one_before_it(shard):
    run = shard(Upsert(**HERE, columns=COLUMNS, keys=("k",), by_time=False))

    def records(*rows):
        return delta(*rows, k0=TEXT, v0=NUMBER, _order=NUMBER)

    assert run.step(records(("a", 1, 0, 1, 10), ("b", 5, 1, 1, 11))) == [("a", 1, 1, 10), ("b", 5, 1, 11)]
    *withdrawn, inserted = run.step(records(("a", 2, 0, 1, 12), ("b", None, 1, -1, 13)))
    assert sorted(withdrawn) == [("a", 1, -1, 12), ("b", 5, -1, 13)], "in any order of keys"
    assert inserted == ("a", 2, 1, 12)
    assert run.step(records(("a", 2, 0, 1, 14))) == [], "nothing changed"
    assert run.kept() == {"rows": 1}


@shows(Snapshot)
def test_a_snapshot_gives_the_rows_that_are_there_and_leaves_them(shard):
    op = Upsert(**HERE, columns=COLUMNS, keys=("k",), by_time=False)
    table = shard(op)
    table.step(delta(("a", 1, 0, 1, 10), ("b", 5, 1, 1, 11), k0=TEXT, v0=NUMBER, _order=NUMBER))
    table.step(delta(("a", 2, 0, 1, 12), k0=TEXT, v0=NUMBER, _order=NUMBER))
    snapshot = shard(Snapshot.instead_of(op))
    snapshot.head = table.head
    assert sorted(snapshot.step()) == [("a", 2, 1, 12), ("b", 5, 1, 11)]
    assert snapshot.head == table.head, "nothing is written"
    assert sorted(snapshot.step()) == [("a", 2, 1, 12), ("b", 5, 1, 11)]


# ---- groups ----


def grouping(**windows):
    state = Accumulators(insert_only=True)
    state.add(
        AggregateSpec(function="sum", arguments=("x",), argument_types=("BIGINT",), distinct=False, type="BIGINT")
    )
    return Grouping(
        keys=(("k", "k", "VARCHAR"),),
        panes=windows.get("panes"),
        session=windows.get("session"),
        final=windows.get("final", False),
        insert_only=True,
        accumulators=tuple(state.accumulators),
        multisets=tuple(state.multisets),
        calls=tuple(state.calls),
        from_multiset=tuple(state.from_multiset),
        results=(("total", '"_a0"', "BIGINT"),),
    )


TEN = Panes(size=10, every=10, pane=10, grace=0, offset=0)


@shows(Partial)
def test_rows_become_partial_groups_and_rows_of_closed_windows_are_late(shard):
    run = shard(Partial(**HERE, late=2, grouping=grouping(panes=TEN)))
    rows = words(("a", 1, 1, 3), ("a", 2, 1, 4), ("b", 5, 1, 13))
    run.step(rows, watermark=10)
    groups = run.result.delta[0].to_pylist()
    assert [(group["k0"], group["_pane"], group["_n"]) for group in groups] == [("b", 10, 1)]
    assert run.late == [("a", 1, 1, 3), ("a", 2, 1, 4)]
    assert run.result.counts.late == 2


def merged(shard, value, epochs):
    """Return the rows of each epoch of a grouping: the partial groups of its rows, merged."""
    partial = shard(Partial(**HERE, late=2, more=(5,) if value.session else (), grouping=value))
    merge = shard(Merge(step="s", inputs=(0,), output=1, late=2, grouping=value))
    outputs = []
    for rows, watermark in epochs:
        partial.step(rows, watermark=watermark)
        parts = [partial.result.delta, *partial.result.more]
        outputs.append(merge.step(*map(list, parts), watermark=watermark))
    return outputs, merge


@shows(Merge)
def test_a_group_withdraws_its_old_result(shard):
    first, second = merged(shard, grouping(), [(words(("a", 1, 1, 3)), None), (words(("a", 2, 1, 4)), None)])[0]
    assert first == [("a", 1, 1, 3)]
    assert second == [("a", 1, -1, 4), ("a", 3, 1, 4)]


def test_a_window_gives_its_final_result_when_it_closes(shard):
    epochs = [(words(("a", 1, 1, 3), ("a", 2, 1, 4)), None), (words(("a", 7, 1, 12)), 10), (words(), 10)]
    (first, second, third), merge = merged(shard, grouping(panes=TEN, final=True), epochs)
    assert (first, third) == ([], [])
    ((k, start, end, total, weight, time),) = second
    assert (k, total, weight, time) == ("a", 3, 1, 9)
    assert (end - start).microseconds == 10
    assert merge.kept() == {"groups": 1}, "the closed window is gone"


def test_a_session_takes_the_rows_within_its_gap(shard):
    value = grouping(session=Session(gap=5, grace=0), final=True)
    epochs = [(words(("a", 1, 1, 3)), None), (words(("a", 2, 1, 8)), 7), (words(("b", 1, 1, 1)), 20)]
    (first, second, third), merge = merged(shard, value, epochs)
    assert (first, second) == ([], [])
    assert [(row[0], row[3]) for row in third] == [("a", 3)]
    assert merge.late == [("b", 1, 1, 1)]


RANKING = Ranking(columns=COLUMNS, group=(0,), terms=(), order=("c1 DESC",), n="1", rank=None, insert_only=True)


def ranked(*rows):
    table = delta(*((k, x, n, n, time) for k, x, n, time in rows), c0=TEXT, c1=NUMBER, _n=NUMBER)
    return table.drop_columns(["_weight"])


@shows(PartialTop)
def test_before_the_exchange_only_the_first_rows_of_a_group_remain(shard):
    run = shard(PartialTop(**HERE, ranking=RANKING))
    assert run.step(ranked(("a", 1, 1, 0), ("a", 2, 1, 0), ("b", 1, 1, 0))) == [("a", 2, 1, 0), ("b", 1, 1, 0)]
    assert run.result.counts.rows_in == 3


@shows(Top)
def test_a_better_row_takes_the_place_of_the_first(shard):
    run = shard(Top(**HERE, ranking=RANKING, counts=True))
    assert run.step(ranked(("a", 1, 1, 3))) == [("a", 1, 1, 3)]
    assert run.step(ranked(("a", 0, 1, 4))) == []
    assert run.step(ranked(("a", 9, 1, 5))) == [("a", 1, -1, 5), ("a", 9, 1, 5)]
    assert run.kept() == {"best": 1}


@pytest.mark.parametrize(("ties", "second"), [("rank", []), ("dense_rank", [("a", 3, 1, 4)])])
def test_equal_rows_share_a_place(shard, ties, second):
    ranking = dataclasses.replace(RANKING, n="2", ties=ties)
    run = shard(Top(**HERE, ranking=ranking, counts=True))
    assert run.step(ranked(("a", 5, 1, 3), ("a", 5, 1, 3))) == [("a", 5, 1, 3), ("a", 5, 1, 3)]
    assert run.step(ranked(("a", 3, 1, 4))) == second


@shows(Suppress)
def test_of_the_changes_of_a_period_the_last_one_comes_out(shard):
    run = shard(Suppress(**HERE, columns=COLUMNS, keys=("k",), every=10, size=None))
    assert run.step(words(("a", 1, 1, 1)), watermark=1) == []
    assert run.step(words(("a", 1, -1, 2), ("a", 2, 1, 2)), watermark=9) == []
    assert run.step(words(("b", 7, 1, 3)), watermark=10) == [("a", 2, 1, 2)]
    assert run.step(words(("a", 2, -1, 12), ("b", 7, -1, 12), ("b", 8, 1, 12)), watermark=12) == []
    assert run.step(words(), watermark=END_OF_TIME) == [("a", 2, -1, 12), ("b", 8, 1, 12)]
    assert run.kept() == {"shown": 1, "waiting": 0}


@shows(Keep)
def test_a_row_leaves_when_the_watermark_has_passed_it_by_more_than_it_is_kept(shard):
    run = shard(Keep(**HERE, columns=COLUMNS, keys=("k",), keep=5))
    assert run.step(words(("a", 1, 1, 10), ("a", 1, 1, 10), ("b", 2, 1, 11))) == [
        ("a", 1, 1, 10),
        ("a", 1, 1, 10),
        ("b", 2, 1, 11),
    ]
    assert run.step(words(), watermark=15) == []
    assert run.step(words(("c", 3, 1, 30)), watermark=16) == [("a", 1, -1, 15), ("a", 1, -1, 15), ("c", 3, 1, 30)]
    assert run.kept() == {"rows": 2}
    assert run.step(words(), watermark=END_OF_TIME) == [], "the end of the input is no time that passes"
    assert run.kept() == {"rows": 2}


@shows(AssignPane)
def test_a_row_gets_its_pane_or_is_late(shard):
    run = shard(AssignPane(**HERE, late=2, panes=TEN))
    assert run.step(words(("a", 1, 1, 3), ("b", 1, 1, 13)), watermark=10) == [("b", 1, 1, 13, 10)]
    assert run.late == [("a", 1, 1, 3)]
    assert PANE in run.duck.arrow("SELECT 1 AS " + PANE).column_names


# ---- joins ----


def join(how="inner", **more):
    sides = {"left": (("l0", "VARCHAR"), ("l1", "BIGINT")), "right": (("r0", "VARCHAR"), ("r1", "BIGINT"))}
    output = (("k", "coalesce(l0, r0)", "VARCHAR"), ("x", "l1", "BIGINT"), ("y", "r1", "BIGINT"))
    values = {"on": (("l0", "r0"),), "where": None, "keys": (("l0",), ("r0",)), "ordered": True, "output": output}
    return JoinSpec(**sides, **{**values, **more}, how=how)


@shows(TableJoin)
@pytest.mark.parametrize("where", [None, "l1 >= 0"])
def test_a_left_row_alone_is_withdrawn_when_its_match_is_inserted(shard, where):
    run = shard(TableJoin(**BOTH, join=join("left", where=where)))
    assert run.step(left(("a", 1, 1, 3)), []) == [("a", 1, None, 1, 3)]
    assert run.step([], right(("a", 7, 1, 5), ("b", 8, 1, 5))) == [("a", 1, None, -1, 5), ("a", 1, 7, 1, 5)]
    assert run.step([], right(("a", 7, -1, 6))) == [("a", 1, 7, -1, 6), ("a", 1, None, 1, 6)]
    assert run.result.counts.rows_in == 1


@shows(LookupJoin)
def test_a_row_is_matched_with_the_table_as_it_is_when_the_row_arrives(shard):
    run = shard(LookupJoin(**BOTH, join=join()))
    assert run.step(arriving(("a", 1, 1, 3)), right(("a", 7, 1, 2))) == [("a", 1, 7, 1, 3)]
    changed = right(("a", 7, -1, 5), ("a", 8, 1, 5))
    assert run.step(arriving(("a", 2, 1, 4), ("a", 3, 1, 6)), changed) == [("a", 2, 7, 1, 4), ("a", 3, 8, 1, 6)]
    assert run.step(arriving(("a", 4, 1, 1)), []) == [("a", 4, 8, 1, 1)]
    assert run.kept() == {"rows": 1}


@shows(SideJoin)
@pytest.mark.parametrize("few", [0, 4])
def test_a_row_is_matched_with_a_table_that_every_task_has(shard, monkeypatch, few):
    """Of equal keys the last row counts; null matches nothing; a row by other columns may match several."""
    monkeypatch.setattr(side_join, "FEW", few)
    columns = (("w", "k", None, TEXT), ("y", "x", None, NUMBER), ("v", None, "v", NUMBER))
    table = Held((("a", 1, "p"), ("b", 2, "p"), ("a", 3, "q")))
    given = {"side": table, "key": ("k",), "columns": columns, "passed": ("_weight", "_time")}
    rows = words(("b", 1, 1, 5), (None, 2, 1, 6), ("a", 3, -1, 7), ("c", 4, 1, 8))
    inner = shard(SideJoin(**HERE, **given, on=(("k", "k"),), left=False))
    assert inner.step(rows) == [("b", 1, 2, 1, 5), ("a", 3, 3, -1, 7)]
    outer = shard(SideJoin(**HERE, **given, on=(("k", "k"),), left=True))
    assert outer.step(rows) == [("b", 1, 2, 1, 5), (None, 2, None, 1, 6), ("a", 3, 3, -1, 7), ("c", 4, None, 1, 8)]
    several = SideJoin(**HERE, **given | {"side": Held((("a", 1, "p"), ("b", 2, "p")))}, on=(("k", "by"),), left=True)
    assert shard(several).step(words(("q", 1, 1, 5), ("p", 2, 1, 6))) == [
        ("q", 1, None, 1, 5),
        ("p", 2, 1, 1, 6),
        ("p", 2, 2, 1, 6),
    ]


@dataclass(frozen=True)
class Held:
    """Rows of a side input: keys, numbers, and another column to look them up by."""

    rows: tuple[tuple[str, int, str], ...]

    def whole(self):
        """Return the rows."""
        return pa.Table.from_pylist([dict(zip(("k", "v", "by"), row, strict=True)) for row in self.rows])


@shows(StreamJoin)
def test_a_row_without_a_match_comes_out_when_none_can_arrive_any_more(shard):
    run = shard(StreamJoin(**BOTH, join=join("left", keys=(None, None)), low=0, high=10, grace=0))
    assert run.step(left(("a", 1, 1, 5), ("b", 2, 1, 5)), []) == []
    assert run.step([], right(("a", 7, 1, 15), ("b", 8, 1, 16))) == [("a", 1, 7, 1, 15)]
    assert run.step([], [], watermark=15) == []
    assert run.step(left(("c", 3, 1, 1)), [], watermark=16) == [("c", 3, None, 1, 1), ("b", 2, None, 1, 5)]
    assert run.late == [("c", 3, None, 1, 1)]


@shows(AsOfJoin)
def test_a_row_is_matched_with_the_version_of_its_time_once_that_is_final(shard):
    op = AsOfJoin(**BOTH, join=join("left"), at="l1", identity=("r0",), grace=2, history=0)
    run = shard(op)

    def versions(*rows):
        return delta(*rows, r0=TEXT, r1=NUMBER, _order=NUMBER)

    assert run.step(left(("a", 5, 1, 5), ("b", 5, 1, 5)), versions(("a", 7, 0, 1, 4))) == []
    assert run.step([], versions(("a", 6, 0, 1, 3), ("a", 8, 1, 1, 6)), watermark=7) == []
    assert run.step([], [], watermark=8) == [("a", 5, 7, 1, 5), ("b", 5, None, 1, 5)]
    assert isinstance(op.before_exchange(1, 5, output=6, late=None), NumberArrivals)
    assert op.before_exchange(0, 5, output=6, late=None) is None


@shows(ParseQueries)
@shows(Search)
def test_a_document_comes_out_with_the_queries_that_it_meets(shard):
    parse, rows = shard(ParseQueries(**HERE, query="r1")), (("q", "b -c", 1, 4), ("bad", "(", 1, 4))
    assert [row[-1] for row in parse.step(delta(*rows, r0=TEXT, r1=TEXT))] == [
        None,
        "a word is missing, at character 2",
    ]
    queries = parse.result.delta[0].drop_columns(["_search_error"])
    sides = {"left": (("l0", "VARCHAR[]"),), "right": (("r0", "VARCHAR"), ("r1", "VARCHAR")), "on": ()}
    sides["output"] = (("q", "r0", "VARCHAR"),)
    run = shard(Search(**BOTH, join=dataclasses.replace(join(), **sides), terms="l0"))
    words = delta((["b"], 1, 3), (["a", "b"], 1, 5), (["c", "b"], 1, 5), l0=pa.list_(TEXT))
    assert run.step(words.append_column("_arrival", words.column("_time")), queries) == [("q", 1, 5)]
    assert run.kept() == {"rows": 1, "terms": 1}
