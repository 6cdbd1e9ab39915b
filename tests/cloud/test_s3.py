"""S3, which Moto plays: new objects come in once each, rows go out as objects once each."""

from __future__ import annotations

import urllib.request
from itertools import count

import pytest
from botocore.exceptions import ClientError

from broker_cases import WRITER, BrokerCases, Filled, Gate, batch, bodies, until
from broker_proof import kills_and_restarts
from headrace.base.broker_errors import BrokerFailed, LoginRefused
from headrace.base.errors import InvalidArgument, InvalidPlan
from headrace.base.outside import AccessRefused, Unavailable
from headrace.base.time import ManualClock
from headrace.connect import s3
from headrace.connect.files.places import OURS
from headrace.connect.s3.bucket import Bucket
from rolling_cases import POINTS, RollingCases, of_rows

REST = [each for each in POINTS if each != "after_ended"]
NUMBERS = count()


class InBucket:
    """A bucket that no other test has; our connections go through a gate."""

    exactly_once, has_ids = True, False

    def __init__(self, port):
        self.port = port
        self.gate = Gate(port)
        self.bucket = f"bucket-{next(NUMBERS)}"
        self.url = f"s3://{self.bucket}/in/"
        self.client = s3.objects(self.url, endpoint=f"http://127.0.0.1:{port}").place.client()
        self.client.create_bucket(Bucket=self.bucket)
        self.keys = count()

    def feed(self, **options):
        options = {"every": "100 ms", "endpoint": f"http://127.0.0.1:{self.gate.port}", **options}
        return s3.objects(self.url, "*.jsonl", **options)

    def sink(self, **options):
        return s3.rolling(self.url, endpoint=f"http://127.0.0.1:{self.gate.port}", **options)

    def add(self, lines, ids=None):
        del ids
        self.put(f"in/{next(self.keys):09d}.jsonl", b"\n".join(lines))

    def put(self, key, body):
        self.client.put_object(Bucket=self.bucket, Key=key, Body=body)

    def cut(self):
        self.gate.shut()

    def mend(self):
        self.gate.open()

    def refused(self, secret):
        return f"Moto checks no credentials, so {secret!r} is none; see below"

    def missing(self):
        return s3.objects("s3://nobody-has-it/in/", endpoint=f"http://127.0.0.1:{self.gate.port}")

    def keys_of(self, prefix="in/"):
        listed = self.client.list_objects_v2(Bucket=self.bucket, Prefix=prefix).get("Contents", [])
        return [each["Key"] for each in listed]

    def read(self):
        keys = [key for key in self.keys_of() if OURS not in key]
        return {key: self.client.get_object(Bucket=self.bucket, Key=key)["Body"].read() for key in keys}

    def take(self):
        for key in self.read():
            self.client.delete_object(Bucket=self.bucket, Key=key)

    def litter(self, writer):
        """A kill leaves nothing aside: an object is put as a whole."""

    def hidden(self):
        return len(self.keys_of(f"in/{OURS}/"))


@pytest.fixture
def make(s3_of_the_run):
    made = []

    def make():
        made.append(InBucket(s3_of_the_run))
        return made[-1]

    yield make
    for each in made:
        each.gate.shut()
        each.client.close()


class TestObjects(BrokerCases):
    """Objects that come in."""

    test_a_missing_place_to_send_to_is_named_with_the_next_move = None
    test_a_kill_in_the_middle_of_sending_gives_repetitions_the_same_ids = None
    test_a_broker_that_is_down_is_unavailable_to_a_sink_and_gets_the_epoch_later = None
    test_a_message_with_an_id_that_was_landed_is_dropped_and_counted = None

    @pytest.fixture
    def broker(self, make):
        return make()

    @pytest.mark.prove
    def test_a_message_of_10_mb_is_landed(self, broker, filled):
        super().test_a_message_of_10_mb_is_landed(broker, filled)

    @pytest.mark.prove
    def test_100_000_lines_with_ten_kills(self, broker, tmp_path):
        kills_and_restarts(broker, None, tmp_path, messages=100_000, kills=10, restarts=0)

    @pytest.mark.prove
    @pytest.mark.parametrize("point", ["after_landing", "before_landing"])
    def test_a_kill_before_or_after_the_fsync_loses_nothing(self, broker, filled, tmp_path, point):
        super().test_a_kill_before_or_after_the_fsync_loses_nothing(broker, filled, tmp_path, point)


class TestRolling(RollingCases):
    """Objects that go out: the steps are those of files, which are tested there at each point."""

    @pytest.mark.prove
    def test_it_is_a_sink(self, make):
        super().test_it_is_a_sink(make)

    @pytest.mark.prove
    def test_a_file_ends_at_its_size_its_age_and_at_the_end(self, outside):
        super().test_a_file_ends_at_its_size_its_age_and_at_the_end(outside, "csv")

    @pytest.mark.prove
    def test_who_reads_files_may_remove_them(self, outside):
        super().test_who_reads_files_may_remove_them(outside)

    test_a_table_has_its_changes_and_private_columns_are_refused = None

    @pytest.mark.parametrize("point", ["after_ended", *(pytest.param(each, marks=pytest.mark.prove) for each in REST)])
    def test_a_crash_at_each_step_leaves_each_row_once(self, outside, point):
        super().test_a_crash_at_each_step_leaves_each_row_once(outside, point)

    @pytest.fixture
    def outside(self, make):
        return make()


def landed(bucket, tmp_path, **options):
    filled = Filled(tmp_path / "log")
    with filled.by(bucket.feed(follow=False, **options)) as run:
        until(lambda: run.status()["state"] == "ended" or run.failure(), f"it ends: {run.status()}")
        assert run.failure() is None
    return sorted(filled.ids())


@pytest.mark.parametrize("ordered", [False, True])
def test_each_object_is_landed_once_and_another_content_anew(make, tmp_path, ordered):
    bucket = make()
    for at in range(3):
        bucket.add(bodies([at]))
    bucket.put("in/.hidden.jsonl", b"x")
    bucket.put("in/folder/", b"")
    bucket.put("in/other.txt", b"x")
    assert landed(bucket, tmp_path, ordered=ordered) == [0, 1, 2]
    bucket.put("in/000000001.jsonl", bodies([1])[0])
    assert landed(bucket, tmp_path, ordered=ordered) == [0, 1, 2], "the same content is not another object"
    bucket.put("in/000000001.jsonl", bodies([7])[0])
    bucket.put("in/000000009.jsonl", b"\n".join(bodies([8, 9])))
    assert landed(bucket, tmp_path, ordered=ordered) == ([0, 1, 2, 8, 9] if ordered else [0, 1, 2, 7, 8, 9])


def test_more_objects_than_a_page_and_more_lines_than_a_chunk(make, tmp_path, monkeypatch):
    monkeypatch.setattr("headrace.connect.files.incoming.CHUNK_BYTES", 100)
    bucket = make()
    bucket.add(bodies(range(50)))
    bucket.add(bodies(range(50, 60)))
    pages = []
    client = bucket.feed().place.client()
    ask = client.list_objects_v2
    client.list_objects_v2 = lambda **how: pages.append(how) or ask(**how, MaxKeys=1)
    monkeypatch.setattr(Bucket, "client", lambda _: client)
    place = bucket.feed().place.open()
    assert [each.name for each in place.files()] == ["000000000.jsonl", "000000001.jsonl"]
    assert len(pages) == 2
    assert landed(bucket, tmp_path) == list(range(60))


def test_an_object_that_is_replaced_while_it_is_read_is_gone(make):
    bucket = make()
    bucket.add(bodies([1]))
    place = bucket.feed().place.open()
    (listed,) = place.files()
    assert place.read(listed, 0, 5) == b'{"id"'
    bucket.put("in/000000000.jsonl", b"x" * 50)
    with pytest.raises(FileNotFoundError):
        place.read(listed, 0, 5)


def test_a_bucket_that_is_down_gets_the_epoch_later(make):
    bucket = make()
    writer = of_rows(bucket.sink(max_bytes=1)).open(writer=WRITER, clock=ManualClock())
    bucket.cut()
    with pytest.raises(Unavailable):
        writer.publish(0, iter([batch([0])]))
    bucket.mend()
    writer.publish(0, iter([batch([0])]))
    writer.close()
    assert len(bucket.read()) == 1


def test_wrong_credentials_are_named_and_not_shown(make, s3_of_the_run, monkeypatch):
    bucket = make()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAWRONG")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s3cret-w0rd")

    def check_all(often):
        url = f"http://127.0.0.1:{s3_of_the_run}/moto-api/reset-auth"
        urllib.request.urlopen(urllib.request.Request(url, often, {"Content-Type": "text/plain"})).close()

    check_all(b"0")
    try:
        with pytest.raises(LoginRefused) as refused:
            bucket.feed().check()
    finally:
        check_all(b"inf")
    assert "InvalidAccessKeyId" in str(refused.value)
    assert "s3cret-w0rd" not in str(refused.value) + repr(bucket.feed())


@pytest.mark.parametrize(
    ("code", "status", "error"),
    [
        ("ConditionalRequestConflict", 409, Unavailable),
        ("SlowDown", 503, Unavailable),
        ("AccessDenied", 403, AccessRefused),
        ("ExpiredToken", 400, LoginRefused),
        ("EntityTooLarge", 400, BrokerFailed),
    ],
)
def test_what_amazon_says_is_what_it_means(code, status, error):
    """Moto never says these."""
    said = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    with pytest.raises(error), s3.objects("s3://bucket").place.failures():
        raise ClientError(said, "PutObject")


def test_what_is_no_bucket_is_refused_where_it_is_named():
    for url in ("bucket/in", "s3://", "http://bucket", "s3://key:secret@bucket/in", 7):
        with pytest.raises(InvalidPlan, match="no address of a bucket"):
            s3.objects(url)
    with pytest.raises(InvalidPlan, match="secret"):
        s3.rolling("s3://bucket", secret=1)
    with pytest.raises(InvalidArgument, match="max_bytes"):
        s3.rolling("s3://bucket", max_bytes=6 << 30)
    assert s3.objects("s3://bucket/in").identity == "s3://bucket/in/"
