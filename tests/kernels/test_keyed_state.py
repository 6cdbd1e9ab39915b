"""State that is looked up: whatever epochs do, fail or are done by other processes, it holds what was committed."""

from __future__ import annotations

import random
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.base.errors import DamagedFile
from headrace.engine.storage import Storage
from headrace.kernels.duck import Duck
from headrace.kernels.state import keyed
from headrace.kernels.state.keyed import TIER, KeyedState
from headrace.kernels.state.runs import Run
from headrace.kernels.state.tables import TableSpec

if TYPE_CHECKING:
    from pathlib import Path

SPEC = TableSpec(
    name="rows",
    keys=(("k", "VARCHAR"),),
    values=(("g", "DOUBLE"), ("v", "DECIMAL(10,2)[]")),
    by=(("k",), ("g",)),
)
OTHER = TableSpec(name="counts", keys=(("g", "DOUBLE"),), values=(), by=(("g",),))
KINDS = pa.schema([("k", pa.string()), ("g", pa.float64()), ("v", pa.list_(pa.decimal128(10, 2)))])


class Shard:
    """A step's shard through many epochs, and what it should hold."""

    def __init__(self, folder: Path) -> None:
        self.storage = Storage(folder, "app", sync=False)
        self.folder = folder / "state" / "step" / "0"
        self.duck = Duck()
        self.head = None
        self.epoch = 0
        self.rows: dict = {}
        self.counts: dict = {}

    def run(self, changes, *, commits=True):
        """Put rows (None: take them away) and count their groups, twice in one epoch; look at all between."""
        state = KeyedState(self.duck, (SPEC, OTHER), self.head, self.folder)
        rows, counts = dict(self.rows), dict(self.counts)
        for half in (changes[: len(changes) // 2], changes[len(changes) // 2 :]):
            self._put(state, rows, counts, dict(half))
            self.check(state, rows, counts)
        head = state.save(self.folder, self.epoch, f"a{self.epoch}{'' if commits else 'x'}", sync=False)
        if commits:
            self.head, self.rows, self.counts = head, rows, counts
            if head is not None:
                self.storage.forget_files("step", "0", head, before=self.epoch + 1)
        self.duck.forget()
        self.epoch += commits

    def _put(self, state, rows, counts, changes):
        arrived = pa.Table.from_pylist(
            [{"k": k, "g": None if row is None else row[0], "v": None if row is None else row[1]} for k, row in
             changes.items()], schema=KINDS,
        )  # fmt: skip
        probe = self.duck.register(arrived)
        candidates = state.lookup("rows", ("k",), probe)
        changed = self.duck.arrow(
            f"SELECT d.k, (d.g IS NOT NULL OR d.v IS NOT NULL)::BIGINT AS _n, d.g, d.v, s.rowid AS o_row, s.g AS o_g "
            f"FROM {probe} d LEFT JOIN {candidates} s ON d.k IS NOT DISTINCT FROM s.k"
        )
        state.replace("rows", changed.drop_columns(["o_g"]), at="o_row")
        moved: Counter = Counter()
        for row in changed.to_pylist():
            old = rows.pop(row["k"], None)
            assert (old is None) == (row["o_row"] is None)
            if old is not None:
                moved[row["o_g"]] -= 1
            if row["_n"]:
                rows[row["k"]] = (row["g"], row["v"])
                moved[row["g"]] += 1
        self._count(state, counts, moved)

    def _count(self, state, counts, moved):
        arrived = pa.table({"g": pa.array(moved, pa.float64()), "n": pa.array(moved.values(), pa.int64())})
        probe = self.duck.register(arrived)
        candidates = state.lookup("counts", ("g",), probe)
        changed = self.duck.arrow(
            f"SELECT d.g, coalesce(s._n, 0) + d.n AS _n, s.rowid AS o_row FROM {probe} d LEFT JOIN {candidates} s "
            "ON d.g IS NOT DISTINCT FROM s.g"
        )
        state.replace("counts", changed, at="o_row")
        for g, n in moved.items():
            counts[g] = counts.get(g, 0) + n

    def check(self, state, rows, counts):
        """Hold all rows, and those that are looked up, against what should be there."""
        found = self.duck.arrow(f"SELECT k, g, v, _n FROM {state.name('rows')}").to_pylist()
        assert {row["k"]: (row["g"], row["v"]) for row in found} == rows
        assert len(found) == len(rows)
        kept = self.duck.arrow(f"SELECT g, _n FROM {state.name('counts')}").to_pylist()
        assert {row["g"]: row["_n"] for row in kept} == {g: n for g, n in counts.items() if n}
        groups = [0.0, 1.5]
        probe = self.duck.register(pa.table({"g": groups}))
        candidates = state.lookup("rows", ("g",), probe)
        same = self.duck.arrow(f"SELECT s.k FROM {candidates} s SEMI JOIN {probe} d ON s.g = d.g").column(0).to_pylist()
        assert sorted(map(repr, same)) == sorted(repr(k) for k, row in rows.items() if row[0] in groups)

    def look(self):
        """Open the state as a process that knows nothing of it would."""
        keyed._REMEMBERED.clear()
        self.check(KeyedState(self.duck, (SPEC, OTHER), self.head, self.folder), self.rows, self.counts)


keys = st.sampled_from([None, "", "a", "b", "c", "é😀", "long" * 100])
rows = st.one_of(
    st.none(),
    st.tuples(
        st.sampled_from([0.0, 1.5, -2.0]),
        st.one_of(st.none(), st.lists(st.one_of(st.none(), st.decimals(-9, 9, places=2)), max_size=2)),
    ),
)
epochs = st.lists(
    st.tuples(st.sampled_from(["run", "run", "run", "fail", "elsewhere"]), st.lists(st.tuples(keys, rows), max_size=6)),
    max_size=14,
)


@settings(max_examples=25, deadline=None)
@given(epochs=epochs, few=st.booleans(), mapped=st.booleans())
def test_it_holds_what_was_committed(tmp_path_factory, epochs, few, mapped):
    """Looked up by hash or whole, in memory or in mapped files, after failed epochs and in other processes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keyed, "FEWER", 0 if few else keyed.FEWER)
        patch.setattr(keyed, "MAPPED_FROM", 0 if mapped else keyed.MAPPED_FROM)
        shard = Shard(tmp_path_factory.mktemp("state"))
        for what, changes in epochs:
            if what == "elsewhere":
                shard.look()
            shard.run(changes, commits=what != "fail")
        shard.look()


def test_a_chain_has_few_files_however_many_epochs_there_were(tmp_path):
    shard = Shard(tmp_path)
    for epoch in range(120):
        shard.run([(str(epoch * 7 % 100 + at), (float(at), [])) for at in range(3)])
        assert len(list(shard.folder.iterdir())) == shard.head.chain + 1 <= (TIER - 1) * 5
    assert shard.head.rows == len(shard.rows) + sum(n > 0 for n in shard.counts.values())
    shard.look()


def test_an_epoch_writes_what_it_changes_not_what_is_kept(tmp_path):
    shard = Shard(tmp_path)
    shard.run([(str(at), (float(at % 7), [])) for at in range(2000)])
    large = shard.head.full_bytes
    shard.run([("7", (1.0, []))])
    assert shard.head.chain == 1
    assert shard.head.full_bytes == large
    assert shard.head.chain_bytes < large / 10


def test_a_file_that_is_damaged_is_not_believed(tmp_path):
    shard = Shard(tmp_path)
    shard.run([("a", (1.0, []))])
    path = shard.folder / shard.head.file
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 1
    path.write_bytes(data)
    with pytest.raises(DamagedFile):
        shard.look()


def test_hashes_that_are_alike_are_told_apart(tmp_path, monkeypatch):
    """What is found by hash holds others too: who asks compares."""
    import numpy as np

    monkeypatch.setattr(keyed, "FEWER", 0)
    for module in ("keyed", "runs"):
        function = "probe_hashes" if module == "keyed" else "hash_columns"
        monkeypatch.setattr(f"headrace.kernels.state.{module}.{function}", _few_hashes(np, unique=module == "keyed"))
    shard = Shard(tmp_path)
    for at in range(12):
        shard.run([(letter, (float(at % 3), [])) for letter in "abcdefgh"[at % 4 :]])
    shard.look()


def _few_hashes(np, *, unique):
    from headrace.base.hashing import hash_columns

    def few(columns, rows):
        hashes = hash_columns(columns, rows) % np.uint64(3)
        return np.unique(hashes) if unique else hashes

    return few


def test_a_row_that_is_removed_twice_counts_once():
    run = Run.of(1, pa.table({"k": range(10)}), [["k"]])
    run.remove(np.array([3, 5, 3]))
    run.remove(np.array([5, 9]))
    run.remove(np.array([], np.int64))
    assert run.live == 7
    assert run.all()["k"].to_pylist() == [0, 1, 2, 4, 6, 7, 8]


def test_shards_that_run_at_once_share_what_a_process_remembers(tmp_path):
    """More chains than are remembered: each thread drops the oldest ones of all. Without a lock Python crashes."""
    interval = sys.getswitchinterval()

    def open_and_save(thread):
        dice = random.Random(thread)  # noqa: S311 -- a seed that is repeated, no secret
        for _ in range(15_000):
            folder = tmp_path / str(thread) / str(dice.randrange(150))
            keyed._remember(folder, keyed._opened(folder, None, {}))

    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as shards:
            list(shards.map(open_and_save, range(4)))
    finally:
        sys.setswitchinterval(interval)
    assert len(keyed._REMEMBERED) == keyed.REMEMBERED
    keyed._REMEMBERED.clear()
