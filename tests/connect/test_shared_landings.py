"""Feeds that share a reader: what they append to several topics is durable, and read, together; each row once."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field

import pytest

import headrace as hr
from headrace.base.errors import InvalidPlan, InvalidRows
from headrace.base.outside import FeedChanged, FeedRunsElsewhere, FeedTopicReplaced
from headrace.base.schema import as_schema
from headrace.connect.embedded import EmbeddedTopics
from headrace.connect.embedded.requests import request_again
from headrace.connect.feed import ALONE, DeadRecord, Declared, SharedFeed
from headrace.connect.topics import TopicSpec
from headrace.engine.inputs import Inputs
from headrace.log import Log
from headrace.testing import Crash, Driver

MONEY = as_schema("account int not null, amount int")
FEEDS = {"debits": "bank/debits", "credits": "bank/credits"}


def landing(log, *, topics=FEEDS, columns=MONEY, fault=None, limit=1000, read=None):
    store = EmbeddedTopics(log, partitions=2, fault=fault or (lambda point: None))  # noqa: ARG005
    specs = {name: TopicSpec(name=name, schema=columns, key=("account",)) for name in topics}
    return store.shared_landing("bank", specs, feeds=topics, limit=limit, read=read or (lambda topic: 0))  # noqa: ARG005


def transfer(number):
    return {"debits": [{"account": number, "amount": -1}], "credits": [{"account": number + 1, "amount": 1}]}


def stored(log, topic):
    if not log.has_topic(topic):
        return []
    opened = log.topic(topic)
    return [row["account"] for p in range(opened.partitions) for row in opened.read(p, 0, 1000).to_pylist()]


@pytest.mark.parametrize(
    "point", ["before_landing", "during_landing", "between_topics", "before_mark", "after_landing"]
)
def test_after_a_crash_at_any_point_all_topics_have_an_append_once_or_none_has_it(tmp_path, point):
    armed = []

    def fault(at):
        if at in armed:
            raise Crash(at)

    with Log(tmp_path, fsync=False) as log:
        one = landing(log, fault=fault)
        one.append(transfer(1), position=b"1")
        armed.append(point)
        with pytest.raises(Crash):
            one.append(transfer(2), position=b"2", dead={"debits": [DeadRecord("x", "no number")]})
        one.close()
        again = landing(log)
        at = int(again.position())
        assert at == (1 if point == "before_landing" else 2)
        again.append(transfer(3), position=b"3")
        again.close()
        assert sorted(stored(log, "debits")) == [1, 2, 3][:at] + ([3] if at < 3 else [])
        assert sorted(stored(log, "credits")) == [each + 1 for each in sorted(stored(log, "debits"))]
        dead = log.topic("debits.dead").read(0, 0, 10).num_rows if log.has_topic("debits.dead") else 0
        assert dead == at - 1


def test_a_row_that_does_not_fit_leaves_nothing_in_any_topic(tmp_path):
    with Log(tmp_path, fsync=False) as log:
        one = landing(log)
        with pytest.raises(InvalidRows):
            one.append({"credits": [{"account": 1, "amount": 1}], "debits": [{"account": None, "amount": 1}]})
        assert stored(log, "credits") == stored(log, "debits") == []
        one.append(transfer(1), position=b"1")
        one.close()
        assert stored(log, "credits") == [2]


def test_a_topic_joins_later_and_the_position_stays(tmp_path):
    with Log(tmp_path, fsync=False) as log:
        one = landing(log, topics={"debits": FEEDS["debits"]})
        one.append({"debits": [{"account": 1, "amount": -1}]}, position=b"1")
        one.close()
        both = landing(log)
        assert both.position() == b"1"
        both.append(transfer(2), position=b"2")
        both.close()
        assert sorted(stored(log, "debits")) == [1, 2]


def test_other_feeds_another_process_and_replaced_topics_are_refused(tmp_path):
    with Log(tmp_path, fsync=False) as log:
        one = landing(log)
        one.append(transfer(1), position=b"1")
        with pytest.raises(FeedRunsElsewhere):
            landing(log)
        one.close()
        with pytest.raises(FeedChanged, match="bank/debits"):
            landing(log, topics=FEEDS | {"debits": "other/debits"})
        log.delete_topic("credits")
        with pytest.raises(FeedTopicReplaced):
            landing(log)


@pytest.mark.parametrize("keyless", [False, True])
def test_dead_letters_alone_are_kept_after_the_file_of_a_group_was_removed(tmp_path, keyless):
    """Their numbers are greater than those of the topic, which got no rows with them."""
    rows = {"debits": [{"account": None, "amount": 1}]} if keyless else {}
    dead = None if keyless else {"debits": [DeadRecord("x", "no number")]}
    with Log(tmp_path, fsync=False) as log:
        columns = as_schema("account int, amount int")
        log.create_topic("debits", columns, partitions=2, key=("account",), cleanup="compact")
        for _ in range(2):
            with closing(landing(log, topics={"debits": FEEDS["debits"]}, columns=columns)) as one:
                one.append(rows, dead=dead)
                one.append(rows, dead=dead)
            one.path.unlink()
        assert log.topic("debits.dead").read(0, 0, 10).num_rows == 4


def test_a_topic_that_joins_again_after_the_file_was_removed_gets_every_row(tmp_path):
    alone = {"debits": FEEDS["debits"]}
    with Log(tmp_path, fsync=False) as log:
        with closing(landing(log)) as both:
            both.append(transfer(1), position=b"1")
            for number in range(2, 5):
                both.append({"credits": transfer(number)["credits"]}, position=b"%d" % number)
        both.path.unlink()
        with closing(landing(log, topics=alone)) as one:
            one.append({"debits": transfer(5)["debits"]}, position=b"5")
        with closing(landing(log)) as both:
            both.append(transfer(4), position=b"6")  # to the partition of the last append
        assert sorted(stored(log, "debits")) == [1, 4, 5]
        assert sorted(stored(log, "credits")) == [2, 3, 4, 5, 5]


def test_there_is_room_while_the_app_keeps_up_with_every_topic(tmp_path):
    read = {"debits": 0, "credits": 1}
    with Log(tmp_path, fsync=False) as log:
        one = landing(log, limit=1, read=lambda topic: read[topic])
        assert one.has_room()
        one.append(transfer(1))
        assert not one.has_room()
        read["debits"] = 1
        assert one.has_room()
        one.close()


def test_a_request_is_there_until_it_is_answered(tmp_path):
    with Log(tmp_path, fsync=False) as log:
        first, other = request_again(log, "debits"), request_again(log, "elsewhere")
        one = landing(log)
        assert one.requests() == [first]
        one.answered(first)
        assert one.requests() == []
        one.close()
        assert other != first


# ---- feeds ----


@dataclass(frozen=True)
class Transfers(SharedFeed):
    """One of two topics that a bank's transfers fill; both have one reader."""

    table: str
    count: int
    runs: list = field(default_factory=list, compare=False)

    @property
    def identity(self):
        return f"bank/{self.table}"

    @property
    def reader_group(self):
        return "bank"

    def declares(self):
        return Declared(MONEY, ("account",))

    def run_together(self, feeds, landing, stop):
        self.runs.append(sorted(feeds))
        start = int(landing.position() or b"0")
        for number in range(start, self.count):
            if stop.is_set():
                return
            every = transfer(number)
            names = {ALONE: self.table} if ALONE in feeds else {name: name for name in feeds}
            landing.append({name: every[names[name]] for name in feeds}, position=str(number + 1).encode())
            landing.report(phase="streaming", lag_bytes=self.count - number - 1)


class Sums:
    """A sink that keeps the sum of all amounts, epoch by epoch."""

    def __init__(self):
        self.total, self.rows, self.seen = 0, 0, []

    def write(self, epoch, rows):  # noqa: ARG002 -- what a sink is given
        for row in rows.to_pylist():
            self.total += row["_weight"] * row["total"]
            self.rows += abs(row["total"])
        self.seen.append(self.total)


def app(tmp_path, sink, runs=None):
    made = hr.App("sums", storage=tmp_path, shards=2)
    runs = [] if runs is None else runs
    both = [
        made.stream(name, MONEY, key="account", source=Transfers(name, 300, runs)) for name in ("debits", "credits")
    ]
    both[0].union(both[1]).group_by("account").agg(total="sum(amount)").to(sink)
    return made


def test_feeds_of_one_group_have_one_reader_and_no_epoch_sees_half_of_an_append(tmp_path):
    sink, runs = Sums(), []
    with app(tmp_path, sink, runs).start(carrier="in-process") as running:
        running.await_caught_up(300)
        status = running.status()["feeds"]
    assert runs == [["credits", "debits"]]
    assert sink.seen == [0] * len(sink.seen)
    assert {step: (each["rows"], each["state"]) for step, each in status.items()} == {
        "debits": (300, "ended"),
        "credits": (300, "ended"),
    }
    assert status["debits"]["phase"] == "streaming"
    assert status["debits"]["lag_bytes"] == 0


@pytest.mark.parametrize("already", [0, 1])
def test_an_append_between_two_looks_at_the_ends_of_topics_is_read_as_a_whole(tmp_path, monkeypatch, already):
    """One topic has nothing unread by its end, the other has the append: then it waits for the next epoch."""
    bounds_of, sink, looked = Inputs.bounds_of, Sums(), []
    made = hr.App("late", storage=tmp_path / "app", topics=f"log:{tmp_path / 'log'}")
    with closing(landing(Log(tmp_path / "log"))) as opened:
        for number in range(already):
            opened.append(transfer(number), position=b"p")

        def look(self, step, **options):
            found = bounds_of(self, step, **options)
            looked.append(step)
            if looked == ["debits"]:
                opened.append(transfer(already), position=b"q")
            return found

        both = [made.stream(name, MONEY, key="account") for name in ("debits", "credits")]
        both[0].union(both[1]).group_by("account").agg(total="sum(amount)").to(sink)
        with Driver(made, storage=tmp_path / "app") as driver:
            driver.run()
            monkeypatch.setattr(Inputs, "bounds_of", look)
            driver.step()
            driver.run()
    assert looked[:2] == ["debits", "credits"]
    assert sink.rows == 2 * (already + 1)
    assert sink.seen == [0] * len(sink.seen)


def test_a_source_that_knows_its_columns_declares_them_and_the_key():
    made = hr.App("declared", storage="unused")
    table = made.table("shop.debits", source=Transfers("debits", 1))
    assert table.columns == ["account", "amount"]
    assert table.key == ("account",)
    own = made.table("shop.credits", "account int, amount int", key="amount", source=Transfers("credits", 1))
    assert own.key == ("amount",)
    with pytest.raises(InvalidPlan, match='the topic "t" needs a schema'):
        made.stream("t")
