"""NATS JetStream, in and out, on a real server."""

from __future__ import annotations

import asyncio
import json
import uuid

import pyarrow as pa
import pytest

import headrace as hr
from broker_cases import Broker, BrokerCases, Filled, Gate, batch, bodies, certificate, for_rows, until
from broker_proof import kills_and_restarts
from headrace.base.broker_errors import BrokerFailed, MessageTooLarge, PositionLost, QueueMissing
from headrace.base.errors import InvalidArgument, InvalidPlan
from headrace.base.time import ManualClock
from headrace.testing import check_sink

client = pytest.importorskip("nats")
from headrace.connect import nats  # noqa: E402 - only where there is a client


class Outside(Broker):
    """A stream of a real server; feed and sink reach it through a gate."""

    has_ids = False  # the stream drops what has the id of another message; what is delivered again has its number

    def __init__(self, server, **config):
        self.server = server
        self.name = f"t{uuid.uuid4().hex[:8]}"
        self.gate = Gate(server.port)
        self.made = self.ask(lambda js: js.add_stream(name=self.name, subjects=[f"{self.name}.>"], **config))
        self.seen = 0

    @property
    def url(self):
        return f"nats://127.0.0.1:{self.gate.port}"

    def ask(self, question):
        """Return what a client of somebody else is answered."""

        async def asked():
            connection = await client.connect(self.server.url())
            try:
                return await question(connection.jetstream(timeout=30))
            finally:
                await connection.close()

        return asyncio.run(asked())

    def feed(self, **options):
        return nats.stream(self.url, self.name, durable="own", **{"subjects": f"{self.name}.in.*", **options})

    def sink(self, **options):
        return nats.subject(self.url, f"{self.name}.out", **options)

    def add(self, bodies, ids=None, *, subject="in.x"):
        async def add(js):
            for each, body in zip(ids or [None] * len(bodies), bodies, strict=True):
                await js.publish(f"{self.name}.{subject}", body, headers={"Id": each} if each else None)

        self.ask(add)

    def consumers(self):
        return self.ask(lambda js: js.stream_info(self.name)).state.consumer_count

    def messages(self, subject="out"):
        async def all_of(js):
            consumer = await js.subscribe(f"{self.name}.{subject}", ordered_consumer=True)
            found = []
            while (await consumer.consumer_info()).num_pending or consumer.pending_msgs:
                found.append(await consumer.next_msg())
            return found

        return self.ask(all_of)

    def taken(self):
        found = self.messages()[self.seen :]
        self.seen += len(found)
        return [(each.headers["Nats-Msg-Id"], each.data) for each in found]

    def cut(self):
        self.gate.shut()

    def mend(self):
        self.gate.open()

    def refused(self, secret):
        from scripts.broker.servers import Servers
        from scripts.servers.nats import Nats

        class Guarded(Nats):
            users = {"ada": "right"}  # noqa: RUF012 - never changed

        guarded = Guarded(Servers(self.server.folder / "guarded", shared=False))
        guarded.start()
        self.guarded = guarded
        return nats.stream(guarded.url(login=f"ada:{secret}"), self.name, durable="own")

    def missing(self):
        return nats.stream(self.url, "nosuch", durable="own")

    def missing_sink(self):
        return nats.subject(self.url, "nosuch.subject")

    def close(self):
        self.gate.shut()
        if hasattr(self, "guarded"):
            self.guarded.kill()


@pytest.fixture
def broker(nats_of_the_run):
    nats_of_the_run.start()
    outside = Outside(nats_of_the_run)
    yield outside
    outside.close()


@pytest.fixture
def make(nats_of_the_run):
    nats_of_the_run.start()
    return lambda **config: Outside(nats_of_the_run, **config)


class TestNats(BrokerCases):
    """The cases of all brokers."""


def test_it_is_a_sink(broker):
    class Kept:
        sink = for_rows(broker.sink())

        def read(self):
            return [json.loads(each.data) for each in broker.messages()]

    check_sink(Kept)


def test_an_app_reads_and_writes(broker, tmp_path):
    app = hr.App("nats", storage=tmp_path, shards=1)
    metadata = {"subject": "subject", "number": "sequence", "stored": "time"}
    schema = "id int, text string, subject string, number bigint, stored timestamp"
    rows = app.stream("landed", schema, event_time="stored", source=broker.feed(metadata=metadata))
    rows.select("id", "text", "subject").to(
        nats.subject(broker.url, f"{broker.name}.out.{{text}}", key="id", headers={"from": "subject"})
    )
    broker.add(bodies([1, 2]))
    with app.start(carrier="in-process"):
        until(lambda: len(broker.messages("out.>")) == 2, "both are sent")
    found = [(each.subject, each.headers["headrace-key"], each.headers["from"]) for each in broker.messages("out.>")]
    assert sorted(found) == [(f"{broker.name}.out.t{i}", str(i), f"{broker.name}.in.x") for i in (1, 2)]


def test_a_bucket_of_keys_and_values_is_a_table(broker, tmp_path):
    bucket = f"b{broker.name}"

    async def fill(js):
        values = await js.create_key_value(bucket=bucket, history=5)
        await values.put("1", b'{"text": "one"}')
        await values.put("2", b'{"text": "two"}')
        await values.delete("1")

    broker.ask(fill)
    filled = Filled(tmp_path)
    with filled.by(nats.stream(broker.url, f"KV_{bucket}", durable="own", key="id")) as run:
        until(lambda: len(run.rows()) == 3, "three changes")
        assert [(row["id"], row["text"], row["_deleted"]) for row in run.rows()] == [
            (1, "one", False),
            (2, "two", False),
            (1, None, True),
        ]


@pytest.mark.parametrize("retention", ["workqueue", "interest"])
def test_streams_that_delete_what_is_acknowledged_are_read_once(make, tmp_path, retention):
    """What a crash left unacknowledged comes again, also after what is new."""
    outside = make(retention=retention)
    filled = Filled(tmp_path)
    with filled.by(outside.feed()) as run:  # interest: there is some
        until(outside.consumers, "there is a consumer")
        outside.add(bodies(range(3)))
        run.has(range(3))

    async def take(js):
        consumer = await js.pull_subscribe_bind("own", outside.name)
        await consumer.fetch(2, timeout=5)  # a process that dies before it lands anything

    outside.add(bodies([3, 4]))
    outside.ask(take)
    outside.add(bodies([5]))
    with filled.by(outside.feed()) as run:
        run.has(range(6))
        until(lambda: outside.ask(lambda js: js.stream_info(outside.name)).state.messages == 0, "all are deleted")
    assert filled.ids() == list(range(6))
    outside.close()


def test_a_new_feed_begins_where_it_is_told_and_where_its_consumer_was(broker, tmp_path):
    broker.add(bodies([0, 1]))
    filled = Filled(tmp_path / "new")
    with filled.by(broker.feed(start="new")) as run:
        until(broker.consumers, "it has a consumer")
        broker.add(bodies([2]))
        run.has([2])
    with Filled(tmp_path / "other").by(broker.feed()) as run:  # the consumer has acknowledged 0 to 2
        broker.add(bodies([3]))
        run.has([3])


def test_what_was_deleted_before_it_was_read_is_a_dead_letter(broker, tmp_path):
    filled = Filled(tmp_path)
    broker.add(bodies([0]))
    with filled.by(broker.feed()) as run:
        run.has([0])
    broker.add(bodies([1, 2, 3]))
    broker.ask(lambda js: js.purge_stream(broker.name, seq=4))
    with filled.by(broker.feed()) as run:
        run.has([0, 3])
        (letter,) = run.rows("landed.dead")
        assert letter["reason"] == "the messages 2 to 3 of the stream were deleted before they were read"


def test_a_stream_that_was_created_again_is_refused(broker, tmp_path):
    filled = Filled(tmp_path)
    broker.add(bodies([0]))
    with filled.by(broker.feed()) as run:
        run.has([0])
    broker.ask(lambda js: js.delete_stream(broker.name))
    broker.ask(lambda js: js.add_stream(name=broker.name, subjects=[f"{broker.name}.>"]))
    broker.add(bodies([7, 8]))
    with filled.by(broker.feed()) as run:
        until(run.failure, "it fails")
        assert isinstance(run.failure(), PositionLost)


def test_a_server_that_was_killed_comes_back_with_what_it_stored(broker, tmp_path):
    filled = Filled(tmp_path)
    broker.add(bodies([0, 1]))
    with filled.by(broker.feed()) as run:
        run.has([0, 1])
        broker.server.restart()
        broker.add(bodies([2]))
        run.has([0, 1, 2])
    assert filled.ids() == [0, 1, 2]


@pytest.mark.prove
def test_kills_and_restarts_lose_nothing_and_repeat_nothing(broker, tmp_path):
    """100,000 messages, ten kills of ours, two of theirs."""
    kills_and_restarts(broker, broker.server, tmp_path, messages=100_000, kills=10, restarts=2)


def test_a_repeated_epoch_is_stored_once_within_the_duplicate_window(make):
    outside = make(duplicate_window=0.2)
    writer = for_rows(outside.sink()).open(writer="w", clock=ManualClock())
    writer.publish(0, iter([batch([1, 2])]))
    writer.publish(0, iter([batch([1, 2])]))
    assert len(outside.messages()) == 2
    until(lambda: writer.publish(0, iter([batch([1, 2])])) or len(outside.messages()) > 2, "the window is over")
    writer.close()
    outside.close()


def test_a_message_that_is_too_large_is_named(broker):
    writer = for_rows(broker.sink()).open(writer="w", clock=ManualClock())
    with pytest.raises(MessageTooLarge, match="w/0/0"):
        writer.publish(0, iter([batch([1]).set_column(1, "text", pa.array(["x" * 17_000_000]))]))


@pytest.mark.usefixtures("nats_of_the_run")
def test_tls_and_a_password_of_the_environment(tmp_path, monkeypatch):
    from scripts.broker.servers import Servers
    from scripts.servers.nats import Nats

    class Encrypted(Nats):
        users = {"ada": "right"}  # noqa: RUF012 - never changed
        tls = certificate(tmp_path)

    server = Encrypted(Servers(tmp_path / "server", shared=False))
    server.start()
    monkeypatch.setenv("NATS_PASSWORD", "right")
    url = f"tls://ada:env:NATS_PASSWORD@localhost:{server.port}"
    with Filled(tmp_path / "log").by(nats.stream(f"{url}?ca={server.tls[0]}", "nosuch", durable="own")) as run:
        until(run.failure, "it logs in, and asks for the stream")
        assert isinstance(run.failure(), QueueMissing)
    with Filled(tmp_path / "other").by(nats.stream(url, "nosuch", durable="own")) as run:
        until(lambda: run.status()["state"] == "retrying", "it does not trust the server")
        assert "certificate verify failed" in run.status()["error"]
    server.kill()


def test_names_and_options_are_checked():
    with pytest.raises(InvalidArgument):
        nats.stream("nats://h", "a.b", durable="d")
    with pytest.raises(InvalidArgument):
        nats.stream("nats://h", "s", durable="d", start="later")
    with pytest.raises(InvalidArgument):
        nats.subject("nats://h", "a.*")
    with pytest.raises(InvalidPlan):
        nats.stream("http://h", "s", durable="d")
    with pytest.raises(InvalidPlan, match="options that are not known: nosuch"):
        nats.stream("nats://h?nosuch=1", "s", durable="d")
    with pytest.raises(InvalidPlan, match="subject"):
        nats.stream("nats://h", "s", durable="d", metadata={"a": "subjekt"})


@pytest.mark.parametrize("text", ["New York", "a\nb", "", "a..b"])
def test_what_is_no_subject_is_named(broker, text):
    sink = nats.subject(broker.url, f"{broker.name}.{{text}}")
    writer = for_rows(sink).open(writer="w", clock=ManualClock())
    with pytest.raises(BrokerFailed, match="is no subject"):
        writer.publish(0, iter([batch([1]).set_column(1, "text", pa.array([text]))]))
    writer.close()


def test_headers_that_are_too_large_are_named(broker):
    writer = for_rows(broker.sink(headers={"text": "text"})).open(writer="w", clock=ManualClock())
    with pytest.raises(MessageTooLarge, match="w/0/0"):
        writer.publish(0, iter([batch([1]).set_column(1, "text", pa.array(["x" * 66_000]))]))
    writer.close()


def test_a_key_that_no_header_can_have_deletes_no_other_row(broker):
    table = broker.sink().for_step(
        schema=pa.schema([("text", pa.string())]), key=("text",), is_table=True, sealed=frozenset()
    )
    writer = table.open(writer="w", clock=ManualClock())
    row = pa.record_batch({"text": ["a\nb"], "_deleted": [False], "_time": [0]})
    writer.publish(0, iter([row]))
    with pytest.raises(BrokerFailed, match="cannot be deleted"):
        writer.publish(1, iter([row.set_column(1, "_deleted", pa.array([True]))]))
    writer.close()
