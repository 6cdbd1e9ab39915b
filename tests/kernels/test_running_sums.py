"""Windows that overlap: running sums give what frames give, and leave to them what they cannot."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from budget import examples
from headrace.kernels.groups import running_sums
from headrace.testing import Driver

WINDOWS = {
    "a minute every 7 seconds": hr.hopping("1 minute", "7 seconds", grace="0 seconds"),
    "20 seconds every 5": hr.hopping("20 seconds", "5 seconds", grace="9 seconds"),
    "three months every month": hr.hopping("3 months", "1 month", grace="0 seconds"),
    "a minute": hr.tumbling("1 minute", grace="0 seconds"),
}
ROWS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "", None]),
        st.one_of(st.none(), st.integers(-5, 5), st.sampled_from([2**63 - 1, -(2**63)])),
        st.integers(-90, 400),
    ),
    max_size=40,
)


def final(window, rows, cuts, keys=("k",)):
    app = hr.App("sums", shards=2)
    stream = app.stream("t", "k string, v bigint, at timestamp", event_time="at", out_of_order="20 seconds")
    grouped = stream.group_by(*keys).window(window, emit="final")
    grouped.agg(n="count(*)", some="count(v)", mean="avg(v)", total="sum(v % 1000)").to_topic("out")
    with Driver(app) as driver:
        for at, row in enumerate(rows):
            driver.send("t", row)
            if at in cuts:
                driver.step()
        driver.run()
        driver.finish()
        return sorted(map(repr, driver.read("out")))


@pytest.mark.parametrize("name", WINDOWS)
@settings(max_examples=examples(4), deadline=None)
@given(rows=ROWS, cuts=st.sets(st.integers(0, 39), max_size=4))
def test_both_ways_give_equal_results(name, rows, cuts):
    unit = 86_400 if "month" in name else 1
    sent = [{"k": key, "v": value, "at": 1000 * (1_700_000_000 + unit * at)} for key, value, at in rows]
    slid = final(WINDOWS[name], sent, cuts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running_sums, "covers", lambda _: False)
        assert final(WINDOWS[name], sent, cuts) == slid


def test_one_group_without_a_key():
    rows = [{"k": "a", "v": at, "at": 1000 * (1_700_000_000 + 5 * at)} for at in range(9)]
    hop = WINDOWS["20 seconds every 5"]
    slid = final(hop, rows, {3}, keys=())
    assert len(slid) == 12
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running_sums, "covers", lambda _: False)
        assert final(hop, rows, {3}, keys=()) == slid


def panes(rows):
    return pa.table(
        dict(zip(("k0", "_pane", "_first", "_last", "_n", "p0"), map(list, zip(*rows, strict=True)), strict=True))
    )


def test_sums_that_might_overflow_are_left_to_frames():
    rows = [("a", 0, 10, 20, 1, 1 << 62), ("a", 10, 20, 30, 1, 1 << 62)]
    assert running_sums.window_sums(panes(rows), ["k0"], size=20, every=10) is None
    small = [(*row[:5], 1 << 60) for row in rows]
    made = running_sums.window_sums(panes(small), ["k0"], size=20, every=10)
    assert made.select(["_window", "p0"]).to_pylist() == [
        {"_window": 10, "p0": 1 << 60}, {"_window": 20, "p0": 1 << 61}, {"_window": 30, "p0": 1 << 60},
    ]  # fmt: skip


def test_keys_without_numbers_are_left_to_frames():
    assert running_sums.window_sums(panes([(0.5, 0, 10, 20, 1, 1)]), ["k0"], size=20, every=10) is None
