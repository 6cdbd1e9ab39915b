"""The sink: rows are posted, signed, with an id that is the same when they are posted again."""

from __future__ import annotations

import asyncio
import hashlib
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Unpack
from urllib.parse import quote, urlsplit

import aiohttp

from headrace.base.arguments import a_path, a_whole_number, one_of
from headrace.base.blame import OutsideError
from headrace.base.dead_letters import DEAD
from headrace.base.errors import InvalidPlan
from headrace.base.outside import Unavailable
from headrace.connect.messages.address import place_of
from headrace.connect.messages.address import secret as read_secret
from headrace.connect.messages.own_loop import apart
from headrace.connect.messages.writing import ID_HEADER, MessageSink, MessageWriter, key_header, one_line, writing
from headrace.connect.webhook.signatures import SCHEMES, signed
from headrace.log import Log

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence

    from headrace.base.time import Clock
    from headrace.connect.messages.writing import Outgoing, WritingOptions
    from headrace.connect.sink import SinkWriter
    from headrace.connect.webhook.signatures import Scheme

SECONDS = 30
"""How long an answer may take."""
TRIES, FIRST_PAUSE, LONGEST_PAUSE = 4, 0.2, 5.0
"""A message is tried so often before the engine is told; it calls again, for a minute."""
_PASSING = {408, 409, 423, 425, 429}
_OK = range(200, 300)
_SHOWN = 200


class PostRefused(OutsideError):
    """A receiver refuses a message, and would refuse it again."""

    condition = "POST_REFUSED"

    def __init__(self, where: str, said: str, *, id: str, epoch: int) -> None:  # noqa: A002 -- as messages have it
        super().__init__(
            f"{where} refuses a message: {said}",
            detail=f"Its id is {id}. The rows of epoch {epoch} are staged; other messages of it may have been posted.",
            hint='Mend the receiver or the message, or give dead_letters="FOLDER": a log that takes what is refused.',
        )


def post(
    url: str,
    *,
    secret: str | None = None,
    signature: Scheme = "standard",
    token: str | None = None,
    dead_letters: str | os.PathLike[str] | None = None,
    in_flight: int = 8,
    **options: Unpack[WritingOptions],
) -> Post:
    """Return a sink that posts each row to a URL: at least once, with an id by which the receiver drops a repetition.

    The header `Idempotency-Key` has the id; it is the same when the epoch is published again. An answer 2xx is success.
    408, 409, 423, 425, 429 and 5xx, and a receiver that does not answer, are tried again with back-off, no sooner than
    `Retry-After` says. Any other answer is final: a dead letter, or the app stops with `POST_REFUSED`. Messages of one
    key arrive in order.

    Args:
        url: where to; `{column}` is replaced by the column's text, percent-encoded: RFC 6570's `{name}`.
        secret: signs the bodies; `env:NAME` is that of the environment variable.
        signature: where the signature is: "standard" (Standard Webhooks), "github" or "stripe".
        token: requests have the header `Authorization: Bearer <token>`; it may be `env:NAME`.
        dead_letters: the folder of a log whose topic `webhook.dead` gets what is refused for good, once each.
        in_flight: how many messages may wait for their answer at a time.
        options: those of all brokers.

    Raises:
        InvalidPlan: the URL is none, or an option is not known.
        InvalidArgument: an option has an impossible value.

    """
    parts = urlsplit(url) if isinstance(url, str) else None
    if parts is None or parts.scheme not in ("http", "https") or not parts.netloc:
        raise InvalidPlan("this is no address to post to", hint='For example "https://example.org/orders".')
    one_of(signature, "signature", SCHEMES)
    return Post(
        how=writing(url, options),
        url=url,
        secret=secret,
        signature=signature,
        token=token,
        dead=None if dead_letters is None else str(a_path(dead_letters, "dead_letters")),
        in_flight=a_whole_number(in_flight, "in_flight", least=1),
    )


@dataclass(frozen=True, kw_only=True)
class Post(MessageSink):
    """Requests to a URL; `post` creates it."""

    url: str = field(repr=False)
    secret: str | None = field(default=None, repr=False)
    signature: Scheme = "standard"
    token: str | None = field(default=None, repr=False)
    dead: str | None = None
    in_flight: int = 8

    @property
    def where(self) -> str:
        """The URL without user, password and query."""
        return place_of(self.url)

    def in_address(self, text: str) -> str:
        """Return a text as it stands in a URL: it begins no query and no parameter."""
        return quote(text, safe="")

    def open(self, *, writer: str, clock: Clock) -> SinkWriter:
        """Return a writer.

        Raises:
            InvalidPlan: the variable of a secret is not there.

        """
        return PostWriter(self, writer, clock)


class PostWriter(MessageWriter[Post]):
    """Posts epochs."""

    def __init__(self, sink: Post, writer: str, clock: Clock) -> None:
        super().__init__(sink, writer)
        self.clock = clock
        self._secret = None if sink.secret is None else read_secret(sink.secret, of=f"the secret of {sink.where}")
        self._headers = {"Content-Type": "application/json" if sink.how.format.name == "json" else "text/plain"}
        if sink.token is not None:
            self._headers["Authorization"] = f"Bearer {read_secret(sink.token, of=f'the token of {sink.where}')}"
        self._epoch, self._done = -1, set[str]()
        self._refused: dict[str, tuple[Outgoing, str]] = {}

    def send(self, epoch: int, messages: Iterator[Sequence[Outgoing]]) -> None:
        """Post an epoch's messages; what was posted before a failure is not posted again by this writer.

        Raises:
            Unavailable: the receiver does not answer, or not now.
            PostRefused: it refuses a message for good, and nothing takes dead letters.

        """
        if epoch != self._epoch:
            self._epoch, self._done, self._refused = epoch, set(), {}
        apart(lambda: asyncio.run(self._post_all(messages)))
        if self._refused:
            self._bury()

    async def _post_all(self, batches: Iterator[Sequence[Outgoing]]) -> None:
        connector = aiohttp.TCPConnector(limit=self.sink.in_flight)
        timeout = aiohttp.ClientTimeout(total=SECONDS)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
            for messages in batches:
                lanes: dict[int, list[Outgoing]] = {}
                for number, message in enumerate(messages):
                    lane = number if message.key is None else _lane(message.key)
                    lanes.setdefault(lane % self.sink.in_flight, []).append(message)
                results = await asyncio.gather(
                    *(self._post_lane(session, lane) for lane in lanes.values()), return_exceptions=True
                )
                for failure in results:
                    if isinstance(failure, BaseException):
                        raise failure

    async def _post_lane(self, session: aiohttp.ClientSession, messages: Sequence[Outgoing]) -> None:
        for message in messages:
            if message.id not in self._done:
                await self._post(session, message)
                self._done.add(message.id)

    async def _post(self, session: aiohttp.ClientSession, message: Outgoing) -> None:
        """Post a message; returns when it is taken, or refused for good."""
        pause = FIRST_PAUSE
        for tries_left in reversed(range(TRIES)):
            try:
                answer = session.post(message.address, data=message.body, headers=self._headers_of(message))
                async with answer as response:
                    if response.status in _OK:
                        return
                    said = f"{response.status} {(await response.text(errors='replace'))[:_SHOWN].strip()}".strip()
                    if response.status not in _PASSING and response.status < 500:  # noqa: PLR2004 -- HTTP's own numbers
                        self._refuse(message, said)
                        return
                    wait = _seconds(response.headers.get("Retry-After"))
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                said, wait = f"{type(error).__name__}: {error}", 0.0
            if not tries_left:
                raise Unavailable(f"{self.sink.where} does not take messages now: {said}")
            await _pause(max(wait, pause * random.uniform(0.5, 1.0)))  # noqa: S311 -- no secret
            pause = min(2 * pause, LONGEST_PAUSE)

    def _headers_of(self, message: Outgoing) -> dict[str, str]:
        own = {name: one_line(text) for name, text in message.headers.items()}
        headers = self._headers | own | {"Idempotency-Key": message.id, ID_HEADER: message.id}
        headers |= key_header(message, self.sink.where)
        if self._secret is not None:
            scheme = self.sink.signature
            headers |= signed(scheme, self._secret, message.body, id=message.id, now=self.clock.now())
        return headers

    def _refuse(self, message: Outgoing, said: str) -> None:
        if self.sink.dead is None:
            raise PostRefused(self.sink.where, said, id=message.id, epoch=self._epoch)
        self._refused[message.id] = message, said

    def _bury(self) -> None:
        """Append what was refused to the log of dead letters: once, by the number of the epoch."""
        rows = [
            {"topic": self.sink.where, "reason": said, "record": message.body.decode("utf-8", "replace")}
            for message, said in self._refused.values()
        ]
        with Log(self.sink.dead or "") as log:
            topic = (
                log.topic("webhook.dead") if log.has_topic("webhook.dead") else log.create_topic("webhook.dead", DEAD)
            )
            topic.append(rows, producer=self.writer, sequence=self._epoch)

    def close(self) -> None:
        """Do nothing: connections are those of an epoch."""


def _lane(key: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(key, digest_size=4).digest(), "big")


def _seconds(retry_after: str | None) -> float:
    """Return how long to wait, at most `LONGEST_PAUSE` here; a date is left to the back-off."""
    return min(float(retry_after), LONGEST_PAUSE) if retry_after and retry_after.isdecimal() else 0.0


async def _pause(seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await asyncio.Event().wait()
    except TimeoutError:
        pass
