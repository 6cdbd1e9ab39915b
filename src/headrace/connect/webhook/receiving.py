"""The feed: a request is answered with 2xx when its records are durable, and refused when they cannot be."""

from __future__ import annotations

import asyncio
import hmac
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple, Unpack

from aiohttp import web

from headrace.base.arguments import a_whole_number, one_of
from headrace.base.buffer import SharedBuffer
from headrace.base.errors import InvalidPlan
from headrace.base.time import SystemClock, as_datetime
from headrace.connect.feed import Feed
from headrace.connect.messages.address import secret as read_secret
from headrace.connect.messages.reading import HEADER, MessageLanding, reading
from headrace.connect.webhook.bodies import BadBody, messages_of
from headrace.connect.webhook.server import RETRY_AFTER, address_of, serving
from headrace.connect.webhook.signatures import SCHEMES, refusal

if TYPE_CHECKING:
    import threading
    from collections.abc import Mapping, Sequence

    from headrace.connect.feed import Landing
    from headrace.connect.messages.reading import Message, Reading, ReadingOptions
    from headrace.connect.webhook.server import Address, HttpServer
    from headrace.connect.webhook.signatures import Scheme

KNOWN = ("method", "path", "query", "remote", "received")
"""What `metadata=` may name besides headers."""
BODY_SECONDS = 30
_OVERHEAD = 1_000
_REQUEST = "request"
"""What recognises a message where `id=` names a header, which all elements of a batch have."""
CLOCK = SystemClock()


class Limits(NamedTuple):
    """`body`: the bytes that a body may have. `waiting`: those of all requests that wait for the disk."""

    body: int
    waiting: int


def endpoint(
    url: str,
    *,
    secret: str | Sequence[str] | None = None,
    signature: Scheme = "github",
    token: str | None = None,
    max_bytes: int = 1 << 20,
    tls: tuple[str, str] | None = None,
    **options: Unpack[ReadingOptions],
) -> Endpoint:
    """Return a feed of requests that are posted to a URL of this machine: exactly once with an id, else at least once.

    A request is answered with 204 when its records are on disk. One that cannot be decoded is answered with 400 and the
    reason, and nothing of it is landed; one of a wrong signature or token with 401, one that is too large with 413.
    When more waits for the disk than fits in 64 MB, or the app is too far behind, the answer is 429 with `Retry-After`.

    The id of a request is its header `Idempotency-Key`, `webhook-id` or `X-GitHub-Delivery`, that of a CloudEvent is
    its source and id. A JSON array and NDJSON are batches: all of it is landed or nothing.

    Args:
        url: where to listen, such as `http://0.0.0.0:8080/orders`. Several feeds may share a port, with other paths.
        secret: signs the bodies; `env:NAME` is that of the environment variable. Several while it is changed.
        signature: where the signature is: "github" (`X-Hub-Signature-256`), "stripe" (`Stripe-Signature`), "standard"
            (`webhook-signature` of Standard Webhooks). The last two refuse requests that are 5 minutes old.
        token: requests have the header `Authorization: Bearer <token>`; it may be `env:NAME`.
        max_bytes: how large a body may be.
        tls: for https, the files of the certificate's chain and of its key.
        options: those of all brokers; `metadata=` knows "method", "path", "query", "remote" and "received" too.

    Raises:
        InvalidPlan: the URL is none to listen at, or an option is not known.
        InvalidArgument: an option has an impossible value.

    """
    certificate, key = tls or (None, None)
    address, path = address_of(url, certificate=certificate, key=key)
    secrets = (secret,) if isinstance(secret, str) else tuple(secret or ())
    if secret is not None and not all(secrets):
        raise InvalidPlan("a secret of a webhook is empty", hint='secret="env:NAME" reads it from the environment.')
    one_of(signature, "signature", SCHEMES)
    return Endpoint(
        address=address,
        path=path,
        secrets=secrets,
        signature=signature,
        token=token,
        limits=Limits(a_whole_number(max_bytes, "max_bytes", least=1), max(64 << 20, max_bytes)),
        how=reading(KNOWN, options),
    )


@dataclass(frozen=True, kw_only=True)
class Endpoint(Feed):
    """Requests to a path; `endpoint` creates it."""

    address: Address
    path: str
    secrets: tuple[str, ...] = field(repr=False)
    signature: Scheme
    token: str | None = field(repr=False)
    limits: Limits
    how: Reading

    @property
    def identity(self) -> str:
        """The path: it may move to another port or machine."""
        return f"webhook:{self.path}"

    def run(self, landing: Landing, stop: threading.Event) -> None:
        """Answer requests until `stop` is set.

        Raises:
            OSError: nobody can listen at the address now.
            InvalidPlan: a secret's variable is not there, or the path has a feed already.

        """
        messages = MessageLanding(landing, replace(self.how, id=_REQUEST) if _by_header(self.how) else self.how)
        desk = _Desk(self)
        with serving(self.address, self.path, desk.answer) as server:
            try:
                while not stop.is_set():
                    desk.has_room = messages.has_room()
                    if desk.has_room:
                        self._land(messages, desk.waiting.take(0.1), server)
                    else:  # those that wait would wait for the app
                        _answer_all(server, dict.fromkeys(desk.waiting.take(0), 429))
                        stop.wait(0.05)
                    counts = desk.waiting.counts.shown()
                    if counts != desk.shown:
                        desk.shown = counts
                        messages.report(waited=counts["waited"])
            finally:
                desk.waiting.close()
                _answer_all(server, dict.fromkeys(desk.waiting.take(0), 503))

    def _land(self, messages: MessageLanding, requests: list[_Received], server: HttpServer) -> None:
        """Land requests, and answer each; one that cannot be decoded takes no other with it."""
        answers: dict[_Received, int | str] = {}
        try:
            while requests:
                owners = [each for each in requests for _ in each.messages]
                wrong = messages.land([message for each in requests for message in each.messages], refuse=True)
                if not wrong:
                    answers |= dict.fromkeys(requests, 204)
                    break
                for at, why in wrong.items():
                    answers.setdefault(owners[at], why if len(owners[at].messages) == 1 else f"an element: {why}")
                requests = [each for each in requests if each not in answers]
        except BaseException:
            answers |= {each: 503 for each in requests if each not in answers}
            raise
        finally:
            _answer_all(server, answers)


class _Received:
    """A request that waits for its answer: a status, or why it is refused."""

    __slots__ = ("answer", "messages")

    def __init__(self, messages: Sequence[Message], answer: asyncio.Future[int | str]) -> None:
        self.messages, self.answer = messages, answer


def _answer_all(server: HttpServer, answers: Mapping[_Received, int | str]) -> None:
    def answer() -> None:
        for request, said in answers.items():
            if not request.answer.done():  # its sender may be gone
                request.answer.set_result(said)

    if answers:
        server.loop.call_soon_threadsafe(answer)


class _Desk:
    """Takes requests in the server's thread, and hands them to the thread of the feed."""

    def __init__(self, feed: Endpoint) -> None:
        self.feed = feed
        self.has_room = True
        self.waiting: SharedBuffer[_Received] = SharedBuffer(feed.limits.waiting, "block")
        self.shown: dict[str, int] = {}
        self._secrets = [read_secret(each, of=f"the secret of {feed.path}") for each in feed.secrets]
        self._bearer = None
        if feed.token is not None:
            self._bearer = f"Bearer {read_secret(feed.token, of=f'the token of {feed.path}')}".encode()

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a request when its records are durable, or say why they are not."""
        if request.method != "POST":
            return web.Response(status=405, headers={"Allow": "POST"})
        if not self.has_room:
            self.waiting.counts.waited += 1
            return _later(429)
        try:
            async with asyncio.timeout(BODY_SECONDS):
                body = await self._body(request)
        except TimeoutError:
            return _refused(408, "the body did not arrive")
        if body is None:
            return _refused(413, f"a body has {self.feed.limits.body} bytes at most")
        refused = self._unauthorized(request, body)
        if refused is not None:
            return _refused(401, refused)
        try:
            messages = messages_of(body, request.headers, self._about(request))
        except BadBody as error:
            return _refused(400, str(error))
        if _by_header(self.feed.how):
            messages = _numbered(messages, self.feed.how.id or "")
        received = _Received(messages, asyncio.get_running_loop().create_future())
        if not self.waiting.offer(received, weight=len(body) + _OVERHEAD * (1 + len(messages))):
            return _later(429)
        said = await received.answer
        if isinstance(said, str):
            return _refused(400, said)
        return web.Response(status=said) if said < 300 else _later(said)  # noqa: PLR2004 -- HTTP's own numbers

    async def _body(self, request: web.BaseRequest) -> bytes | None:
        """Return the body, None if it is too large."""
        most = self.feed.limits.body
        if (request.content_length or 0) > most:
            return None
        body = b""
        while part := await request.content.readany():
            body += part
            if len(body) > most:
                return None
        return body

    def _unauthorized(self, request: web.BaseRequest, body: bytes) -> str | None:
        given = request.headers.get("Authorization", "").encode("utf-8", "surrogateescape")
        if self._bearer is not None and not hmac.compare_digest(given, self._bearer):
            return "it has no header Authorization with the right token"
        if self._secrets:
            return refusal(self.feed.signature, self._secrets, request.headers, body, CLOCK.now())
        return None

    def _about(self, request: web.BaseRequest) -> Mapping[str, object]:
        if not self.feed.how.metadata:
            return {}
        return {
            "method": request.method,
            "path": request.path,
            "query": request.query_string,
            "remote": request.remote,
            "received": as_datetime(CLOCK.now()),
        }


def _by_header(how: Reading) -> bool:
    return how.id is not None and how.id.startswith(HEADER)


def _numbered(messages: Sequence[Message], header: str) -> Sequence[Message]:
    """Return the messages of a request with what recognises each: its header, from the second one on with a number."""
    found = [each.value(header) for each in messages]
    known = [each if each is None or not at else f"{each}/{at}" for at, each in enumerate(found)]
    return [each._replace(about={**each.about, _REQUEST: one}) for each, one in zip(messages, known, strict=True)]


def _refused(status: int, why: str) -> web.Response:
    return web.Response(status=status, text=f"{why}\n")


def _later(status: int) -> web.Response:
    return web.Response(status=status, headers={"Retry-After": str(RETRY_AFTER)})
