"""Views as sinks: an epoch is applied to all views of an app in one transaction, with its number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.connect.sink import Form, Guarantee, SharedSink, SharedWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from headrace.base.time import Clock
    from headrace.connect.sink import Sink
    from headrace.views.store import Views


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewSink(SharedSink):
    """A view of a store; `key` identifies its rows, None: a bag of rows."""

    views: Views
    view: str
    schema: pa.Schema
    key: tuple[str, ...] | None
    fault: Callable[[str], None]

    @property
    def guarantee(self) -> Guarantee:  # type: ignore[override] # an answer that never changes
        """A repeated epoch changes nothing."""
        return "exactly_once"

    @property
    def takes_tokens(self) -> bool:  # type: ignore[override] # a constant
        """Yes: readers of the view find the keys."""
        return True

    @property
    def form(self) -> Form:
        """A delta."""
        return "delta"

    @property
    def writer_group(self) -> str:
        """The store: its views share a writer."""
        return f"views:{self.views.where}"

    def prepare(self, *, clock: Clock) -> None:
        """Create the view or check it.

        Raises:
            ViewChanged: it exists with other columns or another key.

        """
        del clock
        self.views.declare(self.view, self.schema, self.key)

    def open_together(self, sinks: Mapping[str, Sink], *, writer: str, clock: Clock) -> SharedWriter:
        """Return the writer of all views of the store."""
        del writer, clock
        views = {name: sink for name, sink in sinks.items() if isinstance(sink, ViewSink)}
        return ViewsWriter(self.views, views, self.fault)


class ViewsWriter(SharedWriter):
    """Applies epochs to views."""

    def __init__(self, views: Views, sinks: Mapping[str, ViewSink], fault: Callable[[str], None]) -> None:
        self.views = views
        self.sinks = sinks
        self.fault = fault

    def last_epoch(self) -> int | None:
        """Return the last epoch that was applied to the store."""
        return self.views.applied()

    def publish(self, epoch: int, rows: Mapping[str, Iterator[pa.RecordBatch]]) -> None:
        """Apply an epoch's deltas in one transaction."""
        self.replace(epoch, rows, replaced=())

    def replace(self, epoch: int, rows: Mapping[str, Iterator[pa.RecordBatch]], *, replaced: Collection[str]) -> None:
        """Do the same, and in that transaction delete what the views of the sinks in `replaced` had before."""
        self.fault("before_views")
        deltas = {
            self.sinks[name].view: pa.Table.from_batches(batches).drop_columns(["_time"])
            for name, batches in rows.items()
        }
        self.views.apply(epoch, deltas, replaced=[self.sinks[name].view for name in replaced])

    def close(self) -> None:
        """Close the store."""
        self.views.close()
