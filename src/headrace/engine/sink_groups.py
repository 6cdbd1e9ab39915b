"""Open sinks in groups: the sinks of one group share a writer and receive an epoch together."""

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
class SinkGroup:
    """Sinks that share a writer.

    `applied`: the last epoch that the writer has, None where it cannot tell. `sealed`: by sink, the private columns
    that are opened before they are written; all other private columns are written as tokens. `changelogs`: by sink
    that takes one change a key, the key of its table.
    """

    names: frozenset[str]
    writer: SharedWriter
    applied: int | None
    sealed: Mapping[str, frozenset[str]] = field(default_factory=dict)
    changelogs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The names of its sinks, for people; sinks of dead letters only where there are no others."""
        named = sorted(name for name in self.names if not name.startswith("dead:"))
        return ", ".join(named or sorted(self.names))


def open_sink_groups(sinks: Mapping[str, Sink], plan: Plan, *, writer: str, clock: Clock) -> list[SinkGroup]:
    """Open sinks, those with the same `writer_group` together; groups are in the order of their first sinks."""
    by_group: dict[str, dict[str, Sink]] = {}
    for name, sink in sinks.items():
        by_group.setdefault(getattr(sink, "writer_group", name), {})[name] = sink
    sealed = {sink.name: sink.up.sealed for sink in plan.sinks}
    keys = {sink.name: sink.up.key for sink in plan.sinks if sink.up.is_table and sink.up.key is not None}
    groups = []
    for members in by_group.values():
        clear = {name: sealed[name] for name, sink in members.items() if name in sealed and not sink.takes_tokens}
        changelogs = {name: keys[name] for name, sink in members.items() if name in keys and sink.form == "changelog"}
        opened = _open(members, writer, clock)
        groups.append(SinkGroup(frozenset(members), opened, opened.last_epoch(), clear, changelogs))
    return groups


def _open(members: Mapping[str, Sink], writer: str, clock: Clock) -> SharedWriter:
    name, first = next(iter(members.items()))
    open_together = getattr(first, "open_together", None)
    if open_together is not None:
        opened: SharedWriter = open_together(members, writer=writer, clock=clock)
        return opened
    return _SingleSinkWriter(name, first.open(writer=f"{writer}/{name}", clock=clock))


class _SingleSinkWriter:
    """The writer of one sink, with the interface of a shared one."""

    def __init__(self, name: str, writer: SinkWriter) -> None:
        self.name = name
        self.writer = writer

    def last_epoch(self) -> int | None:
        return self.writer.last_epoch()

    def check_published(self, epochs: Mapping[str, int]) -> None:
        """Do nothing: `last_epoch` says what it has."""

    def publish(self, epoch: int, rows: Mapping[str, Iterator[pa.RecordBatch]]) -> None:
        for batches in rows.values():
            self.writer.publish(epoch, batches)

    def close(self) -> None:
        self.writer.close()
