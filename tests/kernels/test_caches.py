"""Caches that are behind: one worker after the other meets a shard, each remembering another epoch of its state."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial

import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from headrace.engine import inprocess
from headrace.kernels.duck import IN_MEMORY, Duck
from headrace.kernels.state.scanned import ScannedState
from headrace.kernels.state.tables import TableSpec
from headrace.testing import Driver

GROUPS = 5_000


@pytest.fixture
def workers(monkeypatch):
    """Three caches of each shard, of which any meets the next epoch: so it is with Spark's workers."""
    dice, ducks = random.Random(1), {}  # noqa: S311 -- a seed that is repeated, no secret

    def any_of_them(carrier, level, shard):
        key = (level, shard, dice.randrange(3))
        if key not in carrier.ducks:
            ducks[key] = carrier.ducks[key] = Duck()
        return carrier.ducks[key]

    monkeypatch.setattr(inprocess.InProcess, "_duck", any_of_them)
    return ducks


@pytest.mark.parametrize("windowed", [False, True])
def test_whichever_worker_meets_a_shard_its_state_is_right(workers, windowed):
    """What a cache catches up with and what the epoch changes are in one transaction, in the same rows."""
    app = hr.App("caches")
    groups = app.stream("t", "k bigint, v bigint").group_by("k")
    if windowed:
        groups = groups.window(hr.tumbling("36500 days", grace="36500 days"))
    groups.agg(n="count(*)", total="sum(v)").to_view("sums")
    dice, expected = np.random.default_rng(1), np.zeros(GROUPS, np.int64)
    with Driver(app, shards=2) as driver:
        topic = driver.log.topic("t")
        for keys in [np.arange(GROUPS), *(dice.integers(0, GROUPS, 1_000) for _ in range(40))]:
            topic.append(pa.table({"k": keys, "v": np.full(len(keys), 3)}))
            np.add.at(expected, keys, 1)
            driver.step()
        got = sorted((row["k"], row["n"], row["total"]) for row in driver.view("sums"))
    assert got == [(k, n, 3 * n) for k, n in enumerate(expected.tolist())]
    assert len(workers) > 6


SUMS = TableSpec(name="sums", keys=(("k", "INTEGER"),), values=(("total", "HUGEINT"),))


def add_up(folder, host, seed):
    """Add 3 to random keys in 40 epochs, each in one of three caches; return what is kept, and what should be."""
    dice, expected, head = np.random.default_rng(seed), np.zeros(1_000, np.int64), None
    caches = [Duck(IN_MEMORY, host=host) for _ in range(3)]
    for epoch in range(40):
        duck = caches[dice.integers(3)]
        duck.begin()
        state = ScannedState(duck, "step", [SUMS], head)
        state.restore(folder / str(seed))
        keys = np.unique(dice.integers(0, len(expected), 300)).astype(np.int32)
        expected[keys] += 3
        kept, arrived = state.name("sums"), duck.register(pa.table({"k": keys}))
        columns = "d.k, coalesce(s._n, 0) + 1 AS _n, coalesce(s.total, 0) + 3::HUGEINT AS total, s.rowid AS old"
        rows = duck.arrow(f"SELECT {columns} FROM {arrived} d LEFT JOIN {kept} s ON s.k = d.k")
        state.replace("sums", rows, at="old")
        head = state.save(folder / str(seed), epoch, "attempt", sync=False)
        duck.commit()
        duck.forget()
    return sorted(duck.rows(f"SELECT k, total FROM {kept}")), [*enumerate(expected.tolist())]


def test_caches_that_are_behind_stand_beside_each_other(tmp_path):
    """Shards of a small epoch run in threads, on one database: a setting of it would be for all of them."""
    with closing(Duck()) as host, ThreadPoolExecutor(4) as threads:
        for kept, expected in threads.map(partial(add_up, tmp_path, host), range(6)):
            assert kept == expected
