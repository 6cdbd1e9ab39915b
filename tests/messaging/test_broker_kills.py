"""Long: 100,000 messages through a real broker, while we are killed ten times and it is killed twice."""

from __future__ import annotations

import json
import os
import pickle
import random
import signal
import subprocess
import sys
import threading
import time
import uuid
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from broker_cases import WRITER, Filled, for_rows, until
from headrace.base.outside import Unavailable
from headrace.base.time import SystemClock
from headrace.log import Log
from headrace.testing.connectors import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.connect.feed import Feed
    from headrace.connect.rabbitmq.publishing import Publisher

pytestmark = pytest.mark.prove
COUNT, KILLS, RESTARTS = 100_000, 10, 2
TRIES = 60
"""How often a sender of the test tries again, after a second."""
SEED = int(os.environ.get("SEED", "7"))


class Server:
    """A broker as the long case needs it: `send` puts messages with ids, `restart` kills it and starts it again."""

    def __init__(
        self, feed: Feed, send: Callable[[range], None], restart: Callable[[], None], waiting: Callable[[], int]
    ) -> None:
        self.feed, self.send, self.restart, self.waiting = feed, send, restart, waiting


def survives(server: Server, folder: Path) -> list[int]:
    """Return the ids that are landed in the end."""
    drawn, topic = random.Random(SEED), Filled(folder / "log")  # noqa: S311 -- it replays
    print(f"SEED={SEED}")  # noqa: T201 -- a failure shows it
    sent = COUNT // 2
    server.send(range(sent))
    restarts = {drawn.randrange(KILLS) for _ in range(RESTARTS)} | {0, KILLS // 2}
    sender = threading.Thread(target=server.send, args=(range(COUNT // 2, COUNT),))
    for number in range(KILLS):
        process = _started(server.feed, folder)
        before = _landed(topic)
        most = min(before + 1, sent)  # a fast one may have landed all
        until(lambda: process.poll() is not None or _landed(topic) >= most, "it lands some")  # noqa: B023 -- at once
        time.sleep(drawn.uniform(0, 0.3))
        assert process.poll() is None, process.communicate()
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        if number in restarts:
            server.restart()
        if number == KILLS // 2:
            sender.start()
            sender.join()
            sent = COUNT
    with topic.by(server.feed) as run:
        until(lambda: run.count() >= COUNT and server.waiting() == 0, "everything is landed", 600)
    return topic.ids()


def _landed(topic: Filled) -> int:
    with Log(topic.folder, fsync=False) as log:
        return sum(log.topic("landed").end_offsets().values()) if log.has_topic("landed") else 0


def _started(feed: Feed, folder: Path) -> subprocess.Popen[bytes]:
    """Run a feed in another process that is not told anything."""
    file = folder / "killed.pickle"
    file.write_bytes(pickle.dumps((feed, "never", str(folder / "log"))))
    program = Path(__file__).parents[1] / "killed_process.py"
    return subprocess.Popen([sys.executable, str(program), str(file)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def check_taken(publisher: Publisher) -> None:
    """Raise where no queue has a message: a broker that has just started does not know its queues yet."""
    if publisher.returned:
        raise Unavailable("no queue has it")


@pytest.mark.parametrize("kind", ["classic", "quorum", "stream"])
def test_100_000_messages_of_rabbitmq_survive_kills_of_ours_and_theirs(rabbit, tmp_path, kind):
    pytest.importorskip("pika")
    from pika.exceptions import AMQPError

    from headrace.connect import rabbitmq
    from headrace.connect.messages.address import BrokerAddress
    from headrace.connect.messages.writing import Outgoing
    from headrace.connect.rabbitmq.publishing import MOST_UNDER_WAY, Publisher

    address = BrokerAddress(rabbit.url)
    rabbit.declare(**({} if kind == "classic" else {"x-queue-type": kind}))

    def send(ids):
        """As programs do it: after a failure what may not be confirmed is sent again, with the same ids."""
        first, tries = ids.start, 0
        while first < ids.stop:
            try:
                with closing(Publisher(address, "", content_type=None, mandatory=True)) as publisher:
                    while first < ids.stop:
                        some = range(first, min(first + 1_000, ids.stop))
                        rows = [json.dumps({"id": i, "text": "x" * 100}).encode() for i in some]
                        publisher.send(
                            [
                                Outgoing(f"m{i}", row, None, rabbit.name, {}, None)
                                for i, row in zip(some, rows, strict=True)
                            ]
                        )
                        if some.stop == ids.stop:
                            publisher.flush()
                        check_taken(publisher)
                        first = some.stop
            except (AMQPError, OSError, Unavailable) as error:
                print(f"at {first}: {error!r}")  # noqa: T201 -- a failure shows it
                first, tries = max(ids.start, first - MOST_UNDER_WAY - 1_000), tries + 1
                assert tries < TRIES
                time.sleep(1)

    word = partial(rabbitmq.stream, id="id") if kind == "stream" else rabbitmq.queue  # what is sent again has its id
    waiting = (lambda: 0) if kind == "stream" else rabbit.waiting
    found = survives(Server(word(rabbit.url, rabbit.name), send, rabbit.server.restart, waiting), tmp_path)
    assert len(set(found)) == COUNT, "nothing is lost"
    assert len(found) == COUNT, "nothing is there twice"


def test_100_000_messages_of_artemis_survive_kills_of_ours_and_theirs(artemis, tmp_path):
    pytest.importorskip("stomp")
    from headrace.connect import stomp
    from headrace.connect.messages.address import BrokerAddress
    from headrace.connect.stomp.connection import Connection

    name = f"kills{uuid.uuid4().hex[:8]}"

    def send(ids):
        with closing(Connection(BrokerAddress(artemis.url()))) as connection:
            for first in range(ids.start, ids.stop, 1_000):  # one by one each would wait for a sync
                connection.send("BEGIN", {"transaction": "t"})
                for i in range(first, min(first + 1_000, ids.stop)):
                    about = {"destination": name, "destination-type": "ANYCAST", "persistent": "true"}
                    body = json.dumps({"id": i, "text": "x" * 100}).encode()
                    about |= {"transaction": "t"} | ({"headrace-id": f"m{i}"} if i % 2 else {})
                    connection.send("SEND", about, body)
                connection.ask("COMMIT", {"transaction": "t"})
            connection.ask("DISCONNECT", {})

    found = survives(Server(stomp.queue(artemis.url(), name), send, artemis.restart, lambda: 0), tmp_path)
    assert len(set(found)) == COUNT, "nothing is lost"
    assert sum(each % 2 for each in found) == COUNT // 2, "nothing that has an id of its sender is there twice"


def test_100_000_messages_of_artemis_by_amqp_survive_kills_of_ours_and_theirs(artemis, tmp_path):
    """They are sent by a sink of ours, exactly once, by epochs of 1,000 rows."""
    pytest.importorskip("proton")
    from headrace.connect import amqp

    url, name = f"amqp://ada:wonder@127.0.0.1:{artemis.port}", f"kills{uuid.uuid4().hex[:8]}"

    def send(ids):
        writer = for_rows(amqp.destination(url, name, exactly_once=True)).open(writer=WRITER, clock=SystemClock())
        with closing(writer):
            for first in range(ids.start, ids.stop, 1_000):
                rows = [{"id": i, "text": "x" * 100} for i in range(first, first + 1_000)]
                writer.publish(first, iter(pa.Table.from_pylist(rows, schema=COLUMNS).to_batches()))

    found = survives(Server(amqp.queue(url, name), send, artemis.restart, lambda: 0), tmp_path)
    assert len(set(found)) == COUNT, "nothing is lost"
    assert len(found) == COUNT, "nothing is there twice"
