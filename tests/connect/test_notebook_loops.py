"""What a notebook calls: its cells run inside an event loop, so this thread runs one already."""

import asyncio
import socket
import threading
from contextlib import closing

import pytest

pytest.importorskip("aiohttp")

from aiohttp import web as served

from broker_cases import WRITER, batch, for_rows
from headrace.base.outside import Unavailable
from headrace.base.time import ManualClock
from headrace.connect import nats, web, webhook
from headrace.connect.messages.own_loop import apart
from headrace.connect.webhook.server import Address, serving


def as_a_cell(cell):
    """Call a function as a notebook calls what is in a cell; return its result."""

    async def run():
        return cell()

    return asyncio.run(run())


@pytest.fixture
def address():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return Address("127.0.0.1", free.getsockname()[1])


def test_rows_are_posted(address):
    taken = []

    async def take(request):
        taken.append(await request.json())
        return served.Response(status=204)

    def cell():
        with closing(for_rows(webhook.post(url)).open(writer=WRITER, clock=ManualClock())) as writer:
            writer.publish(0, iter([batch([1, 2])]))

    url = f"http://127.0.0.1:{address.port}/orders"
    with serving(address, "/orders", take):
        as_a_cell(cell)
    assert sorted(each["id"] for each in taken) == [1, 2]


def test_an_address_is_checked_and_rows_are_sent_by_a_websocket(address):
    taken = []

    async def take(request):
        if request.headers.get("Upgrade") != "websocket":
            return served.json_response([])
        connection = served.WebSocketResponse()
        await connection.prepare(request)
        taken.extend([message.json() async for message in connection])
        return connection

    def cell():
        web.poll(f"http://127.0.0.1:{address.port}/", every="1 second").check()
        sink = for_rows(web.send(f"ws://127.0.0.1:{address.port}/"))
        with closing(sink.open(writer=WRITER, clock=ManualClock())) as writer:
            writer.publish(0, iter([batch([1])]))
            writer.publish(1, iter([batch([2])]))

    with serving(address, "/", take):
        as_a_cell(cell)
    assert [each["id"] for each in taken] == [1, 2]


def test_nats_says_that_nobody_answers(address):
    pytest.importorskip("nats")

    def cell():
        sink = for_rows(nats.subject(f"nats://127.0.0.1:{address.port}", "orders"))
        with closing(sink.open(writer=WRITER, clock=ManualClock())) as writer:
            writer.publish(0, iter([batch([1])]))

    with pytest.raises(Unavailable, match="does not answer"):
        as_a_cell(cell)


def test_without_a_loop_no_thread_is_begun():
    assert apart(threading.current_thread) is threading.current_thread()
    assert as_a_cell(lambda: apart(threading.current_thread)) is not threading.current_thread()
