"""A feed that fills a topic of a cluster: rows and position are there together or not at all, whoever crashes."""

from __future__ import annotations

import json
from contextlib import closing

import pyarrow as pa
import pytest
import writing

from headrace.base.errors import InvalidRows
from headrace.base.outside import FeedChanged, FeedRunsElsewhere, FeedTopicReplaced
from headrace.connect import files
from headrace.connect.feed import DeadRecord
from headrace.connect.kafka import landing as module
from headrace.connect.kafka.address import KafkaAddress
from headrace.connect.kafka.client.administration import cluster
from headrace.connect.kafka.landing import KafkaLanding
from headrace.connect.kafka.topics import KafkaTopics
from headrace.connect.topics import TopicSpec
from headrace.log import Log
from headrace.testing import Crash, check_feed
from headrace.testing.faults import TRANSACTION_POINTS, Faults

SPEC = TopicSpec(name="out", schema=pa.schema([("id", pa.int32()), ("text", pa.string())]), key=("id",))


def opened(broker, *, feed="f", fault=lambda point: None, limit=100, read=lambda: 0):  # noqa: ARG005
    address = KafkaAddress.parse(broker.address)
    cluster(address).create(broker.topic("out"), partitions=2)
    return KafkaLanding(address, topic=SPEC, feed=feed, limit=limit, read=read, fault=fault, clock=writing.CLOCK)


class Lines:
    """A file of JSON lines for the contract kit."""

    exactly_once = True

    def __init__(self, path):
        self.path = path
        self.feed = files.lines(path)

    def add(self, ids):
        with self.path.open("a") as file:
            file.writelines(json.dumps({"id": each, "text": f"t{each}"}) + "\n" for each in ids)


def test_a_feed_that_lands_in_a_cluster_keeps_the_contract_of_a_feed(broker, tmp_path):
    (tmp_path / "f.jsonl").touch()
    address = KafkaAddress.parse(broker.address)
    log = Log(tmp_path / "log", clock=writing.CLOCK)
    topics = KafkaTopics(address, log, app="shop", clock=writing.CLOCK, partitions=2, fault=lambda point: None)  # noqa: ARG005
    try:
        check_feed(lambda: Lines(tmp_path / "f.jsonl"), topics=topics)
    finally:
        topics.close()


def rows(*ids):
    return [{"id": each, "text": f"t{each}"} for each in ids]


def crashed(broker, point):
    """Append a row, then two more while there is a crash at a point, and return what was left."""
    faults = Faults()
    landing = opened(broker, fault=faults)
    landing.append(rows(1), position=b"1")
    faults.arm(point)
    with pytest.raises(Crash):
        landing.append(rows(2, 3), position=b"3")
    return landing


def test_a_feed_goes_on_where_it_was(broker):
    with closing(opened(broker)) as landing:
        assert landing.position() is None
        landing.append(rows(1, 2), position=b"2", dead=[DeadRecord("x,y", "no number")])
        landing.append([], position=b"3")
        landing.append(rows(3))
    with closing(opened(broker)) as landing:
        assert landing.position() == b"3"
    assert writing.ids(broker) == [1, 2, 3]
    (letter,) = writing.values(broker, "out.dead")
    assert (letter["topic"], letter["reason"], letter["record"]) == ("out", "no number", "x,y")


@pytest.mark.parametrize("point", TRANSACTION_POINTS)
def test_after_a_crash_the_position_is_that_of_the_rows(broker, point):
    crashed(broker, point)
    with closing(opened(broker)) as landing:
        at = int(landing.position())
        assert at == (3 if point == "after_transaction" else 1)
        landing.append(rows(*range(at + 1, 5)), position=b"4")
    assert writing.ids(broker) == [1, 2, 3, 4]


@pytest.mark.parametrize("point", ["in_transaction", "before_transaction_ends"])
def test_an_append_that_is_interrupted_is_not_completed_by_closing_the_feed(broker, point):
    crashed(broker, point).close()
    with closing(opened(broker)) as landing:
        assert landing.position() == b"1"
    assert writing.ids(broker) == [1]


def test_a_row_that_does_not_fit_appends_nothing(broker):
    with closing(opened(broker)) as landing:
        with pytest.raises(InvalidRows):
            landing.append([*rows(1), {"id": "two", "text": ""}], position=b"2")
        assert landing.position() is None
        landing.append(rows(3), position=b"3")
    assert writing.ids(broker) == [3]


def test_one_process_fills_a_topic_and_another_takes_over_when_it_has_ended(broker, monkeypatch):
    monkeypatch.setattr(module, "_TAKEN_OVER", {})
    first = opened(broker)
    first.append(rows(1), position=b"1")
    second = opened(broker)
    assert second.position() == b"1"
    with pytest.raises(FeedRunsElsewhere):
        first.append(rows(2), position=b"2")
    with pytest.raises(FeedRunsElsewhere):
        opened(broker)
    second.append(rows(3), position=b"3")
    second.close()
    with closing(opened(broker)) as first:
        assert first.position() == b"3"
    assert writing.ids(broker) == [1, 3]


def test_a_feed_is_taken_back_from_a_process_that_is_silent_for_long(broker, monkeypatch):
    monkeypatch.setattr(module, "_TAKEN_OVER", {})
    monkeypatch.setattr(module, "SILENT_SECONDS", 0.0)
    first, second = opened(broker), opened(broker)
    with pytest.raises(FeedRunsElsewhere):
        first.append(rows(1), position=b"1")
    with closing(opened(broker)) as again:
        again.append(rows(2), position=b"2")
    with pytest.raises(FeedRunsElsewhere):
        second.append(rows(3), position=b"3")
    assert writing.ids(broker) == [2]


def test_another_feed_and_another_topic_are_refused(broker):
    with closing(opened(broker)) as landing:
        landing.append(rows(1), position=b"1")
    with pytest.raises(FeedChanged, match="was f"):
        opened(broker, feed="g")
    cluster(KafkaAddress.parse(broker.address)).delete(broker.topic("out"))
    with pytest.raises(FeedTopicReplaced):
        opened(broker)


def test_there_is_room_until_the_app_lags_behind(broker, monkeypatch):
    monkeypatch.setattr(module, "ROOM_SECONDS", 0.0)
    done = [0]
    with closing(opened(broker, limit=10, read=lambda: done[0])) as landing:
        assert landing.has_room()
        landing.append(rows(*range(20)), position=b"20")
        assert not landing.has_room()
        done[0] = 20
        assert landing.has_room()
