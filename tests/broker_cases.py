"""What every broker's connector must do: subclass `BrokerCases`, with a fixture `broker` that is a `Broker`.

    class TestOfOurs(BrokerCases):
        @pytest.fixture
        def broker(self, server):
            return OurBroker(server)

A case that a connector has no way to show is skipped with the reason that the broker gives.
"""

from __future__ import annotations

import json
import pickle
import signal
import socket
import ssl
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from headrace.base.broker_errors import LoginRefused, QueueMissing
from headrace.base.outside import AccessRefused, Unavailable
from headrace.base.time import ManualClock
from headrace.connect.embedded import EmbeddedTopics
from headrace.connect.topics import TopicSpec
from headrace.engine.connectors.control import Wishes
from headrace.engine.feeds import Feeds
from headrace.log import Log
from headrace.testing import check_feed
from headrace.testing.connectors import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from headrace.base.blame import HeadraceError
    from headrace.connect.feed import Feed
    from headrace.connect.messages.writing import MessageSink

SECONDS = 300.0
REFUSED = (LoginRefused, AccessRefused)
WRITER = "app/1/sink"


class Broker:
    """A broker with a queue (topic, subject, subscription) that no other test has.

    `exactly_once`: whether what the feed reads twice is landed once. `has_ids`: whether messages have ids.
    """

    exactly_once = True
    has_ids = True

    def feed(self, **options: object) -> Feed:
        """Return a feed of the queue, whose messages are JSON; its connections go through what `cut` cuts."""
        raise NotImplementedError

    def sink(self, **options: object) -> MessageSink:
        """Return a sink whose messages `taken` takes; its connections go through what `cut` cuts."""
        raise NotImplementedError

    def add(self, bodies: Sequence[bytes], ids: Sequence[str] | None = None) -> None:
        """Put messages into the queue, as a client of somebody else would; never through what `cut` cuts."""
        raise NotImplementedError

    def taken(self) -> list[tuple[str | None, bytes]]:
        """Take what the sink has sent so far: ids and bodies in order."""
        raise NotImplementedError

    def cut(self) -> None:
        """End all connections of feed and sink, and refuse new ones, as a broker that is down does."""
        raise NotImplementedError

    def mend(self) -> None:
        """Take connections again."""
        raise NotImplementedError

    def refused(self, secret: str) -> Feed | str:
        """Return a feed with a wrong password, or why there is none."""
        return f"no passwords here, so {secret!r} is none"

    def missing(self) -> Feed | str:
        """Return a feed of a queue that does not exist, or why there is none."""
        return "a queue is created when it is read"

    def missing_sink(self) -> MessageSink | str:
        """Return a sink to something that does not exist, or why there is none."""
        return "what is sent to is created"


def bodies(ids: Sequence[int]) -> list[bytes]:
    """Return messages with the columns of the contract kits."""
    return [json.dumps({"id": i, "text": f"t{i}"}).encode() for i in ids]


def until(condition: Callable[[], object], what: str = "it", seconds: float = SECONDS) -> None:
    """Return when a condition holds; fail if it does not within some seconds."""
    waiting, waited = threading.Event(), 0.0
    while not condition():
        assert waited < seconds, f"{what} within {seconds} s"
        waiting.wait(0.02)
        waited += 0.02


class Filled:
    """A topic "landed" of an embedded log, which feeds fill as an app would let them."""

    def __init__(self, folder: Path, schema: pa.Schema = COLUMNS, *, key: Sequence[str] = ("id",)) -> None:
        self.folder = folder
        self.spec = TopicSpec(name="landed", schema=schema, key=tuple(key))

    @contextmanager
    def topics(self) -> Iterator[EmbeddedTopics]:
        with Log(self.folder, fsync=False) as log:
            yield EmbeddedTopics(log, partitions=1, fault=lambda point: None)  # noqa: ARG005 -- nothing happens there

    @contextmanager
    def by(self, feed: Feed) -> Iterator[Run]:
        """Let a feed fill the topic."""
        with self.topics() as topics:
            wishes = Wishes(self.folder)
            feeds = Feeds([("landed", feed, self.spec)], topics, lambda _: 0, wishes=wishes)  # nothing was read
            try:
                yield Run(feeds, topics.log)
            finally:
                feeds.stop()

    def ids(self) -> list[int]:
        """Return the ids that were landed."""
        with Log(self.folder, fsync=False) as log:
            return ids_of(log)


@dataclass
class Run:
    """A feed that runs."""

    feeds: Feeds
    log: Log
    states: set[str] = field(default_factory=set)

    def rows(self, topic: str = "landed") -> list[dict[str, object]]:
        return rows_of(self.log, topic)

    def has(self, ids: Sequence[int]) -> None:
        """Wait for ids, in any order and any number."""
        until(lambda: set(ids_of(self.log)) >= set(ids) or self.failure(), f"ids {ids} are landed, {self.status()}")
        assert set(ids_of(self.log)) == set(ids), self.status()

    def count(self) -> int:
        return sum(self.log.topic("landed").end_offsets().values()) if self.log.has_topic("landed") else 0

    def status(self) -> dict[str, object]:
        return self.feeds.status()["landed"]

    def failure(self) -> HeadraceError | None:
        return self.feeds.states["landed"].failure


def rows_of(log: Log, name: str) -> list[dict[str, object]]:
    if not log.has_topic(name):
        return []
    topic = log.topic(name)
    return [row for part, end in topic.end_offsets().items() for row in topic.read(part, 0, end).to_pylist()]


def ids_of(log: Log) -> list[int]:
    return [row["id"] for row in rows_of(log, "landed")]


def batch(ids: Sequence[int]) -> pa.RecordBatch:
    """Return rows of a stream as a sink gets them."""
    columns = {"id": pa.array(ids, pa.int32()), "text": pa.array([f"t{i}" for i in ids])}
    return pa.record_batch(columns | {"_time": pa.array([1_000_000 * i for i in ids], pa.int64())})


def for_rows(sink: MessageSink) -> MessageSink:
    """Return a sink for a stream of the kits' rows."""
    return sink.for_step(schema=COLUMNS, key=None, is_table=False, sealed=frozenset())


def killed(feed_or_sink: object, point: str, folder: Path) -> None:
    """Run a feed or publish epoch 0 in another process, which kills itself with SIGKILL at a point."""
    file = folder / "killed.pickle"
    file.write_bytes(pickle.dumps((feed_or_sink, point, str(folder / "log"))))
    run = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("killed_process.py")), str(file)],
        capture_output=True,
        text=True,
        timeout=2 * SECONDS,
        check=False,
    )
    assert run.returncode == -signal.SIGKILL, f"it dies at {point}: {run.returncode}\n{run.stdout}\n{run.stderr}"


class BrokerCases:
    """The cases; `broker` is a fixture of the subclass."""

    @pytest.fixture
    def filled(self, tmp_path):
        return Filled(tmp_path / "log")

    def test_it_is_a_feed(self, broker):
        """It waits while there is no room; a death between append and acknowledgement loses nothing."""

        class Outside:
            feed = broker.feed()
            exactly_once = broker.exactly_once

            def add(self, ids):
                broker.add(bodies(ids), [f"m{i}" for i in ids])

        check_feed(Outside, seconds=SECONDS)

    def test_a_broker_that_is_down_is_waited_for_at_the_start_and_in_mid_run(self, broker, filled):
        broker.add(bodies([0]), ["m0"])
        broker.cut()
        with filled.by(broker.feed()) as run:
            until(lambda: run.status()["state"] == "retrying", "it says that it tries again")
            broker.mend()
            run.has([0])
            broker.cut()
            broker.add(bodies([1, 2]), ["m1", "m2"])
            until(lambda: run.status()["state"] == "retrying", "it says that it tries again")
            broker.mend()
            run.has([0, 1, 2])
        if broker.exactly_once:
            assert sorted(filled.ids()) == [0, 1, 2], filled.ids()  # Pub/Sub keeps no order without a key

    def test_a_wrong_password_is_named_and_not_shown(self, broker, filled, caplog):
        feed = broker.refused("s3cret-w0rd")
        if isinstance(feed, str):
            pytest.skip(feed)
        with filled.by(feed) as run:
            until(run.failure, "it fails")
            error = run.failure()
        assert isinstance(error, REFUSED), error
        assert error.hint
        shown = [str(error), repr(feed), feed.identity, str(error.__cause__), json.dumps(run.status()), caplog.text]
        assert not [each for each in shown if "s3cret-w0rd" in each]

    def test_what_is_missing_is_named_with_the_next_move(self, broker, filled):
        feed = broker.missing()
        if isinstance(feed, str):
            pytest.skip(feed)
        with filled.by(feed) as run:
            until(run.failure, "it fails")
            assert isinstance(run.failure(), QueueMissing)
            assert run.failure().hint

    def test_a_missing_place_to_send_to_is_named_with_the_next_move(self, broker):
        sink = broker.missing_sink()
        if isinstance(sink, str):
            pytest.skip(sink)
        with pytest.raises(QueueMissing) as raised:
            for_rows(sink).open(writer=WRITER, clock=ManualClock()).publish(0, iter([batch([1])]))
        assert raised.value.hint

    def test_a_message_that_cannot_be_decoded_is_a_dead_letter_and_stops_nothing(self, broker, filled):
        broker.add([*bodies([0]), b"{not json \xff", *bodies([1])], ["m0", "bad", "m1"])
        with filled.by(broker.feed()) as run:
            run.has([0, 1])
            until(lambda: run.rows("landed.dead"), "a dead letter")
            (letter,) = run.rows("landed.dead")
            assert letter["record"].startswith("{not json")
            assert letter["reason"]
            assert run.status()["dead"] == 1

    def test_a_message_of_10_mb_is_landed(self, broker, filled):
        broker.add([json.dumps({"id": 1, "text": "x" * 10_000_000}).encode()], ["m1"])
        with filled.by(broker.feed()) as run:
            until(lambda: run.rows() or run.failure(), "it is landed")
            assert [len(row["text"]) for row in run.rows()] == [10_000_000]

    def test_a_message_with_an_id_that_was_landed_is_dropped_and_counted(self, broker, filled):
        if not broker.has_ids:
            pytest.skip("its messages have no ids")
        broker.add(bodies([0, 1]), ["m0", "m1"])
        with filled.by(broker.feed()) as run:
            run.has([0, 1])
        broker.add(bodies([1, 2]), ["m1", "m2"])
        with filled.by(broker.feed()) as run:  # another process: what is known is stored
            run.has([0, 1, 2])
            until(lambda: run.status().get("repeated") == 1, "it is counted")
        assert filled.ids() == [0, 1, 2]

    @pytest.mark.parametrize(
        "point", ["after_landing", pytest.param("before_landing", marks=pytest.mark.prove)], ids=str
    )
    def test_a_kill_before_or_after_the_fsync_loses_nothing(self, broker, filled, tmp_path, point):
        """Kill -9 between receiving and fsync, and between fsync and acknowledgement."""
        broker.add(bodies(range(20)), [f"m{i}" for i in range(20)])
        killed(broker.feed(), point, tmp_path)
        with filled.by(broker.feed()) as run:
            run.has(range(20))
        if broker.exactly_once:
            assert sorted(filled.ids()) == list(range(20))

    def test_a_kill_in_the_middle_of_sending_gives_repetitions_the_same_ids(self, broker, tmp_path):
        sink = for_rows(broker.sink())
        killed(sink, "in_epoch", tmp_path)
        sent = broker.taken()
        writer = sink.open(writer=WRITER, clock=ManualClock())
        writer.publish(0, iter([batch([0, 1]), batch([2, 3])]))
        writer.publish(1, iter([batch([4])]))
        writer.close()
        sent += broker.taken()
        assert {json.loads(body)["id"] for _, body in sent} == {0, 1, 2, 3, 4}
        assert len({found for found, _ in sent}) == 5, "the same messages have the same ids"
        if sink.guarantee == "exactly_once":
            assert len(sent) == 5

    def test_a_broker_that_is_down_is_unavailable_to_a_sink_and_gets_the_epoch_later(self, broker):
        sink = for_rows(broker.sink())
        writer = sink.open(writer=WRITER, clock=ManualClock())
        writer.publish(0, iter([batch([0])]))
        broker.cut()
        with pytest.raises((OSError, Unavailable)):
            writer.publish(1, iter([batch([1, 2])]))
        with suppress(OSError, Unavailable):
            writer.publish(1, iter([batch([1, 2])]))
        broker.mend()
        writer.publish(1, iter([batch([1, 2])]))
        writer.close()
        sent = broker.taken()
        assert {json.loads(body)["id"] for _, body in sent} == {0, 1, 2}
        assert len(set(sent)) == 3


class Gate:
    """A port of this machine that leads to another one, until it is shut: then connections end and none is taken.

    `tls`: the files of a certificate and its key; who comes in then speaks TLS, and what is behind does not. `at`: its
    port, any free one by default.
    """

    def __init__(self, port: int, *, tls: tuple[Path, Path] | None = None, at: int = 0) -> None:
        self.target = port
        self.port = at
        self._tls = None if tls is None else ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        if self._tls is not None:
            self._tls.load_cert_chain(*tls)
        self._pairs: list[socket.socket] = []
        self._listener: socket.socket | None = None
        self.open()

    def open(self) -> None:
        if self._listener is None:
            self._listener = socket.socket()
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._listener.bind(("127.0.0.1", self.port))
            self._listener.listen()
            self.port = self._listener.getsockname()[1]
            threading.Thread(target=self._take, args=(self._listener,), daemon=True).start()

    def shut(self) -> None:
        listener, self._listener = self._listener, None
        pairs, self._pairs = self._pairs, []
        for each in [*([listener] if listener else []), *pairs]:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _take(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                one, _ = listener.accept()
                try:
                    if self._tls is not None:
                        one = self._tls.wrap_socket(one, server_side=True)
                    other = socket.create_connection(("127.0.0.1", self.target))
                except OSError:
                    one.close()
                    continue
                self._pairs += [one, other]
                for source, target in ((one, other), (other, one)):
                    threading.Thread(target=_copy, args=(source, target), daemon=True).start()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    for each in (source, target):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


def certificate(folder: Path) -> tuple[Path, Path]:
    """Make a certificate of `localhost` that trusts itself, and return the files of it and its key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    begins, ends = datetime(2020, 1, 1, tzinfo=UTC), datetime(2099, 1, 1, tzinfo=UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(begins)
        .not_valid_after(ends)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    files = folder / "cert.pem", folder / "key.pem"
    files[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    plain = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    files[1].write_bytes(key.private_bytes(*plain))
    return files
