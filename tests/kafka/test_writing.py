"""Epochs are written to topics of a cluster exactly once, whoever crashes, comes back or does not answer."""

from __future__ import annotations

import hashlib
import logging

import numpy as np
import pyarrow as pa
import pytest
import writing
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from headrace.base.broker_errors import BrokerFailed, RecordTooLarge, TopicMissing
from headrace.base.errors import InvalidPlan
from headrace.base.outside import Fenced, OutputLost, Unavailable
from headrace.connect.formats import format_named
from headrace.connect.kafka.address import KafkaAddress
from headrace.connect.kafka.client.administration import cluster
from headrace.connect.kafka.sink import KafkaSink
from headrace.connect.kafka.writing import librdkafka_transactions, marked, marks, sending
from headrace.connect.kafka.writing.records import Records
from headrace.connect.kafka.writing.sending import Sender
from headrace.connect.topics import TopicSpec
from headrace.testing import Crash, check_sink
from headrace.testing.faults import TRANSACTION_POINTS, Faults

BOTH = pytest.mark.parametrize("way", writing.WAYS)
SELDOM = pytest.mark.parametrize("way", ["fast", pytest.param("librdkafka", marks=pytest.mark.prove)])
"""Of librdkafka's producer a commit takes 40 ms more, and a new topic a second."""


class Written:
    """A topic for the contract kit: its current rows, or all."""

    def __init__(self, broker, way, *, changelog):
        self.broker, self.changelog = broker, changelog
        self.sink = writing.sink(broker, way=way, changelog=changelog)

    def read(self):
        return writing.values(self.broker)


@SELDOM
@pytest.mark.parametrize("changelog", [False, True])
def test_a_topic_of_a_cluster_keeps_the_contract_of_a_sink(broker, way, changelog):
    check_sink(lambda: Written(broker, way, changelog=changelog))


@SELDOM
@pytest.mark.parametrize("point", TRANSACTION_POINTS)
def test_after_a_crash_at_any_point_of_a_transaction_each_row_is_there_once(broker, way, point):
    faults = Faults()
    sinks = [writing.sink(broker, name, way=way, fault=faults) for name in ("out", "more")]
    writer = writing.opened(*sinks)
    writer.publish(0, {"out": writing.rows(1, 2), "more": writing.rows(3)})
    faults.arm(point)
    with pytest.raises(Crash):
        writer.publish(1, {"out": writing.rows(4), "more": writing.rows(5, 6)})
    again = writing.opened(*sinks)
    assert again.last_epoch() == (1 if point == "after_transaction" else 0)
    again.check_published({"out": again.last_epoch(), "more": again.last_epoch()})
    again.publish(1, {"out": writing.rows(4), "more": writing.rows(5, 6)})
    again.publish(2, {"out": writing.rows(7)})
    assert (writing.ids(broker), writing.ids(broker, "more")) == ([1, 2, 4, 7], [3, 5, 6])
    again.close()


@BOTH
def test_an_old_process_that_comes_back_writes_nothing_and_hears_why(broker, way):
    sink = writing.sink(broker, way=way)
    old = writing.opened(sink)
    old.publish(0, {"out": writing.rows(1)})
    new = writing.opened(sink)
    for _ in range(2):
        with pytest.raises(Fenced, match="app/1"):
            old.publish(1, {"out": writing.rows(2)})
    new.publish(1, {"out": writing.rows(3)})
    assert writing.ids(broker) == [1, 3]
    old.close()
    new.close()


@BOTH
def test_a_process_that_is_taken_over_in_the_middle_of_an_epoch_leaves_nothing_of_it(broker, way):
    sink = writing.sink(broker, way=way)
    old = writing.opened(sink)
    successors = []

    def taken_over():
        yield next(writing.rows(1, 2, 3))
        successors.append(writing.opened(sink))
        yield next(writing.rows(4))

    with pytest.raises(Fenced):
        old.publish(0, {"out": taken_over()})
    assert successors[0].last_epoch() == -1
    successors[0].publish(0, {"out": writing.rows(1, 2, 3, 4)})
    assert writing.ids(broker) == [1, 2, 3, 4]


def test_two_apps_do_not_fence_each_other(broker):
    writers = [writing.opened(writing.sink(broker), writer=f"app{number}/1") for number in range(2)]
    for number, writer in enumerate(writers):
        writer.publish(0, {"out": writing.rows(number)})
    for number, writer in enumerate(writers):
        writer.publish(1, {"out": writing.rows(10 + number)})
    assert writing.ids(broker) == [0, 1, 10, 11]
    address = KafkaAddress.parse(broker.address)
    assert marks.writers_of(address, broker.topic("out")) == {"app0", "app1"}
    assert [mark.epoch for mark in marks.marks_of(address, "app1")] == [1]


@pytest.mark.prove
@BOTH
def test_a_broker_that_goes_away_before_the_commit_costs_a_repetition(breakable, way, monkeypatch):
    for module in ("wire_transactions", "librdkafka_transactions"):
        monkeypatch.setattr(f"headrace.connect.kafka.{module}.SECONDS", 2.0)
    broker = breakable
    down = []

    def fault(point):
        if point == "before_transaction_ends" and not down:
            down.append(point)
            broker.kafka.kill()

    writer = writing.opened(writing.sink(broker, way=way, fault=fault))
    with pytest.raises(Unavailable):
        writer.publish(0, {"out": writing.rows(1, 2)})
    broker.kafka.restart()
    writer.publish(0, {"out": writing.rows(1, 2)})
    writer.publish(1, {"out": writing.rows(3)})
    assert writing.ids(broker) == [1, 2, 3]
    writer.close()


def test_a_transaction_that_takes_too_long_is_ended_by_the_broker_and_written_again(broker):
    slow = [True]

    def fault(point):
        if point == "before_transaction_ends" and slow:
            slow.pop()
            writing.CLOCK.sleep(2.5)

    address = KafkaAddress.parse(f"{broker.address}&transaction.timeout.ms=1000")
    writer = writing.opened(writing.sink_at(address, fault=fault))
    with pytest.raises(Unavailable, match="ended the transaction"):
        writer.publish(0, {"out": writing.rows(1, 2)})
    writer.publish(0, {"out": writing.rows(1, 2)})
    assert writing.ids(broker) == [1, 2]
    writer.close()


def test_a_commit_whose_answer_was_lost_is_not_repeated(broker):
    """The mark says that it happened."""
    writer = writing.opened(writing.sink(broker))
    transactions = writer._marked._transactions
    commit = transactions.commit

    def lost():
        commit()
        raise Unavailable("no answer")

    transactions.commit = lost
    with pytest.raises(Unavailable):
        writer.publish(0, {"out": writing.rows(1, 2)})
    writer.publish(0, {"out": writing.rows(1, 2)})
    assert writer._marked._transactions is not transactions
    assert writing.ids(broker) == [1, 2]
    writer.close()


def test_an_unfinished_transaction_of_its_own_does_not_hold_up_a_writer(broker):
    """The broker would end it after a minute; opening it again does at once."""
    writer = writing.opened(writing.sink(broker))

    def lost():
        raise Unavailable("no answer")

    writer._marked._transactions.commit = lost
    began = writing.CLOCK.monotonic()
    with pytest.raises(Unavailable):
        writer.publish(0, {"out": writing.rows(1, 2)})
    writer.publish(0, {"out": writing.rows(1, 2)})
    assert writing.CLOCK.monotonic() - began < 20
    assert writing.ids(broker) == [1, 2]
    writer.close()


def test_a_process_that_slept_while_it_opened_a_writer_leaves_it_to_the_one_that_has_it(broker, monkeypatch):
    sink = writing.sink(broker)
    writing.opened(sink).close()
    marks.read_mark(sink.address, "app/1")  # waits until what was committed is seen by all
    owners = []
    opened = marked.open_transactions

    def slept(*given, **more):
        monkeypatch.setattr(marked, "open_transactions", opened)
        owners.append(writing.opened(sink))
        owners[0].publish(0, {"out": writing.rows(1)})
        return opened(*given, **more)

    monkeypatch.setattr(marked, "open_transactions", slept)
    with pytest.raises(Unavailable, match="at the same moment"):
        writing.opened(sink)
    with pytest.raises(Unavailable):
        owners[0].publish(1, {"out": writing.rows(2)})
    owners[0].publish(1, {"out": writing.rows(2)})
    assert writing.ids(broker) == [1, 2]
    owners[0].close()


@SELDOM
def test_a_record_above_the_limit_is_named_and_nothing_of_its_epoch_is_visible(broker, way):
    sink = writing.sink(broker, way=way)
    writer = writing.opened(sink)
    large = "x" * 1_100_000
    with pytest.raises(RecordTooLarge) as error:
        writer.publish(0, {"out": iter([*writing.rows(1), *writing.rows(7, text=large)])})
    assert broker.topic("out") in str(error.value)
    assert "Its key is '7'" in str(error.value)
    assert "max.message.bytes=" in error.value.hint
    assert writing.ids(broker) == []
    entry = ConfigEntry("max.message.bytes", "3000000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, broker.topic("out"), incremental_configs=[entry])
    cluster(sink.address)._admin().incremental_alter_configs([resource])[resource].result()
    again = writing.opened(sink)
    again.publish(0, {"out": iter([*writing.rows(1), *writing.rows(7, text=large)])})
    assert writing.ids(broker) == [1, 7]


@pytest.mark.parametrize("options", ["", "&compression.type=gzip", "&compression.type=snappy"])
def test_an_epoch_is_sent_in_batches_that_its_topic_takes(broker, options):
    address = KafkaAddress.parse(f"{broker.address}{options}")
    cluster(address).create(
        broker.topic("out"), partitions=2, settings={"max.message.bytes": "3000", "retention.ms": "-1"}
    )
    writer = writing.opened(writing.sink_at(address))
    noise = hashlib.shake_256(b"").hexdigest(1_000)
    writer.publish(0, {"out": iter([*writing.rows(*range(300)), *writing.rows(*range(300, 310), text=noise)])})
    writer.publish(1, {"out": writing.rows(*range(310, 600))})
    assert writing.ids(broker) == list(range(600))
    writer.close()


def test_who_sends_times_that_a_topic_refuses_is_told_both_of_its_bounds(broker):
    address = KafkaAddress.parse(broker.address)
    bounds = [f"message.timestamp.{side}.max.ms" for side in ("before", "after")]
    cluster(address).create(broker.topic("out"), partitions=2, settings=dict.fromkeys(bounds, "1"))
    writer = writing.opened(writing.sink_at(address))
    with pytest.raises(BrokerFailed) as error:
        writer.publish(0, {"out": writing.rows(1)})
    assert all(f"{each}=9223372036854775807" in error.value.hint for each in bounds)
    writer.close()


def test_a_record_above_the_limit_can_be_a_dead_letter(broker):
    writer = writing.opened(writing.sink(broker, too_large="dead_letter"))
    writer.publish(0, {"out": iter([*writing.rows(1, 2), *writing.rows(7, text="x" * 1_100_000)])})
    assert writing.ids(broker) == [1, 2]
    (letter,) = writing.values(broker, "out.dead")
    assert letter["reason"].startswith("too large: its record has 1100")
    assert len(letter["record"]) == 10_000


def test_who_sends_rows_that_are_too_large_is_warned(broker, caplog):
    writer = writing.opened(writing.sink(broker, too_large="dead_letter"))
    with caplog.at_level(logging.WARNING):
        writer.publish(0, {"out": writing.rows(7, text="x" * 1_100_000)})
    assert f"1 row too large for the topic {broker.topic('out')}: see {broker.topic('out')}.dead" in caplog.text


def test_rows_of_a_table_without_a_key_are_dead_letters(broker):
    writer = writing.opened(writing.sink(broker, changelog=True))
    writer.publish(0, {"out": writing.rows(1, None, 2, deleted=())})
    assert writing.ids(broker) == [1, 2]
    (letter,) = writing.values(broker, "out.dead")
    assert letter["reason"] == "no key: id is null, and the topic is compacted"


@BOTH
def test_a_record_has_its_rows_key_as_text_its_event_time_and_all_columns(broker, way):
    writer = writing.opened(writing.sink(broker, way=way, changelog=True, partitions=1))
    writer.publish(0, {"out": writing.rows(1, 2, deleted=[2])})
    one, two = writing.records(broker, reader="librdkafka")[0]
    assert (one["_key"], one["value"]) == (b"1", b'{"id":1,"text":"t1"}')
    assert (two["_key"], two["value"]) == (b"2", None)
    assert int(one["_time"].timestamp() * 1e6) == writing.AT + 1_000_000


def test_a_changelog_is_compacted_rows_are_kept_and_event_times_may_be_of_any_year(broker):
    writing.opened(writing.sink(broker), writing.sink(broker, "table", changelog=True)).close()
    at = cluster(KafkaAddress.parse(broker.address))
    rows, table = at.settings(broker.topic("out")), at.settings(broker.topic("table"))
    assert (rows["cleanup.policy"], rows["retention.ms"], rows["message.timestamp.type"]) == (
        "delete",
        "-1",
        "CreateTime",
    )
    assert table["cleanup.policy"] == "compact"
    assert {int(each["message.timestamp.after.max.ms"]) for each in (rows, table)} == {2**63 - 1}


def test_a_changelog_into_a_topic_that_is_not_compacted_draws_a_warning(broker, caplog):
    cluster(KafkaAddress.parse(broker.address)).create(broker.topic("out"))
    with caplog.at_level(logging.WARNING):
        writing.opened(writing.sink(broker, changelog=True)).close()
    assert "is not compacted" in caplog.text


def test_an_output_that_was_deleted_or_created_again_is_noticed(broker):
    sink = writing.sink(broker)
    writer = writing.opened(sink)
    writer.publish(0, {"out": writing.rows(1)})
    writer.check_published({"out": 0})
    at = cluster(sink.address)
    at.delete(broker.topic("out"))
    with pytest.raises(OutputLost, match="is gone"):
        writer.check_published({"out": 0})
    at.create(broker.topic("out"), partitions=2)
    with pytest.raises(OutputLost, match="created again"):
        writer.check_published({"out": 0})
    writer.close()


def test_rows_that_were_staged_before_a_column_was_added_have_a_null_there(broker):
    writer = writing.opened(writing.sink(broker))
    (batch,) = writing.rows(1)
    writer.publish(0, {"out": iter([batch.drop_columns(["text"])])})
    assert writing.values(broker) == [{"id": 1, "text": None}]
    writer.close()


@BOTH
def test_an_output_that_is_created_again_while_an_app_runs_gets_nothing_of_its_next_epoch(broker, way):
    sink = writing.sink(broker, way=way, partitions=1)
    writer = writing.opened(sink)
    writer.publish(0, {"out": writing.rows(1)})
    at = cluster(sink.address)
    at.delete(broker.topic("out"))
    at.create(broker.topic("out"), partitions=1)
    with pytest.raises(TopicMissing, match="was deleted and created again"):
        writer.publish(1, {"out": writing.rows(2)})
    assert writing.ids(broker) == []
    writer.close()


@SELDOM
def test_an_output_that_is_deleted_while_an_app_runs_is_named(broker, way, monkeypatch):
    """A producer of librdkafka waits for the topic; the attempt after that says it."""
    monkeypatch.setattr(librdkafka_transactions, "SECONDS", 3.0)
    sink = writing.sink(broker, way=way)
    writer = writing.opened(sink)
    writer.publish(0, {"out": writing.rows(1)})
    cluster(sink.address).delete(broker.topic("out"))
    if way == "librdkafka":
        with pytest.raises(Unavailable):
            writer.publish(1, {"out": writing.rows(2)})
    with pytest.raises(TopicMissing, match=broker.topic("out")):
        writer.publish(1, {"out": writing.rows(2)})
    writer.close()


def test_private_columns_are_not_written_to_a_cluster(broker):
    spec = TopicSpec(name="out", schema=writing.COLUMNS, sealed=frozenset({"text"}))
    sink = KafkaSink(address=KafkaAddress.parse(broker.address), topic=spec, format=format_named("json"))
    with pytest.raises(InvalidPlan, match="private columns cannot be written"):
        sink.prepare(clock=writing.CLOCK)


@SELDOM
def test_rows_without_a_key_go_to_all_partitions(broker, way):
    writer = writing.opened(writing.sink(broker, way=way, key=(), partitions=3))
    for epoch in range(3):
        writer.publish(epoch, {"out": writing.rows(epoch)})
    writer.publish(3, {"out": writing.rows(*range(10, 100))})
    counts = {part: len(found) for part, found in writing.records(broker).items()}
    assert counts == {0: 31, 1: 31, 2: 31}


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd", "snappy"])
def test_records_can_be_compressed(broker, codec):
    address = KafkaAddress.parse(f"{broker.address}&compression.type={codec}")
    sink = KafkaSink(address=address, topic=TopicSpec(name="out", schema=writing.COLUMNS), format=format_named("json"))
    writer = writing.opened(sink)
    writer.publish(0, {"out": iter([*writing.rows(*range(5_000)), *writing.rows(*range(5_000, 5_003))])})
    assert writing.ids(broker) == list(range(5_003))
    writer.close()


@SELDOM
def test_large_epochs_keep_the_order_of_a_key(broker, way):
    writer = writing.opened(writing.sink(broker, way=way))
    count = 60_000
    batch = pa.record_batch(
        {
            "id": pa.array([n % 100 for n in range(count)], pa.int32()),
            "text": pa.array([f"{n:0100}" for n in range(count)]),
            "_time": pa.array([writing.AT] * count, pa.int64()),
        }
    )
    writer.publish(0, {"out": iter([batch.slice(at, 7_001) for at in range(0, count, 7_001)])})
    found = [each for part in writing.records(broker).values() for each in part]
    assert len(found) == count
    last = {}
    for each in found:
        assert last.get(each["_key"], b"") < each["value"]
        last[each["_key"]] = each["value"]
    writer.close()


def test_who_sends_for_long_notices_that_a_topic_was_created_again_or_has_more_partitions(broker, monkeypatch):
    address = KafkaAddress.parse(broker.address)
    at, name, sender = cluster(address), broker.topic("t"), Sender(address)
    keys = pa.array([b"%d" % each for each in range(20)], pa.binary())
    sent = Records(keys, keys, np.full(20, writing.AT // 1_000))

    at.create(name, partitions=4)
    sender.send(name, sent)
    at.delete(name)
    at.create(name, partitions=1)
    with pytest.raises(TopicMissing):
        sender.send(name, sent)
    sender.send(name, sent)
    at.add_partitions(name, 3)
    monkeypatch.setattr(sending, "FRESH_SECONDS", 0.0, raising=False)
    sender.send(name, sent)
    assert all(end > 0 for number, end in at.ends(name, 3).items() if number)
