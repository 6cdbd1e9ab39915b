"""A user's aggregate is as good as a built-in one, however the input is cut, windowed, filtered and withdrawn."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from playing import play

import headrace as hr
from budget import examples
from headrace.testing import Driver

SCHEMA = "k string, v int, s string, at timestamp"


class _Sum:
    """`sum`: null until a value comes."""

    state = "n bigint, total bigint"

    def init(self, count):
        return {"n": np.zeros(count, np.int64), "total": np.zeros(count, np.int64)}

    def add(self, groups, values):
        rows = pa.table({"g": groups, "v": values}).group_by("g", use_threads=False)
        made = rows.aggregate([("v", "count"), ("v", "sum")])
        return {"n": made["v_count"], "total": pc.fill_null(made["v_sum"], 0)}

    def merge(self, left, right):
        return {name: pc.add(left[name], right[name]) for name in left.column_names}

    def remove(self, left, right):
        return {name: pc.subtract(left[name], right[name]) for name in left.column_names}

    def result(self, states):
        return pc.if_else(pc.equal(states["n"], 0), None, states["total"])


class _Listed:
    """`sort_array(collect_list(x))`, and the `max` that can be taken back: a state that grows."""

    state = pa.schema([("seen", pa.list_(pa.string()))])

    def init(self, count):
        return {"seen": [[]] * count}

    def add(self, groups, values):
        seen = {}
        for group, value in zip(groups.to_pylist(), values.to_pylist(), strict=True):
            seen.setdefault(group, []).extend([] if value is None else [value])
        assert list(seen) == list(range(len(seen))), "each number once, ascending"
        return pa.table({"seen": list(seen.values())}, schema=self.state)

    def merge(self, left, right):
        pairs = zip(left["seen"].to_pylist(), right["seen"].to_pylist(), strict=True)
        return pa.table({"seen": [a + b for a, b in pairs]}, schema=self.state)

    def remove(self, left, right):
        pairs = zip(left["seen"].to_pylist(), right["seen"].to_pylist(), strict=True)
        kept = []
        for mine, gone in pairs:
            assert not Counter(gone) - Counter(mine), "what goes has come"
            kept.append(list((Counter(mine) - Counter(gone)).elements()))
        return pa.table({"seen": kept}, schema=self.state)

    def result(self, states):
        return pa.array([sorted(seen) for seen in states["seen"].to_pylist()], pa.list_(pa.string()))


PAIRS = {
    "total": ("sum(v)", "total_of(v)"),
    "some": ("sum(v) filter (where v > 1)", "total_of(v) filter (where v > 1)"),
    "twice": ("sum(v * 2) + count(*)", "total_of(doubled(v)) + count(*)"),
    "texts": ("sort_array(collect_list(s))", "listed(s)"),
    "most": ("coalesce(max(s), '')", "coalesce(array_max(listed(s)), '')"),
    "around": ("2 * sum(v)", "doubled(total_of(v))"),
}
AGG = {f"{name}_{side}": text for name, pair in PAIRS.items() for side, text in zip(("ours", "theirs"), pair)}  # noqa: B905

rows = st.fixed_dictionaries(
    {
        "k": st.sampled_from(["a", "b", "é😀", None]),
        "v": st.one_of(st.none(), st.integers(-5, 5)),
        "s": st.one_of(st.none(), st.sampled_from(["x", "y", "😀", ""])),
        "at": st.integers(0, 40).map(lambda minute: 1_767_225_600_000 + minute * 60_000),
    }
)
inputs = st.lists(rows, min_size=1, max_size=16)
cuts = st.lists(st.integers(1, 6), min_size=1, max_size=8)


def app_of():
    app = hr.App("law")
    app.function("total_of", _Sum, returns="bigint", takes="bigint")
    app.function("listed", _Listed(), returns="array<string>")
    app.function("doubled", lambda v: pc.multiply(v, 2), returns="bigint", takes="bigint")
    return app, app.stream("t", SCHEMA, event_time="at")


def check(found):
    assert found
    for row in found:
        for name in PAIRS:
            assert row[f"{name}_ours"] == row[f"{name}_theirs"], (name, row)


@settings(max_examples=examples(2), deadline=None, suppress_health_check=list(HealthCheck))
@given(sent=inputs, sizes=cuts)
def test_a_users_aggregate_is_the_built_in_one(sent, sizes):
    app, stream = app_of()
    stream.group_by("k").agg(**AGG).to_view("out")
    with Driver(app, shards=2) as driver:
        play(driver, sent, sizes)
        check(driver.view("out"))


@settings(max_examples=examples(2), deadline=None, suppress_health_check=list(HealthCheck))
@given(sent=inputs, sizes=cuts)
def test_withdrawn_rows_are_taken_out_again(sent, sizes):
    """Groups change their key, empty out and come back."""
    app, stream = app_of()
    first = stream.group_by("k").agg(n="count(*)", v="cast(max(v) as int)", s="max(s)")
    first.group_by("n").agg(**AGG).named("second").to_view("out")
    with Driver(app, shards=2) as driver:
        play(driver, sent, sizes)
        check(driver.view("out"))


@pytest.mark.parametrize("emit", ["changes", "final"])
@pytest.mark.parametrize(
    "window",
    [hr.tumbling("5 minutes", grace="10 days"), hr.hopping("10 minutes", "4 minutes", grace="10 days")],
    ids=str,
)
@settings(max_examples=examples(2), deadline=None, suppress_health_check=list(HealthCheck))
@given(sent=inputs, sizes=cuts)
def test_windows_put_states_together(window, emit, sent, sizes):
    app, stream = app_of()
    stream.group_by("k").window(window, emit=emit).agg(**AGG).to_view("out")
    with Driver(app, shards=2) as driver:
        play(driver, sent, sizes)
        driver.finish()
        check(driver.view("out"))
