"""Operators over the rows of a key in the order of time, alone."""

from __future__ import annotations

import pyarrow as pa
import pytest
from one_shard import delta
from shown import HERE, shows

from headrace.kernels.aggregates.accumulators import Accumulators
from headrace.kernels.aggregates.aggregate_spec import AggregateSpec
from headrace.kernels.groups.grouping import Grouping
from headrace.kernels.match import Match
from headrace.kernels.over import Over
from headrace.kernels.row_functions import Frame, RowFunctions
from headrace.kernels.row_pattern import BITS, MATCH, RowPattern

TEXT, NUMBER = pa.string(), pa.int64()
COLUMNS = (("k", "VARCHAR"), ("x", "BIGINT"))


@shows(Over)
@pytest.mark.parametrize("emit", ["final", "changes"])
def test_a_row_has_the_sum_of_the_rows_before_it(shard, emit):
    sums = Accumulators(insert_only=True)
    sums.add(
        AggregateSpec(function="sum", arguments=("c1",), argument_types=("BIGINT",), distinct=False, type="BIGINT")
    )
    functions = RowFunctions(
        columns=COLUMNS,
        key=(0,),
        arguments=(),
        frame=Frame(kind="rows", first=1),
        accumulators=tuple(sums.accumulators),
        layers=(),
        exact=False,
        placed=("_nr::INTEGER",),
        lagged=(),
        calls=(*sums.calls, "l0"),
        results=(("s", '"_a0"', "BIGINT"), ("nr", '"_a1"', "INTEGER")),
        behind=1,
        ahead=0,
    )
    run = shard(Over(**HERE, functions=functions, emit=emit, withdraws=False))

    def rows(*some):
        return delta(*some, c0=TEXT, c1=NUMBER)

    first, second = run.step(rows(("a", 1, 1, 3), ("a", 2, 1, 5))), run.step(rows(("a", 4, 1, 4)), watermark=4)
    third = run.step(rows(("a", 8, 1, 6)), watermark=6)
    if emit == "final":
        assert (first, second) == ([], [("a", 1, 1, 1, 1, 3)])
        assert third == [("a", 4, 5, 2, 1, 4), ("a", 2, 6, 3, 1, 5)]
    else:
        assert first == [("a", 1, 1, 1, 1, 3), ("a", 2, 3, 2, 1, 5)]
        assert second == [("a", 2, 3, 2, -1, 4), ("a", 4, 5, 2, 1, 4), ("a", 2, 6, 3, 1, 4)]
        assert third == [("a", 8, 10, 4, 1, 6)]
    assert run.kept() == {"rows": 1, "last": 1}


@shows(Match)
def test_a_match_is_a_row_of_its_measures(shard):
    """Of `low high+`; undecided rows are kept, and their key by the time of the first one."""
    functions = RowFunctions(
        columns=COLUMNS,
        key=(0,),
        arguments=("BOOLEAN",),
        frame=Frame(kind="rows"),
        accumulators=(),
        layers=(),
        exact=False,
        placed=(),
        lagged=(),
        calls=("x0",),
        results=((BITS, 'CASE WHEN "_a0" THEN 1 ELSE 2 END', "BIGINT"),),
        behind=0,
        ahead=0,
    )
    keys = (
        (MATCH, MATCH, "BIGINT"),
        ("k", "k", "VARCHAR"),
        *((b, b, "TIMESTAMP") for b in ("match_start", "match_end")),
    )
    grouping = Grouping(
        keys=keys,
        panes=None,
        final=True,
        insert_only=True,
        accumulators=(),
        multisets=(),
        calls=("_n",),
        from_multiset=(None,),
        results=(("n", '"_a0"', "BIGINT"),),
    )
    automaton = {"symbols": (0, 1), "follow": ((1,), (1, 2), (0,))}
    pattern = RowPattern(**automaton, functions=functions, kept=(0, 1), within=10, overlapping=False, grouping=grouping)
    run = shard(Match(**HERE, pattern=pattern))

    def rows(*some):
        return delta(*some, c0=TEXT, c1=NUMBER, x0=pa.bool_())

    def counted(found):
        return [(key, n, time) for key, _, _, n, _, time in found]

    assert run.step(rows(("a", 1, True, 1, 3), ("a", 2, False, 1, 4), ("b", 0, False, 1, 4))) == []
    assert run.step(rows(("a", 3, False, 1, 6)), watermark=5) == []
    assert run.kept() == {"rows": 1, "kept": 2, "starts": 1}
    assert counted(run.step(rows(("a", 0, True, 1, 8)), watermark=8)) == []
    assert counted(run.step(rows(), watermark=9)) == [("a", 3, 6)]
    assert run.step(rows(), watermark=30) == []
    assert run.kept() == {"rows": 0, "kept": 0, "starts": 0}
