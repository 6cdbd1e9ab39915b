"""What an app published together is read together: across topics, partitions, crashes, and other producers."""

from __future__ import annotations

import shutil
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from budget import examples, fast
from headrace.base.time import ManualClock
from headrace.connect.embedded.boundaries import TOPIC, BoundaryWriter, EpochBoundaries, producer
from headrace.engine.engine import Engine
from headrace.engine.epoch import Settings, no_fault
from headrace.engine.inprocess import InProcess
from headrace.testing.faults import Crash, Faults

SCHEMA = "id bigint, source int, target int, amount int"


class Runs:
    """An app on a log that it shares, epoch by epoch."""

    def __init__(self, app, tmp_path, *, fault=no_fault, shards=2):
        self.made = lambda: Engine(
            app.plan(),
            Settings(
                storage=tmp_path / app.name,
                topics=f"log:{tmp_path / 'log'}",
                shards=shards,
                clock=ManualClock(),
                sync=False,
                fault=fault,
            ),
        )
        self.start()

    def start(self):
        """Start, as a new process would."""
        self.engine = self.made()
        self.carrier = InProcess(self.engine)

    def step(self, limit=None):
        """Run an epoch of at most so many rows."""
        return self.carrier.step(limit=limit)

    def stop(self):
        """Let go of everything."""
        self.carrier.close()
        self.engine.close()


def banks(name="bank"):
    """The app that makes two topics of one: what goes away, and what comes."""
    app = hr.App(name, storage="unused")
    transfers = app.stream("transfers", SCHEMA, partitions=2)
    transfers.select("id", account="source", amount="-amount").to_topic("debits", key="account")
    transfers.select("id", account="target", amount="amount").to_topic("credits", key="account")
    return app


class Totals:
    """A sink that keeps the sum, epoch by epoch."""

    def __init__(self):
        self.rows = self.total = 0
        self.seen = []

    def write(self, epoch, rows):  # noqa: ARG002 -- a sink's words
        """Take an epoch in."""
        for row in rows.to_pylist():
            self.rows += row["_weight"] * row["n"]
            self.total += row["_weight"] * row["total"]
        self.seen.append(self.total)


def balances(sink):
    """The app that reads both again."""
    app = hr.App("balances", storage="unused")
    both = [app.stream(topic, "account int, amount int") for topic in ("debits", "credits")]
    both[0].union(both[1]).group_by("account").agg(n="count(*)", total="sum(amount)").to(sink)
    return app


def moves(count, seed=0):
    drawn = np.random.default_rng(seed).integers(0, 10, (count, 2)).tolist()
    return [{"id": i, "source": one, "target": other, "amount": 1} for i, (one, other) in enumerate(drawn)]


def pour(tmp_path, rows):
    with hr.Log(tmp_path / "log") as log:
        log.topic("transfers").append(rows)


@pytest.mark.parametrize("limit", fast(7, None, of=[1, 7, 100, None]))
def test_an_epoch_of_another_app_is_never_cut(tmp_path, limit):
    """Whatever the reader's own bound: at every epoch of its own the sum over both topics is 0."""
    upper, sink = Runs(banks(), tmp_path), Totals()
    lower = Runs(balances(sink), tmp_path)
    for number in range(12):
        pour(tmp_path, moves(number * 3 + 1, seed=number))
        upper.step()
        if number % 3 == 0:
            lower.step(limit)
    for _ in range(100):
        lower.step(limit)
    assert lower.engine.needs_no_epoch
    assert sink.seen == [0] * len(sink.seen)
    assert sink.rows == 2 * sum(number * 3 + 1 for number in range(12))
    assert len(sink.seen) > (5 if limit == 1 else 0)
    upper.stop()
    lower.stop()


@pytest.mark.parametrize("point", ["between_topics", "before_mark"])
def test_what_a_crash_left_unfinished_is_not_read(tmp_path, point):
    faults, sink = Faults(), Totals()
    upper, lower = Runs(banks(), tmp_path, fault=faults), Runs(balances(sink), tmp_path)
    pour(tmp_path, moves(20))
    upper.step()
    pour(tmp_path, moves(30, seed=1))
    faults.arm(point)
    with pytest.raises(Crash):
        upper.step()
    upper.stop()
    lower.step()
    lower.step()
    assert (sink.rows, sink.total) == (40, 0)
    assert lower.engine.needs_no_epoch
    upper.start()
    lower.step()
    assert (sink.rows, sink.total) == (100, 0)
    upper.stop()
    lower.stop()


def test_what_a_lost_life_left_unfinished_waits_no_longer(tmp_path):
    """The storage is gone: nobody will finish its epoch, so the next life of the app lets it be read."""
    faults, sink = Faults(), Totals()
    upper, lower = Runs(banks(), tmp_path, fault=faults), Runs(balances(sink), tmp_path)
    pour(tmp_path, moves(20))
    faults.arm("between_topics")
    with pytest.raises(Crash):
        upper.step()
    upper.stop()
    lower.step()
    assert sink.rows == 0
    shutil.rmtree(tmp_path / "bank")
    upper.start()
    upper.step()
    lower.step()
    assert (sink.rows, sink.total) == (60, -20), "the debits of the lost life, and all of the new one"
    upper.stop()
    lower.stop()


def test_other_producers_are_read_as_they_come(tmp_path):
    """Their records stand among the app's, and wait for nobody once the app's are whole."""
    upper, sink = Runs(banks(), tmp_path), Totals()
    lower = Runs(balances(sink), tmp_path)
    pour(tmp_path, moves(5))
    upper.step()
    with hr.Log(tmp_path / "log") as log:
        log.topic("credits").append([{"id": 0, "account": 1, "amount": 100}])
    lower.step()
    assert (sink.rows, sink.total) == (11, 100)
    upper.stop()
    lower.stop()


def test_marks_are_not_listed_and_written_once(tmp_path):
    upper = Runs(banks(), tmp_path)
    pour(tmp_path, moves(5))
    upper.step()
    upper.engine.publisher.groups[0].writer.boundaries.write(0, {"credits": {0: range(5)}})
    with hr.Log(tmp_path / "log") as log:
        assert log.topics() == ["credits", "debits", "transfers"]
        rows = log.topic(TOPIC).read(0, 0, 100).to_pylist()
    assert [row["epoch"] for row in rows if row["epoch"] >= 0] == [0] * len([r for r in rows if r["epoch"] >= 0])
    assert sum(row["last"] - row["first"] for row in rows) == 10
    upper.stop()
    upper.start()
    with hr.Log(tmp_path / "log") as log:
        assert log.topic(TOPIC).end_offsets()[0] == len(rows), "declared once"
    upper.stop()


@settings(max_examples=examples(30), deadline=None)
@given(data=st.data())
def test_every_cut_is_between_epochs(tmp_path_factory, data):
    """Several apps append to the same partitions, one of them is in the middle of it; the reader's bounds are any."""
    with hr.Log(tmp_path_factory.mktemp("cuts"), fsync=False) as log:
        topics = [log.create_topic(name, "app int, epoch int, part int", partitions=2) for name in "ab"]
        apps = [BoundaryWriter(log, f"app{number}/id") for number in range(3)]
        for app in apps:
            app.register(topics)
        everything = {}
        for epoch in range(data.draw(st.integers(0, 8))):
            for number, app in enumerate(apps):
                shape = data.draw(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 1)), unique=True))
                written = [_append(log, app, number, epoch, *target, data.draw(st.integers(1, 3))) for target in shape]
                given_: dict[str, dict[int, range]] = {}
                for topic, partition, offsets in written:
                    given_.setdefault(topic, {})[partition] = offsets
                everything[number, epoch] = sum(len(offsets) for *_, offsets in written)
                app.write(epoch, given_)
        unfinished = data.draw(st.sampled_from([None, "a", "b"]))
        if unfinished is not None:
            _append(log, apps[0], 0, 99, unfinished, 0, 2)
            everything[0, 99] = 3  # never whole
        _read_all(log, EpochBoundaries(log), everything, data)


def _append(log, app, number, epoch, topic, partition, rows):
    table = pa.Table.from_pylist([{"app": number, "epoch": epoch, "part": partition}] * rows)
    offsets = log.topic(topic).append(table, partition=partition, producer=producer(app.app, topic), sequence=epoch)
    return topic, partition, offsets[partition]


def _read_all(log, boundaries, everything, data):
    """Read on until nothing comes; after each cut every epoch was read whole or not at all."""
    partitions = [(topic, partition) for topic in "ab" for partition in range(2)]
    read: dict[tuple[str, int], int] = dict.fromkeys(partitions, 0)
    seen: dict[tuple[int, int], int] = {}
    while True:
        limits = [log.topic(topic).end_offsets()[partition] for topic, partition in partitions]
        open_ = [at for at, partition in enumerate(partitions) if limits[at] > read[partition]]
        chosen = [partitions[at] for at in open_]
        starts, tops = [read[partition] for partition in chosen], [limits[at] for at in open_]
        wanted = [data.draw(st.integers(start, top)) for start, top in zip(starts, tops, strict=True)]
        if chosen and wanted == starts:
            wanted[0] += 1
        ends = boundaries.ends(chosen, starts, wanted, tops)
        assert all(start <= end <= top for start, end, top in zip(starts, ends, tops, strict=True))
        if not chosen or (ends == starts and boundaries.ends(chosen, starts, tops, tops) == starts):
            break
        for partition, start, end in zip(chosen, starts, ends, strict=True):
            if end > start:
                for row in log.topic(partition[0]).read(partition[1], start, end - start).to_pylist():
                    seen[row["app"], row["epoch"]] = seen.get((row["app"], row["epoch"]), 0) + 1
            read[partition] = end
        assert all(everything[epoch] == rows for epoch, rows in seen.items())
    behind = {key: rows for key, rows in everything.items() if rows and seen.get(key, 0) != rows}
    assert set(behind) <= {key for key in everything if (0, 99) in everything}
    assert (0, 99) in everything or not behind


def test_a_topic_that_appears_after_the_bounds_were_asked_for_is_read_whole(tmp_path):
    """Its boundaries are read, and not forgotten, by a call that does not know its partitions yet."""
    with hr.Log(tmp_path / "log") as log:
        log.create_topic("a", "id bigint", partitions=1)
        known = EpochBoundaries(log)
        writer = BoundaryWriter(log, "app/1")
        log.create_topic("b", "id bigint", partitions=1)
        writer.register([log.topic("a"), log.topic("b")])
        for epoch in range(2):
            for name in "ab":
                log.topic(name).append([{"id": 1}] * 5, producer=producer("app/1", name), sequence=epoch)
            spans = range(5 * epoch, 5 * epoch + 5)
            writer.write(epoch, {"a": {0: spans}, "b": {0: spans}})
        assert known.ends([("a", 0)], [0], [0], [0], ["a", "b"]) == [0]
        assert known.ends([("a", 0)], [0], [0], [0]) == [0]
        both = [("a", 0), ("b", 0)]
        assert known.ends(both, [0, 0], [0, 3], [10, 10]) == [5, 5]
        assert known.ends(both, [5, 5], [6, 5], [10, 10]) == [10, 10]


def test_who_asks_whether_an_app_has_caught_up_does_not_disturb_its_plans(tmp_path, monkeypatch):
    """Epochs that one thread notes while another one forgets what is read would be cut."""
    bank, sink = Runs(banks(), tmp_path), Totals()
    reads, inside, overlaps = Runs(balances(sink), tmp_path), [], []
    ends = EpochBoundaries.ends

    def watched(self, *partitions):
        inside.append(self)
        time.sleep(0.002)
        overlaps.append(len(inside))
        found = ends(self, *partitions)
        inside.pop()
        return found

    monkeypatch.setattr(EpochBoundaries, "ends", watched)
    with hr.Log(tmp_path / "log") as log, ThreadPoolExecutor(2) as others:
        for seed in range(6):
            log.topic("transfers").append(moves(20, seed))
            bank.step()
            asked = [others.submit(lambda: reads.engine.caught_up) for _ in range(8)]
            reads.step(limit=3)
            assert {each.result() for each in asked} <= {True, False}
        while not reads.engine.caught_up:
            reads.step()
    bank.stop()
    reads.stop()
    assert set(overlaps) == {1}
    assert sink.rows == 2 * 6 * 20
    assert set(sink.seen) == {0}
