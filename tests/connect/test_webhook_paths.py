"""A path whose feed has failed beside others asks senders to come again: after 404 many would not."""

import http.client
import socket
from contextlib import closing

import pytest

pytest.importorskip("aiohttp")

from aiohttp import web

from headrace.connect.webhook.server import Address, HttpServer, serving


async def take(request):  # noqa: ARG001 -- of the protocol
    return web.Response(status=204)


def posted(address, path):
    """Return the status of an answer, and when to come again."""
    connection = http.client.HTTPConnection(address.host, address.port, timeout=10)
    with closing(connection):
        connection.request("POST", path, body=b"1")
        answer = connection.getresponse()
        return answer.status, answer.headers.get("Retry-After")


def fails_at(address, path):
    with serving(address, path, take):
        assert posted(address, path) == (204, None)
        raise OSError("the disk is full")


def test_a_path_whose_feed_has_failed_is_there_again_later():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = Address("127.0.0.1", free.getsockname()[1])
    with serving(address, "/other", take):
        assert posted(address, "/orders") == (404, None)
        with pytest.raises(OSError, match="the disk is full"):
            fails_at(address, "/orders")
        assert posted(address, "/orders") == (503, "1")
        assert posted(address, "/nothing") == (404, None)
        with serving(address, "/orders", take):
            assert posted(address, "/orders") == (204, None)
        assert posted(address, "/orders") == (404, None)  # it has ended, and is not to begin again


def test_a_server_that_fails_while_it_closes_leaves_no_thread(monkeypatch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = Address("127.0.0.1", free.getsockname()[1])
    server = HttpServer(address)

    async def fails(seconds):
        raise OSError(f"not within {seconds} s")

    monkeypatch.setattr(server._server, "shutdown", fails)
    with pytest.raises(OSError, match="not within"):
        server.close()
    assert not server._thread.is_alive()
    assert server.loop.is_closed()
