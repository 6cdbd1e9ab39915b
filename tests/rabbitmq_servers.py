"""RabbitMQ for tests: a fixture for every folder of tests. It skips, with the reason, where there can be none."""

from __future__ import annotations

import sys
import uuid
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from brokers import run_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pika.adapters.blocking_connection import BlockingChannel
    from scripts.servers.rabbitmq import RabbitMQ

sys.path.append(str(Path(__file__).parents[1]))

SERVERS = {"rabbitmq_of_the_run"}
"""The fixtures of a whole run: which tests need a server shows by them."""


@dataclass(frozen=True)
class Rabbit:
    """A broker for one test: `name` is a queue that no other test has. `server` starts, stops, kills and restarts."""

    server: RabbitMQ
    name: str

    @property
    def url(self) -> str:
        return self.server.url()

    @contextmanager
    def channel(self) -> Iterator[BlockingChannel]:
        """Give a channel that waits for the broker's confirmation of each message."""
        import pika

        connection = pika.BlockingConnection(pika.URLParameters(self.url))
        channel = connection.channel()
        channel.confirm_delivery()
        yield channel
        if connection.is_open:
            connection.close()

    def declare(self, name: str = "", **arguments: object) -> str:
        """Declare a durable queue, the test's own if no other is named, and return its name."""
        with self.channel() as channel:
            channel.queue_declare(name or self.name, durable=True, arguments=arguments)
        return name or self.name

    def send(self, *bodies: bytes, name: str = "", **properties: object) -> None:
        """Send persistent messages to a queue."""
        import pika

        with self.channel() as channel:
            for body in bodies:
                about = pika.BasicProperties(delivery_mode=2, **properties)
                channel.basic_publish("", name or self.name, body, about, mandatory=True)

    def waiting(self, name: str = "") -> int:
        """Return how many messages nobody has taken."""
        with self.channel() as channel:
            return channel.queue_declare(name or self.name, passive=True).method.message_count

    def taken(self, name: str = "") -> list[tuple[object, bytes]]:
        """Take all messages of a queue: their properties and bodies."""
        found = []
        with self.channel() as channel:
            while (got := channel.basic_get(name or self.name, auto_ack=True))[0] is not None:
                found.append(got[1:])
        return found


@pytest.fixture(scope="session")
def rabbitmq_of_the_run(tmp_path_factory):
    from scripts.broker.servers import shared
    from scripts.servers.packages import Unavailable
    from scripts.servers.rabbitmq import RabbitMQ

    server = RabbitMQ(shared(run_folder(tmp_path_factory), "rabbitmq"))
    try:
        server.start()
    except Unavailable as reason:
        server.servers.leave()
        pytest.skip(f"no RabbitMQ: {reason}")
    yield server
    server.servers.leave()


@pytest.fixture
def rabbit(rabbitmq_of_the_run):
    """A broker that all tests of the run share, one after the other: a test may stop, kill and restart it."""
    rabbitmq_of_the_run.start()
    return Rabbit(rabbitmq_of_the_run, f"t{uuid.uuid4().hex[:8]}")
