"""The RabbitMQ of the tests: what was confirmed is there after a crash."""

from __future__ import annotations

import pika
import pytest

from headrace.base.time import SystemClock

WRITTEN_SECONDS = 3.0
"""RabbitMQ's database gives a new queue to the disk up to two seconds after it has confirmed it."""


def test_a_killed_broker_comes_back_with_what_was_confirmed(rabbit):
    """Kill -9 of the broker is what the tests of the connector rely on."""
    rabbit.declare()
    rabbit.send(b"1", b"2")
    SystemClock().sleep(WRITTEN_SECONDS)
    rabbit.server.kill()
    with pytest.raises(pika.exceptions.AMQPConnectionError), rabbit.channel():
        pass
    rabbit.server.start()
    assert [body for _, body in rabbit.taken()] == [b"1", b"2"]
