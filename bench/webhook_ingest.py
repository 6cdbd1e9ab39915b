"""`webhook_ingest`: durable 2xx answers a second, for 32 clients that wait for each answer before they send again.

Expected: an append is synced once for all requests that arrived while the disk was busy, where SQLite syncs for each.
Clients are the same lean ones on both sides, in processes of their own; they share the cores with the servers.

The rival is an ASGI application, served by a small server of asyncio's streams here: it parses less of HTTP than
uvicorn does, so it is no slower than one.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scripts.broker.servers import LOOPBACK, free_ports

from bench.figure import Figure, paired, same
from headrace.log import Log

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.setting import Setting

CLIENTS, PROCESSES = 32, 2
REQUESTS, OF_RIVAL = 32_000, 6_400
FEED = """
import sys, threading
import pyarrow as pa
from headrace.connect import webhook
from headrace.connect.embedded import EmbeddedTopics
from headrace.connect.topics import TopicSpec
from headrace.log import Log
feed = webhook.endpoint(sys.argv[1])
topics = EmbeddedTopics(Log(sys.argv[2]), partitions=1, fault=lambda point: None)
spec = TopicSpec(name="orders", schema=pa.schema([("id", pa.int64()), ("text", pa.string())]))
feed.run(topics.landing(spec, feed="f", limit=1 << 60, read=lambda: 0), threading.Event())
"""


def run(setting: Setting) -> list[Figure]:
    """Measure both in turn."""
    ours, theirs = [], []
    for number in range(setting.runs(3, 1)):
        requests, of_rival = setting.rows(REQUESTS) // CLIENTS, setting.rows(OF_RIVAL) // CLIENTS
        folder, port = setting.fresh("log"), free_ports(1)
        with _server([sys.executable, "-c", FEED, f"http://{LOOPBACK}:{port}/orders", str(folder)], port):
            ours.append(_answers(port, requests))
        with Log(folder) as log:
            same("records", sum(log.topic("orders").end_offsets().values()), (requests + 3) * CLIENTS)
        file, port = setting.fresh("rows.db"), free_ports(1)
        with _server([sys.executable, __file__, str(port), str(file)], port):
            theirs.append(_answers(port, of_rival))
        with sqlite3.connect(file) as database:
            same("rows of SQLite", database.execute("SELECT count(*) FROM a").fetchone(), ((of_rival + 3) * CLIENTS,))
        setting.say(f"run {number}: {ours[-1]:,.0f} answers/s, SQLite {theirs[-1]:,.0f}")
    ratio, spread = paired(ours, theirs)
    return [
        Figure(
            bench="webhook_ingest",
            what=f"durable answers 2xx a second, {CLIENTS} clients that wait for each",
            rival="an ASGI application that writes each to SQLite, WAL, synchronous=FULL",
            ratio=ratio,
            spread=spread,
            must=">= 10",
            ours=sorted(ours)[len(ours) // 2],
            theirs=sorted(theirs)[len(theirs) // 2],
            unit="answers/s",
            runs=len(ours),
        )
    ]


@contextmanager
def _server(command: list[str], port: int) -> Iterator[None]:
    process = subprocess.Popen(command)
    try:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with suppress(OSError), socket.create_connection((LOOPBACK, port), timeout=1):
                break
            time.sleep(0.1)
        yield
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def _answers(port: int, requests: int) -> float:
    """Return how many answers a second all clients got, from the first request to the last answer."""
    with multiprocessing.get_context("spawn").Pool(PROCESSES) as pool:
        pool.starmap(send_all, [(port, 3, -1 - number) for number in range(PROCESSES)], chunksize=1)  # warm
        spans = pool.starmap(send_all, [(port, requests, number) for number in range(PROCESSES)], chunksize=1)
        took = max(ended for _, ended in spans) - min(began for began, _ in spans)
        return requests * CLIENTS / took


def send_all(port: int, requests: int, number: int) -> tuple[float, float]:
    """Be a share of the clients: each sends a request when the one before is answered. Return begin and end."""
    began = time.perf_counter()
    asyncio.run(_clients(port, requests, number))
    return began, time.perf_counter()


async def _clients(port: int, requests: int, number: int) -> None:
    count = CLIENTS // PROCESSES
    await asyncio.gather(*(_client(port, requests, number * count + each) for each in range(count)))


async def _client(port: int, requests: int, number: int) -> None:
    reader, writer = await asyncio.open_connection(LOOPBACK, port)
    for at in range(requests):
        body = b'{"id": %d, "text": "%s"}' % (number * requests + at, b"x" * 60)
        writer.write(
            b"POST /orders HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/json\r\nContent-Length: %d\r\n\r\n%s"
            % (len(body), body)
        )
        answer = await reader.readuntil(b"\r\n\r\n")
        same("answer", answer[:13], b"HTTP/1.1 204 ")
    writer.close()


# ---- the rival: an ASGI application, and a small server for it ----


class Application:
    """Writes the body of each request to SQLite, one transaction each, and answers 204."""

    def __init__(self, file: Path) -> None:
        self._database = sqlite3.connect(file, isolation_level=None)
        self._database.execute("PRAGMA journal_mode=WAL")
        self._database.execute("PRAGMA synchronous=FULL")
        self._database.execute("CREATE TABLE a (body TEXT)")

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Answer a request."""
        del scope
        body = (await receive())["body"]
        self._database.execute("INSERT INTO a VALUES (?)", (body.decode(),))
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})


async def _serve(port: int, application: Application) -> None:
    async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
                body = await reader.readexactly(size)
                start: dict[str, Any] = {}

                async def receive(body: bytes = body) -> dict[str, Any]:
                    return {"type": "http.request", "body": body, "more_body": False}

                async def send(event: dict[str, Any], start: dict[str, Any] = start) -> None:
                    if event["type"] == "http.response.start":
                        start.update(event)
                    else:
                        writer.write(b"HTTP/1.1 %d No Content\r\n\r\n%s" % (start["status"], event["body"]))

                await application({"type": "http", "method": "POST"}, receive, send)

    server = await asyncio.start_server(connection, LOOPBACK, port)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]), Application(Path(sys.argv[2]))))
