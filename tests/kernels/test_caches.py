"""Caches that are behind: one worker after the other meets a shard, each remembering another epoch of its state."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from headrace.engine import inprocess
from headrace.kernels.duck import Duck
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
