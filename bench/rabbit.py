"""RabbitMQ as a rival: a broker of the bench's own, and a worker that acknowledges by hand, through pika."""

from __future__ import annotations

import time
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

from scripts.broker.servers import NotStarted, Servers
from scripts.servers.packages import Unavailable
from scripts.servers.rabbitmq import RabbitMQ

from bench.workers import Worked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.setting import Setting

QUEUE = "bench"
IDLE_SECONDS = 2.0


class NoRabbit(Exception):
    """There is no RabbitMQ on this machine; the text is the reason."""


@contextmanager
def broker(setting: Setting) -> Iterator[str]:
    """Start a broker; give its address.

    Raises:
        NoRabbit: it cannot be had.

    """
    server = RabbitMQ(Servers(setting.fresh("rabbitmq"), shared=False))
    setting.say("starting RabbitMQ")
    try:
        server.start()
    except (Unavailable, NotStarted) as reason:
        raise NoRabbit(str(reason)) from reason
    try:
        yield server.url()
    finally:
        server.kill()


def connected(url: str) -> Any:
    """Return a connection."""
    import pika

    return pika.BlockingConnection(pika.URLParameters(url))


def empty_queue(url: str, kind: str = "classic") -> None:
    """Make the durable queue of the bench anew, as one of a kind of RabbitMQ's."""
    with closing(connected(url)) as connection:
        channel = connection.channel()
        channel.queue_delete(QUEUE)
        channel.queue_declare(QUEUE, durable=True, arguments={"x-queue-type": kind})


def waiting(url: str) -> int:
    """Return how many messages nobody has taken."""
    with closing(connected(url)) as connection:
        return int(connection.channel().queue_declare(QUEUE, passive=True).method.message_count)


def body(number: int, size: int) -> bytes:
    """Return the body of a task: its id, and text."""
    return number.to_bytes(8, "big") + b"x" * (size - 8)


def fill(url: str, count: int, size: int) -> None:
    """Put persistent tasks into the queue. It is not timed, so nothing waits for a confirmation of its own."""
    import pika

    about = pika.BasicProperties(delivery_mode=2)
    with closing(connected(url)) as connection:
        channel = connection.channel()
        for number in range(count):
            channel.basic_publish("", QUEUE, body(number, size), about)
    while waiting(url) < count:
        time.sleep(0.1)


def work(begin: Callable[[], object], number: int, url: str, prefetch: int, together: int) -> Worked:
    """Take and acknowledge tasks until there are none, `together` by one acknowledgement."""
    del number
    connection = connected(url)
    channel = connection.channel()
    channel.basic_qos(prefetch_count=prefetch)
    begin()
    count, ids, began, used = 0, 0, time.monotonic(), time.process_time()
    ended, unanswered = began, 0
    for method, _, content in channel.consume(QUEUE, inactivity_timeout=0.05):
        if method is None:
            if unanswered:
                channel.basic_ack(0, multiple=True)
                unanswered, ended = 0, time.monotonic()
            if time.monotonic() - ended > IDLE_SECONDS:
                break
            continue
        count, ids, unanswered = count + 1, ids + int.from_bytes(content[:8], "big"), unanswered + 1
        if unanswered == together:
            channel.basic_ack(method.delivery_tag, multiple=together > 1)
            unanswered, ended = 0, time.monotonic()
    used = time.process_time() - used
    connection.close()
    return Worked(count, ids, began, ended, used)
