"""Whether the connectors of an app could run: asked before anything starts, changing nothing."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from headrace.base.errors import HeadraceError, UnknownTopic
from headrace.base.schema import type_name
from headrace.base.time import SystemClock
from headrace.engine.connectors.units import shards_of
from headrace.engine.outside import Outside

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from headrace.connect.feed import Feed
    from headrace.dsl.app import App


NOT_ASKED = "it cannot tell before it runs"
"""What `check_app` says of a sink that has no `check`."""


def check_app(app: App) -> Iterator[tuple[str, str | None]]:
    """Yield the connectors of an app, feeds by their topics and then sinks, each with what is wrong; None: nothing."""
    plan = app.plan()
    with closing(Outside(plan, app.storage, app.topics, clock=SystemClock(), partitions=shards_of(app))) as outside:
        for _, feed, spec in outside.feeds():
            yield spec.name, _problem(lambda feed=feed, name=spec.name, schema=spec.schema: _check_feed(  # type: ignore[misc]
                outside, feed, name, schema))  # fmt: skip
        for sink in plan.sinks:
            check = getattr(sink.connector, "check", None)
            if sink.connector is not None:
                yield sink.name, _problem(check) if callable(check) else NOT_ASKED


def _problem(check: Callable[[], str | None]) -> str | None:
    try:
        return check()
    except HeadraceError as error:
        return f"[{error.condition}] {error.what}"
    except OSError as error:
        return f"{type(error).__name__}: {error}"


def _check_feed(outside: Outside, feed: Feed, name: str, schema: pa.Schema) -> str | None:
    feed.check()
    declared = feed.declares()
    if declared is not None and (wrong := _differs(schema, declared.schema)):
        return f"{feed.identity} has {wrong}"
    try:
        topic = outside.opened(name)
    except UnknownTopic:  # it is created when the feed begins
        return None
    wrong = _differs(schema, topic.schema)
    return f'the topic "{name}" has {wrong}' if wrong else None


def _differs(wanted: pa.Schema, there: pa.Schema) -> str | None:
    """Return what is not there of the columns wanted."""
    for field in wanted:
        if field.name not in there.names:
            return f'no column "{field.name}"'
        found = there.field(field.name).type
        if found != field.type:
            return f'{type_name(found)} in the column "{field.name}", and the program says {type_name(field.type)}'
    return None
