"""The RabbitMQ of the tests: what was confirmed is there after a crash."""

from __future__ import annotations

import pika
import pytest


def test_a_killed_broker_comes_back_with_what_was_confirmed(rabbit):
    """Kill -9 of the broker is what the tests of the connector rely on."""
    rabbit.declare()
    rabbit.send(b"1", b"2")
    rabbit.server.kill()
    with pytest.raises(pika.exceptions.AMQPConnectionError), rabbit.channel():
        pass
    rabbit.server.start()
    assert [body for _, body in rabbit.taken()] == [b"1", b"2"]
