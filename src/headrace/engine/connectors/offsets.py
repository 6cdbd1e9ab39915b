"""Where the feeds of an app go on, and how that is moved."""

from __future__ import annotations

from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from headrace.base.errors import InvalidPlan
from headrace.base.time import SystemClock
from headrace.engine.connectors.units import shards_of
from headrace.engine.feeds import MOST_UNREAD
from headrace.engine.outside import Outside

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.connect.feed import Feed
    from headrace.connect.topics import TopicSpec
    from headrace.dsl.app import App

_HEX = "hex:"


def offsets_of(app: App) -> dict[str, str | None]:
    """Return by topic the position of its feed as text, None at the beginning; feeds may run meanwhile."""
    with _opened(app) as outside:
        return {
            spec.name: _text(outside.topics.position(spec.name, group=feed.reader_group))
            for _, feed, spec in outside.feeds()
        }


def forget_offset(app: App, topic: str) -> None:
    """Let the feed of a topic begin again, and with it those that share its reader.

    Raises:
        FeedRunsElsewhere: it runs.
        InvalidPlan: where the topic is, a position cannot be forgotten.

    """
    with _opened(app) as outside:
        outside.topics.forget_position(topic, group=_found(outside, topic)[0].reader_group)


def set_offset(app: App, topic: str, position: str) -> None:
    """Let the feed of a topic go on at a position, a text as `offsets_of` returns it.

    Raises:
        FeedRunsElsewhere: it runs.
        InvalidPlan: it shares its reader with others.

    """
    with _opened(app) as outside:
        feed, spec = _found(outside, topic)
        if feed.reader_group is not None:
            raise InvalidPlan(
                f'the feed of "{topic}" shares its reader, and cannot be moved alone',
                hint="Leave --to out: the feeds of this reader begin again, with a snapshot.",
            )
        landing = outside.topics.landing(spec, feed=feed.identity, limit=MOST_UNREAD, read=lambda: 0)
        with closing(landing):
            landing.append([], position=_bytes(position))


@contextmanager
def _opened(app: App) -> Iterator[Outside]:
    outside = Outside(app.plan(), app.storage, app.topics, clock=SystemClock(), partitions=shards_of(app))
    with closing(outside):
        yield outside


def _found(outside: Outside, topic: str) -> tuple[Feed, TopicSpec]:
    return next((feed, spec) for _, feed, spec in outside.feeds() if spec.name == topic)


def _text(position: bytes | None) -> str | None:
    if position is None:
        return None
    try:
        text = position.decode()
    except UnicodeDecodeError:
        return f"{_HEX}{position.hex()}"
    return text if text.isprintable() else f"{_HEX}{position.hex()}"


def _bytes(position: str) -> bytes:
    try:
        return bytes.fromhex(position.removeprefix(_HEX)) if position.startswith(_HEX) else position.encode()
    except ValueError as error:
        raise InvalidPlan(f"{position!r} is no position", hint="Give one as `offsets list` shows it.") from error
