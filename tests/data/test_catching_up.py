"""Catching up loses nothing: bids in perfect order, read from the start, are in time however they are read."""

from __future__ import annotations

import importlib.util
import random
from collections import Counter

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import headrace as hr
from headrace.engine import inputs
from headrace.testing import Driver

EVENTS, BIDS, PARTITIONS = 100_000, 92_000, 4
RATE = 1_000  # events a second of event time: 100 seconds, and 4 of grace


@pytest.fixture(scope="module")
def bids(data):
    """The bids of a Nexmark generator that stands beside the real data, in the order of their times."""
    path = data.parent / "peers" / "jvm" / "nexmark_gen.py"
    if not path.is_file():
        pytest.skip(f"there is no {path}")
    spec = importlib.util.spec_from_file_location("nexmark_gen", path)
    generator = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generator)
    tables = [made["bid"] for made in generator.Nexmark(rate=RATE).chunks(EVENTS)]
    bids = pa.concat_tables(tables).select(["bidder", "dateTime"])
    at = bids.column("dateTime").cast(pa.timestamp("us")).cast(pa.timestamp("us", tz="UTC"))
    made = pa.table({"bidder": bids.column("bidder").cast(pa.int64()), "at": at})
    assert made.num_rows == BIDS
    assert made.column("at").equals(made.sort_by("at").column("at")), "in perfect order"
    return made


def counting():
    app = hr.App("catching_up", shards=2)
    rows = app.stream("bids", "bidder bigint, at timestamp", event_time="at", partitions=PARTITIONS).group_by("bidder")
    for name, emit in (("changes", "changes"), ("final", "final")):
        counts = rows.window(hr.tumbling("5 seconds", grace="4 seconds"), emit=emit).agg(n="count(*)").named(name)
        counts.to_view(name)
    return app


def fill(driver, bids):
    """Spread the bids over the partitions in turn, each in order."""
    topic = driver.log.topic("bids")
    number = pa.array(range(bids.num_rows))
    for partition in range(PARTITIONS):
        mine = pc.equal(pc.subtract(number, pc.multiply(pc.divide(number, PARTITIONS), PARTITIONS)), partition)
        topic.append(bids.filter(mine), partition=partition)


def expected(bids):
    """Return the count of each bidder and window, counted plainly."""
    seconds = pc.divide(bids.column("at").cast(pa.int64()), 5_000_000)
    return Counter(zip(bids.column("bidder").to_pylist(), seconds.to_pylist(), strict=True))


def counted(driver, view):
    return {(row["bidder"], int(row["window_start"].timestamp()) // 5): row["n"] for row in driver.view(view)}


def unevenly(seed):
    """Return a way to share an epoch among partitions: some get much, some little, some nothing."""
    chance = random.Random(seed)  # noqa: S311 -- a test, not a secret

    def share(unread, limit):
        weights = [chance.choice([0, 1, 1, 3, 40]) for _ in unread]
        taken = [
            min(rows, limit * weight // max(sum(weights), 1)) for rows, weight in zip(unread, weights, strict=True)
        ]
        if not any(taken) and any(unread):
            most = max(range(len(unread)), key=lambda i: unread[i])
            taken[most] = min(unread[most], limit)
        return taken

    return share


def catch_up(driver, limit):
    """Read all there is by epochs of so many rows; return how many epochs that took."""
    epochs = 0
    while driver.status()["lag"]:
        driver.step(limit=limit)
        epochs += 1
    return epochs


def check(driver, bids):
    driver.finish()
    plain = expected(bids)
    for view in ("changes", "final"):
        assert driver.late(view) == []
        assert counted(driver, view) == plain
        assert sum(plain.values()) == BIDS


@pytest.mark.parametrize(("limit", "most"), [(BIDS, 1), (20_000, 5), (4_600, 20)])
def test_all_bids_are_counted_in_few_epochs_and_in_many(bids, limit, most):
    with Driver(counting()) as driver:
        fill(driver, bids)
        assert catch_up(driver, limit) == most
        check(driver, bids)


@pytest.mark.parametrize("limit", [8_000, 30_000])
def test_all_bids_are_counted_when_partitions_are_read_at_different_speeds(bids, limit, monkeypatch):
    """One may be read to its end before another one is begun; the watermark waits for the slowest."""
    monkeypatch.setattr(inputs, "share", unevenly(seed=limit))
    with Driver(counting()) as driver:
        fill(driver, bids)
        assert catch_up(driver, limit) > 2
        check(driver, bids)


def test_all_bids_are_counted_while_they_are_still_coming(bids):
    """Each partition is filled at its own pace, in pieces; the app reads what is there."""
    with Driver(counting()) as driver:
        topic = driver.log.topic("bids")
        parts = [bids.take(pa.array(range(p, BIDS, PARTITIONS))) for p in range(PARTITIONS)]
        for epoch in range(12):
            for partition, part in enumerate(parts):
                size = part.num_rows // (4 * (partition + 1))
                topic.append(part.slice(epoch * size, size), partition=partition)
            driver.step()
        for partition, part in enumerate(parts):
            topic.append(part.slice(12 * (part.num_rows // (4 * (partition + 1)))), partition=partition)
        driver.run()
        check(driver, bids)


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_all_bids_are_counted_on_spark(bids):
    with Driver(counting(), carrier="spark", shards=2) as driver:
        fill(driver, bids)
        assert catch_up(driver, 15_000) == 7
        check(driver, bids)
