"""What an app published to Kafka together is read together, across topics and partitions, by the next app."""

from __future__ import annotations

import json
import threading

import numpy as np
import pytest
from confluent_kafka import Producer

import headrace as hr
from headrace.connect.kafka.address import KafkaAddress
from headrace.connect.kafka.client.administration import cluster
from headrace.testing import Driver

TRANSFERS = "id bigint, source int, target int, amount int"


def bank(broker, **options):
    """The app that makes two topics of one: what goes away, and what comes."""
    app = hr.App("bank", topics=broker.address, shards=1, **options)
    transfers = app.stream("transfers", TRANSFERS, partitions=1)
    transfers.select("id", account="source", amount="-amount").to_topic("debits", key="account")
    transfers.select("id", account="target", amount="amount").to_topic("credits", key="account")
    return app


class Totals:
    """A sink that keeps the sum over all accounts, epoch by epoch."""

    def __init__(self):
        self.rows = self.total = 0
        self.seen = []

    def write(self, epoch, rows):  # noqa: ARG002 -- what a sink is given
        for row in rows.to_pylist():
            self.rows += row["_weight"] * row["n"]
            self.total += row["_weight"] * row["total"]
        self.seen.append(self.total)


def balances(broker, sink, **options):
    """The app that reads both again."""
    app = hr.App("balances", topics=broker.address, shards=1, **options)
    both = [app.stream(topic, "account int, amount int", key="account") for topic in ("debits", "credits")]
    both[0].union(both[1]).group_by("account").agg(n="count(*)", total="sum(amount)").to(sink)
    return app


def moves(count, seed=0):
    drawn = np.random.default_rng(seed).integers(0, 10, (count, 2)).tolist()
    return [{"id": i, "source": one, "target": other, "amount": 1} for i, (one, other) in enumerate(drawn)]


@pytest.fixture
def topics(broker):
    """Both topics, of three partitions; the clock of a driver stands in the past, so nothing is ever too old."""
    for name in ("debits", "credits"):
        forever = {"retention.ms": "-1"}
        cluster(KafkaAddress.parse(broker.address)).create(broker.topic(name), partitions=3, settings=forever)


@pytest.mark.usefixtures("topics")
@pytest.mark.parametrize("limit", [7, None])
def test_an_epoch_of_another_app_is_never_cut(broker, limit):
    """Whatever the reader's own bound: at every epoch of its own the sum over both topics is 0."""
    sink, count = Totals(), 0
    with Driver(bank(broker)) as upper, Driver(balances(broker, sink)) as lower:
        for number in range(9):
            rows = moves(number * 3 + 1, seed=number)
            count += len(rows)
            upper.send("transfers", *rows)
            upper.run()
            if number % 3 == 0:
                lower.step(limit=limit)
        while not lower.caught_up:
            lower.step(limit=limit)
    assert sink.seen == [0] * len(sink.seen)
    assert sink.rows == 2 * count
    assert len(sink.seen) >= (4 if limit is None else 8)


@pytest.mark.usefixtures("topics")
def test_both_apps_run_and_no_epoch_is_seen_half(broker, tmp_path):
    """Transactions become visible partition by partition, while the other app plans its epochs."""
    sink, count, producer = Totals(), 0, Producer({"bootstrap.servers": broker.bootstrap})
    upper = bank(broker, storage=tmp_path / "bank")
    lower = balances(broker, sink, storage=tmp_path / "balances")
    with upper.start(carrier="in-process") as writing, lower.start(carrier="in-process") as reading:
        for number in range(40):
            rows = moves(20, seed=number)
            count += len(rows)
            for row in rows:
                producer.produce(broker.topic("transfers"), json.dumps(row))
            producer.flush()
            threading.Event().wait(0.05)
        writing.await_caught_up(300)
        reading.await_caught_up(300)
    assert sink.seen == [0] * len(sink.seen)
    assert sink.rows == 2 * count
    assert len(sink.seen) > 2


@pytest.mark.usefixtures("topics")
def test_an_epoch_that_a_crash_left_unfinished_is_read_when_it_is_finished(broker):
    """The records and the mark are there, and not committed: the next app waits for them, and goes on with others."""
    sink = Totals()
    with Driver(bank(broker)) as upper, Driver(balances(broker, sink)) as lower:
        upper.send("transfers", *moves(20))
        upper.run()
        upper.send("transfers", *moves(20, seed=1))
        upper.crash(at="before_transaction_ends")
        lower.run()
        assert sink.rows == 40
        upper.restart()
        upper.run()
        lower.run()
    assert sink.rows == 80
    assert sink.seen == [0] * len(sink.seen)
