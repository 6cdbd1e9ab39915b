"""Buffers, of which rows go by their time: whatever epochs do or fail to do, they hold what they should."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.engine.storage import Storage
from headrace.kernels.duck import Duck
from headrace.kernels.state import keyed
from headrace.kernels.state.keyed import TIER, KeyedState
from headrace.kernels.state.tables import TableSpec

if TYPE_CHECKING:
    from pathlib import Path

WAITING = TableSpec(name="waiting", keys=(), values=(("v", "VARCHAR"), ("l2", "TIMESTAMP")), ages="l2")
SEEN = TableSpec(name="seen", keys=(("k", "VARCHAR"),), values=(("first", "BIGINT"),), by=(("k",),), ages="first")
KEPT = TableSpec(name="kept", keys=(("k", "VARCHAR"),), values=(), by=(("k",),))
KEYS = ["a", "b", "c"]


class Shard:
    """A step's shard through many epochs, and what it should hold."""

    def __init__(self, folder: Path) -> None:
        self.storage = Storage(folder, "app", sync=False)
        self.folder = folder / "state" / "step" / "0"
        self.duck = Duck()
        self.head = None
        self.epoch = 0
        self.now = 0
        self.rows: list = []
        self.kept: set = set()

    def run(self, times, passed, *, keeps=(), commits=True):
        """Let go of what is before a time that has `passed` on, put rows of times after it, look at all between."""
        state = KeyedState(self.duck, (WAITING, SEEN, KEPT), self.head, self.folder)
        now, rows, kept = self.now + passed, list(self.rows), set(self.kept)
        self.check(state, rows)
        state.expire("waiting", now)
        state.expire("seen", now)
        rows = [row for row in rows if row[1] >= now]
        for half in (times[: len(times) // 2], times[len(times) // 2 :]):
            arrived = [(f"{self.epoch}-{at}", now + at) for at in half]
            state.append("waiting", pa.table({"v": [v for v, _ in arrived], "l2": _times(arrived)}))
            keys = [KEYS[at % 3] for _, at in arrived]
            state.append("seen", pa.table({"k": keys, "first": pa.array([at for _, at in arrived], pa.int64())}))
            rows += arrived
            self.check(state, rows)
        for key in set(keeps) - kept:
            state.replace("kept", pa.table({"k": [key], "_n": [1], "o": pa.nulls(1, pa.int64())}), at="o")
        state.oldest = state.minimum("seen", "first")
        head = state.save(self.folder, self.epoch, f"a{self.epoch}{'' if commits else 'x'}", sync=False)
        if commits:
            self.head, self.rows, self.now, self.kept = head, rows, now, kept | set(keeps)
            if head is not None:
                self.storage.forget_files("step", "0", head, before=self.epoch + 1)
                assert head.rows == 2 * len(rows) + len(self.kept)
                assert head.oldest == min((at for _, at in rows), default=None)
        self.duck.forget()
        self.epoch += commits

    def check(self, state, rows):
        """Hold rows between times against what should be there, and those that are looked up."""
        times = [at for _, at in rows]
        first, last = min(times, default=0) + 1, max(times, default=0) - 1
        for low, high in ((None, None), (None, last), (first, None), (first, last)):
            found = [row for part in state.between("waiting", low, high) for row in part.to_pylist()]
            there = [(v, at) for v, at in rows if (low is None or at >= low) and (high is None or at <= high)]
            assert [(row["v"], _micros(row["l2"])) for row in found] == there
            during = self.duck.arrow(f"SELECT v FROM {state.during('waiting', low, high)}").column(0).to_pylist()
            assert during == [v for v, _ in there]
        probe = self.duck.register(pa.table({"k": KEYS[:1]}))
        candidates = self.duck.arrow(f"SELECT first FROM {state.lookup('seen', ('k',), probe)} WHERE k = 'a'")
        assert sorted(candidates.column(0).to_pylist()) == sorted(at for at in times if at % 3 == 0)

    def look(self):
        """Open the state as a process that knows nothing of it would."""
        keyed._REMEMBERED.clear()
        self.check(KeyedState(self.duck, (WAITING, SEEN, KEPT), self.head, self.folder), self.rows)


def _times(rows):
    return pa.array([at for _, at in rows], pa.timestamp("us"))


def _micros(at):
    return pa.scalar(at, pa.timestamp("us")).cast(pa.int64()).as_py()


epochs = st.lists(
    st.tuples(
        st.sampled_from(["run", "run", "run", "fail", "elsewhere"]),
        st.lists(st.integers(0, 20), max_size=8),
        st.sampled_from([0, 0, 3, 10, 30]),
        st.lists(st.sampled_from("klm"), max_size=1),
    ),
    max_size=14,
)


@settings(max_examples=20, deadline=None)
@given(epochs=epochs, few=st.booleans(), mapped=st.booleans())
def test_a_buffer_holds_what_was_put_and_is_not_past(tmp_path_factory, epochs, few, mapped):
    """In memory or in mapped files, with a table that stays, after failed epochs and in other processes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keyed, "FEWER", 0 if few else keyed.FEWER)
        patch.setattr(keyed, "MAPPED_FROM", 0 if mapped else keyed.MAPPED_FROM)
        shard = Shard(tmp_path_factory.mktemp("state"))
        for what, times, passed, keeps in epochs:
            if what == "elsewhere":
                shard.look()
            shard.run(times, passed, keeps=keeps, commits=what != "fail")
        shard.look()


@pytest.mark.parametrize("burst", [30, 3000])
def test_files_of_rows_that_are_gone_go_too(tmp_path, burst):
    """However many arrived at once, none is left when their time is past."""
    shard = Shard(tmp_path)
    shard.run([at % 20 for at in range(burst)], 0)
    large = shard.head.full_bytes
    for epoch in range(60):
        shard.run([0, 5, 10], 10, keeps=[str(epoch)])
        assert len(list(shard.folder.iterdir())) == shard.head.chain + 1 <= (TIER - 1) * 5
    size = sum(path.stat().st_size for path in shard.folder.iterdir())
    assert size < max(large, 60_000)
    assert len(shard.rows) < 12
    shard.look()


def test_what_only_goes_is_told_too(tmp_path):
    """An epoch in which nothing comes and rows go moves the head; one in which nothing happens does not."""
    shard = Shard(tmp_path)
    shard.run([1, 2, 3], 0)
    first = shard.head
    shard.run([], 2)
    assert shard.head != first
    assert shard.head.rows == 4
    second = shard.head
    shard.run([], 0)
    assert shard.head == second
    shard.look()


def test_rows_that_are_not_past_are_given_without_a_copy(tmp_path):
    shard = Shard(tmp_path)
    shard.run([1, 2, 3], 0)
    state = KeyedState(shard.duck, (WAITING, SEEN, KEPT), shard.head, shard.folder)
    (one,), (other,) = state.between("waiting", None, None), state.between("waiting", 0, 9)
    assert one.column("l2").chunk(0).buffers()[1].address == other.column("l2").chunk(0).buffers()[1].address
    assert pc.sum(pc.is_valid(one.column("v"))).as_py() == 3
