"""A server of the web for tests, in a thread of this process: records that grow in number, in each way of asking."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress

from aiohttp import WSMsgType, web

from headrace.connect.webhook.server import Address, serving

PAGE = 500
TOKEN = "s3cret-w0rd"  # noqa: S105 -- of a test


class WebServer:
    """Serves `records`, and takes what is sent to its WebSocket. Use `with`.

    `/page?since=N`: at most `PAGE` records from a number on, and the next number. `/list`: all, with an ETag. `/linked`
    has pages of two, with `Link`; `/linked?tagged` their ETags, too. `/events`: server-sent events behind
    `Last-Event-ID`. `/socket`: a WebSocket that sends what is added, and takes. `answers`: what is answered instead,
    once each.
    """

    PATHS = ("/page", "/list", "/linked", "/events", "/socket", "/login")

    def __init__(self):
        self.records, self.taken, self.asked = [], [], []
        self.answers = []
        self._waiting, self._stack = [], []
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]

    def __enter__(self):
        for path in self.PATHS:
            handler = getattr(self, path[1:])
            self._stack.append(serving(Address("127.0.0.1", self.port), path, self._recorded(handler)))
            self.server = self._stack[-1].__enter__()
        return self

    def __exit__(self, *failure):
        for each in reversed(self._stack):
            each.__exit__(*failure)

    def url(self, path, scheme="http", port=None):
        return f"{scheme}://127.0.0.1:{port or self.port}{path}"

    def add(self, records):
        self.records += [each.decode(errors="replace") for each in records]
        self.server.loop.call_soon_threadsafe(self._wake)

    def _wake(self):
        for each in self._waiting:
            each.set()

    def _recorded(self, handler):
        async def handle(request):
            self.asked.append((request.path_qs, dict(request.headers)))
            if self.answers:
                return self.answers.pop(0)
            return await handler(request)

        return handle

    async def page(self, request):
        since = int(request.query["since"])
        some = self.records[since : since + PAGE]
        return json_answer(f'{{"data": {{"items": [{",".join(some)}]}}, "next": {since + len(some)}}}')

    async def list(self, request):
        tag = f'"{len(self.records)}"'
        if request.headers.get("If-None-Match") == tag:
            return web.Response(status=304)
        return json_answer(f"[{','.join(self.records)}]", ETag=tag)

    async def linked(self, request):
        at, tagged = int(request.query.get("page", "0")), "&tagged" if "tagged" in request.query else ""
        some = self.records[2 * at : 2 * at + 2]
        link = f'</linked?page={at + 1}{tagged}>; rel="next"'
        headers = {"Link": link} if len(self.records) > 2 * (at + 1) else {}
        if tagged:
            headers["ETag"] = f'"{len(some)}"'
            if request.headers.get("If-None-Match") == headers["ETag"]:
                return web.Response(status=304, headers=headers)
        return json_answer(f"[{','.join(some)}]", **headers)

    async def login(self, request):
        fits = request.headers.get("Authorization") == f"Bearer {TOKEN}"
        return json_answer("[]") if fits else web.Response(status=401)

    async def events(self, request):
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b"retry: 50\n: welcome\n\n")
        at, woken = int(request.headers.get("Last-Event-ID", "-1")) + 1, self._woken()
        while True:
            some = [f"id: {at + n}\ndata: {each}\n\n" for n, each in enumerate(self.records[at : at + 100])]
            at += len(some)
            await response.write("".join(some).encode())
            if not some:
                with suppress(TimeoutError):  # who is gone shows when something is written
                    await asyncio.wait_for(woken.wait(), 0.5)
                woken.clear()
                await response.write(b": still here\n")

    async def socket(self, request):
        connection = web.WebSocketResponse(max_msg_size=0)
        await connection.prepare(request)
        sending = asyncio.ensure_future(self._send(connection, len(self.records)))
        try:
            async for message in connection:
                if message.type in {WSMsgType.TEXT, WSMsgType.BINARY}:
                    self.taken.append(message.data)
        finally:
            sending.cancel()
        return connection

    async def _send(self, connection, at):
        woken = self._woken()
        while True:
            for each in self.records[at:]:
                await connection.send_str(each)
                at += 1
            await woken.wait()
            woken.clear()

    def _woken(self):
        self._waiting.append(asyncio.Event())
        return self._waiting[-1]


def json_answer(text, **headers):
    return web.Response(text=text, content_type="application/json", headers=headers)


def later(status, **headers):
    return web.Response(status=status, headers=headers)
