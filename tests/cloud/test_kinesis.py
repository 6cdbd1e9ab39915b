"""Amazon Kinesis, in and out, as kinesalite plays it: it keeps its data, and refuses what Amazon refuses."""

from __future__ import annotations

import json
import threading
import uuid
from datetime import UTC, datetime
from hashlib import md5

import pyarrow as pa
import pytest

import headrace as hr
from broker_cases import WRITER, Broker, BrokerCases, Filled, Gate, batch, bodies, for_rows, until
from broker_proof import kills_and_restarts
from headrace.base.broker_errors import LoginRefused, MessageTooLarge, PositionLost
from headrace.base.errors import InvalidArgument, InvalidPlan
from headrace.base.outside import Unavailable
from headrace.base.time import ManualClock
from headrace.testing import check_sink
from headrace.testing.connectors import COLUMNS

boto3 = pytest.importorskip("boto3")
from headrace.connect import kinesis  # noqa: E402 - only where there is a client

REGION = "eu-central-1"


@pytest.fixture(autouse=True)
def credentials(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")


class Outside(Broker):
    """A stream of two shards, and one for the sink; feed and sink reach them through a gate."""

    has_ids = False  # what is read again has its sequence number

    def __init__(self, server, shards=2):
        self.server = server
        self.name = f"t{uuid.uuid4().hex[:8]}"
        self.gate = Gate(server.port)
        self.client = self.connected()
        self.positions = {}
        for name, count in ((self.name, shards), (f"{self.name}-out", 2)):
            self.client.create_stream(StreamName=name, ShardCount=count)
            self.await_active(name)

    def connected(self):
        return boto3.client("kinesis", endpoint_url=self.server.url(), region_name=REGION)

    def await_active(self, name):
        about = lambda: self.client.describe_stream_summary(StreamName=name)["StreamDescriptionSummary"]  # noqa: E731
        until(lambda: about()["StreamStatus"] == "ACTIVE", "it is active")

    @property
    def where(self):
        return {"region": REGION, "endpoint": f"http://127.0.0.1:{self.gate.port}"}

    def feed(self, **options):
        return kinesis.stream(self.name, **self.where, **options)

    def sink(self, **options):
        return kinesis.records(f"{self.name}-out", **self.where, **options)

    def add(self, bodies, ids=None, *, key=None):
        del ids
        for at in range(0, len(bodies), 500):
            some = bodies[at : at + 500]
            records = [{"Data": body, "PartitionKey": key or body.hex()[:200]} for body in some]
            answer = self.client.put_records(StreamName=self.name, Records=records)
            assert not answer["FailedRecordCount"]

    def records(self, name):
        """Return the records that were not yet taken."""
        found = []
        for shard in self.client.list_shards(StreamName=name)["Shards"]:
            at = self.positions.get((name, shard["ShardId"]))
            how = {"ShardIteratorType": "TRIM_HORIZON"} if at is None else {
                "ShardIteratorType": "AFTER_SEQUENCE_NUMBER", "StartingSequenceNumber": at,
            }  # fmt: skip
            asked = self.client.get_shard_iterator(StreamName=name, ShardId=shard["ShardId"], **how)
            some = self.client.get_records(ShardIterator=asked["ShardIterator"])["Records"]
            if some:
                self.positions[name, shard["ShardId"]] = some[-1]["SequenceNumber"]
            found += some
        return found

    def taken(self):
        """Return bodies with the ids in them: records have no place for others."""
        return [(str(json.loads(each["Data"])["id"]), each["Data"]) for each in self.records(f"{self.name}-out")]

    def cut(self):
        self.gate.shut()

    def mend(self):
        self.gate.open()

    def missing(self):
        return kinesis.stream("nosuch", **self.where)

    def missing_sink(self):
        return kinesis.records("nosuch", **self.where)

    def shards(self):
        return [each["ShardId"] for each in self.client.list_shards(StreamName=self.name)["Shards"]]

    def split(self, shard):
        (about,) = [e for e in self.client.list_shards(StreamName=self.name)["Shards"] if e["ShardId"] == shard]
        first, last = (int(about["HashKeyRange"][each]) for each in ("StartingHashKey", "EndingHashKey"))
        middle = str((first + last) // 2)
        self.client.split_shard(StreamName=self.name, ShardToSplit=shard, NewStartingHashKey=middle)
        self.await_active(self.name)

    def merge(self, one, other):
        self.client.merge_shards(StreamName=self.name, ShardToMerge=one, AdjacentShardToMerge=other)
        self.await_active(self.name)

    def close(self):
        self.gate.shut()
        self.client.close()


@pytest.fixture
def broker(kinesis_of_the_run):
    kinesis_of_the_run.start()
    outside = Outside(kinesis_of_the_run)
    yield outside
    outside.close()


class TestKinesis(BrokerCases):
    """The cases of all brokers."""

    def test_a_message_of_10_mb_is_landed(self, broker, filled):
        """A record has 1 MiB at most."""
        broker.add([json.dumps({"id": 1, "text": "x" * 1_000_000}).encode()])
        with filled.by(broker.feed()) as run:
            until(lambda: run.rows() or run.failure(), "it is landed")
            assert [len(row["text"]) for row in run.rows()] == [1_000_000]


def test_it_is_a_sink(broker):
    class Kept:
        sink = for_rows(broker.sink())
        rows = []  # noqa: RUF012 - of this test alone

        def read(self):
            self.rows.extend(json.loads(body) for _, body in broker.taken())
            return self.rows

    check_sink(Kept)


def test_shards_that_are_split_and_merged_are_followed_in_order_by_key(broker, tmp_path):
    """Children are read after the end of their parents, whenever the feed was stopped."""
    filled = Filled(tmp_path)
    first, second = broker.shards()
    broker.add(bodies(range(10)), key="k")
    with filled.by(broker.feed()) as run:
        run.has(range(10))
        broker.split(first)
        broker.add(bodies(range(10, 20)), key="k")
        run.has(range(20))
    broker.add(bodies(range(20, 25)), key="k")
    broker.split(second)
    broker.add(bodies(range(25, 30)), key="k")
    children = broker.shards()[2:]
    broker.merge(children[1], children[2])
    broker.add(bodies(range(30, 40)), key="k")
    with filled.by(broker.feed()) as run:  # parents, children and grandchildren at once
        run.has(range(40))
    assert filled.ids() == list(range(40))


def test_a_feed_begins_at_a_time(kinesis_of_the_run, tmp_path):
    """Not after the last record: kinesalite answers no question for what comes after a time when there is nothing."""
    broker = Outside(kinesis_of_the_run, shards=1)
    broker.add(bodies([0]))
    waiting = threading.Event()
    waiting.wait(1.1)
    between = datetime.now(UTC)
    waiting.wait(1.1)
    broker.add(bodies([1, 2]))
    with Filled(tmp_path).by(broker.feed(start=between)) as run:
        run.has([1, 2])
    broker.close()


@pytest.mark.prove
def test_a_feed_begins_at_the_latest_also_after_a_restart(tmp_path):
    """Of moto, which answers such questions."""
    from scripts.broker.servers import Servers
    from scripts.servers.kinesis import Moto

    moto = Moto(Servers(tmp_path / "moto", shared=False))
    moto.start()
    outside = Outside(moto)
    outside.add(bodies([0]))
    filled = Filled(tmp_path / "log")
    with filled.by(outside.feed(start="latest")):
        until((tmp_path / "log" / "landings" / "landed").exists, "it has begun")
    threading.Event().wait(0.1)
    outside.add(bodies([1]))
    with filled.by(outside.feed(start="latest")) as run:
        run.has([1])
    outside.close()
    moto.kill()


def test_metadata_and_partition_keys(broker, tmp_path):
    app = hr.App("kinesis", storage=tmp_path, shards=1)
    known = {"shard": "shard", "stored": "time", "of": "key", "number": "sequence"}
    rows = app.stream(
        "landed", "id int, text string, shard string, stored timestamp, of string, number string",
        event_time="stored", source=broker.feed(metadata=known),
    )  # fmt: skip
    rows.select("id", "text", "of").to(broker.sink(key="of"))
    broker.add(bodies([1, 2]), key="k")
    with app.start(carrier="in-process"):
        found = []
        until(lambda: found.extend(broker.records(f"{broker.name}-out")) or len(found) == 2, "both are sent")
    assert [each["PartitionKey"] for each in found] == ["k", "k"]
    assert [json.loads(each["Data"])["of"] for each in found] == ["k", "k"]


def test_records_that_were_packed_by_amazons_library_are_unpacked(broker, tmp_path):
    def field(number, data):
        return bytes([number << 3 | 2, len(data)]) + data

    packed = [bytes([8, at]) + field(3, body) for at, body in enumerate(bodies([7, 8]))]  # 8: the index of the key
    body = field(1, b"a") + field(1, b"b") + b"".join(field(3, each) for each in packed)
    broker.add([b"\xf3\x89\x9a\xc2" + body + md5(body, usedforsecurity=False).digest()])
    schema = COLUMNS.append(pa.field("of", pa.string()))
    with Filled(tmp_path, schema).by(broker.feed(metadata={"of": "key"})) as run:
        run.has([7, 8])
        assert [(row["id"], row["of"]) for row in run.rows()] == [(7, "a"), (8, "b")]


def test_a_stream_that_was_created_again_is_refused(broker, tmp_path):
    filled = Filled(tmp_path)
    broker.add(bodies([0]))
    with filled.by(broker.feed()) as run:
        run.has([0])
    broker.client.delete_stream(StreamName=broker.name)
    waiting = threading.Event()
    names = lambda: broker.client.list_streams()["StreamNames"]  # noqa: E731
    until(lambda: broker.name not in names(), "it is gone")
    waiting.wait(1.1)  # it was created in another second
    broker.client.create_stream(StreamName=broker.name, ShardCount=1)
    broker.await_active(broker.name)
    with filled.by(broker.feed()) as run:
        until(run.failure, "it fails")
        assert isinstance(run.failure(), PositionLost)


class Refusing:
    """A client whose Kinesis refuses some records of each request, as one does that is asked too often."""

    def __init__(self, client, refuse):
        self.client, self.refuse, self.requests = client, refuse, []

    def put_records(self, *, Records, **named):  # noqa: N803 - as Amazon has it
        self.requests.append([each["PartitionKey"] for each in Records])
        refused = [self.refuse(len(self.requests), at) for at in range(len(Records))]
        taken = [each for each, no in zip(Records, refused, strict=True) if not no]
        answers = iter(self.client.put_records(Records=taken, **named)["Records"] if taken else [])
        slow = {"ErrorCode": "ProvisionedThroughputExceededException", "ErrorMessage": "Rate exceeded"}
        return {"Records": [slow if no else next(answers) for no in refused]}

    def close(self):
        self.client.close()


def test_records_that_are_refused_are_sent_again_and_keep_the_order_of_their_key(broker):
    clock = ManualClock()
    writer = for_rows(broker.sink(key="text")).open(writer=WRITER, clock=clock)
    writer.client = Refusing(broker.connected(), lambda request, at: request < 4 and at % 2 == 0)
    rows = batch([1, 2, 3, 4]).set_column(1, "text", pa.array(["a", "b", "a", "a"]))
    before = clock.monotonic()
    writer.publish(0, iter([rows]))
    assert clock.monotonic() > before, "it waits before it tries again"
    assert all(len(set(keys)) == len(keys) for keys in writer.client.requests), "a key once in a request"
    sent = [json.loads(body) for _, body in broker.taken()]
    assert [row["id"] for row in sent if row["text"] == "a"] == [1, 3, 4]
    assert sorted(row["id"] for row in sent) == [1, 2, 3, 4]
    writer.client.refuse = lambda request, at: True  # noqa: ARG005 - always
    with pytest.raises(Unavailable, match="refuses 1 records of 1: ProvisionedThroughputExceededException"):
        writer.publish(1, iter([batch([5])]))
    writer.close()


def test_a_record_that_is_too_large_is_named(broker):
    writer = for_rows(broker.sink()).open(writer=WRITER, clock=ManualClock())
    with pytest.raises(MessageTooLarge, match=f"{WRITER}/0/0"):
        writer.publish(0, iter([batch([1]).set_column(1, "text", pa.array(["x" * 2_000_000]))]))
    writer.close()


def test_a_profile_that_is_not_there_is_named(tmp_path):
    with Filled(tmp_path).by(kinesis.stream("s", region="eu-west-1", profile="nosuch")) as run:
        until(run.failure, "it fails")
    assert isinstance(run.failure(), LoginRefused), run.failure()
    assert "nosuch" in str(run.failure())


def test_credentials_that_are_missing_are_named(broker, monkeypatch, tmp_path):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    with Filled(tmp_path / "log").by(broker.feed()) as run:
        until(run.failure, "it fails")
        assert isinstance(run.failure(), LoginRefused)
        assert "AWS_ACCESS_KEY_ID" in run.failure().hint


@pytest.mark.prove
def test_kills_and_restarts_lose_nothing_and_repeat_nothing(broker, tmp_path):
    """100,000 records, ten kills of ours, two of theirs."""
    kills_and_restarts(broker, broker.server, tmp_path, messages=100_000, kills=10, restarts=2)


def test_names_and_options_are_checked():
    with pytest.raises(InvalidArgument):
        kinesis.stream("")
    with pytest.raises(InvalidArgument):
        kinesis.stream("s", start="later")
    with pytest.raises(InvalidPlan, match="no headers"):
        kinesis.records("s", headers={"a": "b"})
