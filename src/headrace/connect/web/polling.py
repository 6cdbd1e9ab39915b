"""In: the answers to a request that is repeated, and where to ask next is stored with each append."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from email.utils import parsedate_to_datetime
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple, Unpack
from urllib.parse import quote, urljoin, urlsplit

import aiohttp

from headrace.base.arguments import a_whole_number
from headrace.base.broker_errors import BrokerFailed
from headrace.base.errors import InvalidPlan
from headrace.base.outside import Unavailable
from headrace.base.time import MICROS, SystemClock, as_datetime, duration
from headrace.connect.feed import Feed
from headrace.connect.json_spans import Path, as_text, elements, path_of, value_at
from headrace.connect.messages.reading import Message, MessageLanding, Reading, ReadingOptions, reading
from headrace.connect.web.client import Client, Site, WithLogin, site_of, without_login

if TYPE_CHECKING:
    import threading
    from collections.abc import Mapping, Sequence
    from datetime import timedelta

    from headrace.connect.feed import Landing

KNOWN = ("received",)
CURSOR = "{cursor}"
SECONDS = 60
LONGEST_WAIT = 3_600.0
MAX_BYTES = 64 << 20
_LOOK_SECONDS = 10.0
"""A request that is waited for is no sign that there is nothing more, so a stop is looked for now and then alone."""
_LINES = ("application/x-ndjson", "application/jsonl", "application/json-lines")
_SAME, _LATER = 304, (429, 503)
CLOCK = SystemClock()


class PollOptions(ReadingOptions, WithLogin, total=False):
    """The options of all brokers, and with what a request shows who asks."""


class Parts(NamedTuple):
    """Where in an answer the records are, in a record its id, and in an answer the next cursor."""

    records: Path
    id: Path | None
    cursor: Path | None


def poll(
    url: str,
    *,
    every: str | timedelta = "10 seconds",
    records: str = "",
    record_id: str | None = None,
    cursor: str | None = None,
    start: str = "",
    **options: Unpack[PollOptions],
) -> Poll:
    """Return a feed that asks a URL again and again, and lands the records of each answer that is another than before.

    Where to ask next, and what the last answer was, is stored with each append: each answer is landed exactly once,
    also after crashes. Records that are in several answers are landed again, unless `record_id` tells them.

    An answer that did not change is not landed: the server says so (`ETag` or `Last-Modified`, 304), or its content is
    the same. If it has a header `Link` with `rel="next"`, that page is asked next, at once; the last page is asked
    again until it has a next one. With `cursor` the URL has `{cursor}`, which is replaced by what the last answer said.
    429 and 503 with `Retry-After` are waited for, up to an hour.

    Args:
        url: where to ask, with `http` or `https`; it may have a user and a password.
        every: how long after an answer without more to come it is asked again.
        records: where the records are in an answer, such as `"data.items"`; by default an array is several records,
            lines of NDJSON too, and anything else is one.
        record_id: where the id of a record is in it: a record whose id was landed is dropped (see `remember`).
        cursor: where the next cursor is in an answer, such as `"next"` or, of the last record, `"items[-1].id"`. Where
            there is none, or null, the cursor stays.
        start: the first cursor.
        options: those of all brokers, `token` and `headers`; `metadata=` knows "received" too.

    Raises:
        InvalidPlan: the URL is none, has no `{cursor}` where there is a cursor, or an option is not known.
        InvalidTime: `every` is no duration.

    """
    if (cursor is not None) != (isinstance(url, str) and CURSOR in url):
        raise InvalidPlan(
            "cursor= says what {cursor} in the URL is",
            hint='poll("https://…?since={cursor}", cursor="next", start="0")',
        )
    login, how = without_login(options)
    parts = Parts(
        path_of(records),
        None if record_id is None else path_of(record_id),
        None if cursor is None else path_of(cursor),
    )
    return Poll(
        site=site_of(url, ("http", "https"), login),
        every=a_whole_number(duration(every, what="every"), "every", least=1),
        parts=parts,
        start=start,
        how=reading(KNOWN, how),
    )


@dataclass(frozen=True, kw_only=True)
class Poll(Feed):
    """Answers of a URL; `poll` creates it. `every` in microseconds."""

    site: Site
    every: int
    parts: Parts
    start: str
    how: Reading

    @property
    def identity(self) -> str:
        """The URL without secrets and options."""
        return f"poll:{self.site.place}"

    def check(self) -> None:
        """Ask once; raises as `run` does."""
        with Client(self.site) as client:
            client.check(self.site.url.replace(CURSOR, quote(self.start, safe="")))

    def run(self, landing: Landing, stop: threading.Event) -> None:
        """Land answers until `stop` is set.

        Raises:
            Unavailable: the server does not answer, or not with what was asked for.
            LoginRefused: it wants other credentials.
            AccessRefused: who asks may not read it.
            QueueMissing: there is nothing at this address.

        """
        messages = MessageLanding(landing, self.how)
        with Client(self.site) as client:
            polling = _Polling(self, messages, client)
            while not stop.is_set():
                if messages.has_room():
                    stop.wait(polling.ask(stop))
                else:
                    stop.wait(0.1)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where to ask next: the URL of a page (None: the feed's), the cursor; and what the last answer from there was."""

    url: str | None = None
    cursor: str = ""
    etag: str | None = None
    modified: str | None = None
    content: str | None = None

    def stored(self) -> bytes:
        return json.dumps(asdict(self)).encode()


class _Answer(NamedTuple):
    status: int
    reason: str | None
    headers: Mapping[str, str]
    body: bytes
    next: str | None


class _Polling:
    """Asks and lands."""

    def __init__(self, feed: Poll, messages: MessageLanding, client: Client) -> None:
        self.feed, self.messages, self.client = feed, messages, client
        stored = messages.position
        self.place = _Place(cursor=feed.start) if stored is None else _Place(**json.loads(stored))
        self._every = feed.every / MICROS
        self._warning: str | None = None

    def ask(self, stop: threading.Event) -> float:
        """Ask once, and land what is new; return how many seconds to wait.

        Raises:
            Unavailable: the server does not answer, or not with what was asked for.
            HeadraceError: it refuses.

        """
        url = self.place.url or self.feed.site.url.replace(CURSOR, quote(self.place.cursor, safe=""))
        answer = self.client.until(self._get(url), stop, look=_LOOK_SECONDS)
        if answer is None:
            return self._every
        if answer.status == _SAME:
            return self._every if answer.next is None else self._follow(url, answer.next)
        wait = _retry_after(answer.headers.get("Retry-After"))
        if answer.status in _LATER and wait is not None:
            self._warn(f"{self.feed.site.place} answers {answer.status}: it is asked in {wait:.0f} s")
            return wait
        self._warn(None)
        if (refused := self.feed.site.refused(answer.status, answer.reason)) is not None:
            raise refused
        content = blake2b(answer.body, digest_size=16).hexdigest()
        known = content == self.place.content
        if known and answer.next is None:
            return self._every
        try:
            found, place = self._read(answer, url, content)
        except (ValueError, RecursionError) as error:
            raise Unavailable(f"{self.feed.site.place} answers with something else than JSON: {error}") from None
        self.messages.land([] if known else found, position=place.stored())
        moved = (place.url, place.cursor) != (self.place.url, self.place.cursor)
        self.place = place
        return 0.0 if moved and (found or answer.next is not None) else self._every

    def _follow(self, url: str, following: str) -> float:
        """Go on to the next page of one that did not change."""
        place = _Place(url=_same_server(url, following), cursor=self.place.cursor)
        self.messages.land([], position=place.stored())
        self.place = place
        return 0.0

    def _read(self, answer: _Answer, url: str, content: str) -> tuple[Sequence[Message], _Place]:
        """Return the records of an answer, and where to ask next."""
        parts, text = self.feed.parts, answer.body.decode()
        about = {"received": as_datetime(CLOCK.now())}
        kind = answer.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if kind in _LINES and not parts.records:
            found = [line for line in text.split("\n") if line.strip()]
        elif parts.records:
            listed = value_at(text, parts.records)
            if listed is None:
                self._warn(f"an answer of {self.feed.site.place} has nothing where its records are to be")
            found = elements(listed or "[]")
        else:
            found = elements(text) if text.lstrip()[:1] == "[" else [text] if text.strip() else []
        messages = [Message(each.encode(), self._id(each), headers=answer.headers, about=about) for each in found]
        if answer.next is not None:
            return messages, _Place(url=_same_server(url, answer.next), cursor=self.place.cursor)
        cursor = value_at(text, parts.cursor) if parts.cursor else None
        if cursor is not None and as_text(cursor) != self.place.cursor:
            return messages, _Place(cursor=as_text(cursor))
        headers = answer.headers
        kept = replace(self.place, etag=headers.get("ETag"), modified=headers.get("Last-Modified"), content=content)
        return messages, kept

    def _warn(self, warning: str | None) -> None:
        if warning != self._warning:
            self._warning = warning
            self.messages.report(warning=warning)

    def _id(self, record: str) -> str | None:
        found = None if self.feed.parts.id is None else value_at(record, self.feed.parts.id)
        return None if found is None else as_text(found)

    async def _get(self, url: str) -> _Answer:
        named = {"If-None-Match": self.place.etag, "If-Modified-Since": self.place.modified}
        headers = {name: value for name, value in named.items() if value is not None}
        timeout = aiohttp.ClientTimeout(total=SECONDS)
        redirects = not self.feed.site.headers  # which may be secrets, and are for this server
        async with self.client.session.get(
            url, headers=headers, timeout=timeout, allow_redirects=redirects
        ) as response:
            body = b""
            while part := await response.content.readany():
                body += part
                if len(body) > MAX_BYTES:
                    raise BrokerFailed(f"{self.feed.site.place} answers with more than {MAX_BYTES:,} bytes")
            following = response.links.get("next", {}).get("url")
            found = None if following is None else urljoin(str(response.url), str(following))
            return _Answer(response.status, response.reason, response.headers, body, found)


def _same_server(url: str, following: str) -> str:
    """Return the URL of the next page, which must not get our credentials if it is of another server.

    Raises:
        BrokerFailed: it is.

    """
    here, there = urlsplit(url), urlsplit(following)
    if (here.scheme, here.hostname, here.port) != (there.scheme, there.hostname, there.port):
        raise BrokerFailed(f"the next page is at another server: {there.scheme}://{there.hostname}")
    if "@" in here.netloc and "@" not in there.netloc:
        return there._replace(netloc=f"{here.netloc.rpartition('@')[0]}@{there.netloc}").geturl()
    return following


def _retry_after(said: str | None) -> float | None:
    """Return how many seconds to wait, at most an hour; None where the server does not say."""
    if said is None:
        return None
    if said.strip().isdecimal():
        return min(float(said), LONGEST_WAIT)
    try:
        until = parsedate_to_datetime(said).timestamp()
    except (TypeError, ValueError):
        return None
    return min(max(until - CLOCK.now() / MICROS, 0.1), LONGEST_WAIT)
