"""Open sinks, by the places that they share: the sinks of one place see an epoch together."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from headrace.base.time import Clock
    from headrace.connect.sink import SharedWriter, Sink, SinkWriter
    from headrace.plan.plan import Plan


@dataclass
class Place:
    """Where some sinks write to, together.

    `sealed`: by sink, the private columns whose values are put in clear; of the others tokens are written.
    """

    names: frozenset[str]
    writer: SharedWriter
    applied: int | None
    sealed: Mapping[str, frozenset[str]] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """Its sinks, for people; dead letters are not what it is for."""
        named = sorted(name for name in self.names if not name.startswith("dead:"))
        return ", ".join(named or sorted(self.names))


def open_places(sinks: Mapping[str, Sink], plan: Plan, *, writer: str, clock: Clock) -> list[Place]:
    """Open sinks, those of one place together; places are in the order of their first sinks."""
    together: dict[str, dict[str, Sink]] = {}
    for name, sink in sinks.items():
        together.setdefault(getattr(sink, "place", name), {})[name] = sink
    sealed = {sink.name: sink.up.sealed for sink in plan.sinks}
    places = []
    for members in together.values():
        clear = {name: sealed[name] for name, sink in members.items() if name in sealed and not sink.takes_tokens}
        opened = _open(members, writer, clock)
        places.append(Place(frozenset(members), opened, opened.last_epoch(), clear))
    return places


def _open(members: Mapping[str, Sink], writer: str, clock: Clock) -> SharedWriter:
    name, first = next(iter(members.items()))
    shared = getattr(first, "open_together", None)
    if shared is not None:
        opened: SharedWriter = shared(members, writer=writer, clock=clock)
        return opened
    return _Single(name, first.open(writer=f"{writer}/{name}", clock=clock))


class _Single:
    """The writer of one sink, in the form of a shared one."""

    def __init__(self, name: str, writer: SinkWriter) -> None:
        self.name = name
        self.writer = writer
        self.guarantee = writer.guarantee

    def last_epoch(self) -> int | None:
        return self.writer.last_epoch()

    def publish(self, epoch: int, rows: Mapping[str, Iterator[pa.RecordBatch]]) -> None:
        for batches in rows.values():
            self.writer.publish(epoch, batches)

    def close(self) -> None:
        self.writer.close()
