"""A work queue over a topic: any number of workers, each record at one of them at a time."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

import pyarrow as pa

from headrace.base.arguments import a_text, a_whole_number
from headrace.base.dead_letters import dead_letters
from headrace.base.errors import HeadraceError, InvalidArgument, LeaseLost, OffsetOutOfRange
from headrace.base.time import MICROS, duration, waiting_time
from headrace.log import bell
from headrace.log.dead_topic import TopicsOf, dead_topic
from headrace.log.queues.leases import Leases
from headrace.log.queues.reading import Reader, ordering, rows_at
from headrace.log.queues.task import Task

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import timedelta
    from pathlib import Path
    from types import TracebackType

    from headrace.base.time import Clock
    from headrace.log.queues.leases import Lease
    from headrace.log.queues.options import QueueOptions
    from headrace.log.topic import Topic

WINDOW = 10_000
"""So many records are put in order by their priorities, times and keys; later ones wait until some are finished."""
_OTHERS_SECONDS = 0.1
"""So often a worker that waits looks for workers that have died, and for leases that have run out."""


class LogOf(TopicsOf, Protocol):
    """What a queue needs of the log."""

    @property
    def clock(self) -> Clock:
        """Its clock."""


class QueueStatus(NamedTuple):
    """What is in a queue.

    Attributes:
        new: records that nobody has looked at.
        ready: records that were released or put in order, and can be taken.
        delayed: records that cannot be taken yet.
        leased: records that are worked on.
        dead: records on their way to the dead letters.
        lost: records that the topic did not have any more when they were taken.

    """

    new: int
    ready: int
    delayed: int
    leased: int
    dead: int
    lost: int


class Queue:
    """Records of a topic, leased one by one to the workers of a group; get one from `Log.queue`.

    A record is *available* until a worker takes it, then *leased* until it is acknowledged, released or rejected. A
    lease that runs out, and the death of the worker's process, make it available again; after `max_deliveries` it goes
    to `<topic>.dead`, as a rejected one does, with the reason. Every record is acknowledged once or becomes a dead
    letter once, whatever process is killed. Whether it is worked on once is another question: a worker that dies after
    its work and before `ack` is followed by another one. After a power loss the last acknowledgements may be missing.

    Redelivery changes the order: a record that comes back comes after later ones, unless `key_order` holds these back.

    Use one object in a process, from any number of threads; each process opens its own.
    """

    def __init__(self, topic: Topic, group: str, folder: Path, options: QueueOptions, log: LogOf) -> None:
        self.topic, self.group, self.options, self._log = topic, group, options, log
        self._leases = Leases(folder, topic, limit=options.max_deliveries, in_order=options.in_order)
        self._sorts = options.priority is not None or options.not_before is not None or options.in_order
        self._reader = Reader(topic)
        self._bell = bell.Bell(log.path, topic.name, group)
        self._looked = self._counted = -_OTHERS_SECONDS
        self._room = 0
        self._producer = f"queue/{group}/{topic.name}"
        self._letter: int | None = None
        try:
            self._leases.begin()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give back what this worker holds."""
        if not self._leases.state.closed:
            self._leases.close()
            self._bell.ring()  # for what it held
            self._bell.close()

    # ---- taking ----------------------------------------------------------------------------------------

    def take(self, n: int = 1, *, wait: str | timedelta | None = None) -> list[Task]:
        """Lease up to `n` records, and return them; wait for the first one.

        Args:
            n: so many at most.
            wait: how long to wait until there is one ("5 seconds"); None: not at all. Then the result may be empty.

        Raises:
            InvalidArgument: an argument is not possible.
            TopicDeleted: the topic was deleted, perhaps created again; get the queue from the log again.
            DiskFailed: the disk refused; nothing was taken.

        """
        a_whole_number(n, "n", least=1)
        clock = self._log.clock
        began = clock.monotonic()
        until = began + (duration(wait, what="wait") / MICROS if wait is not None else 0)
        tasks = self._taken(n)
        while not tasks and (now := clock.monotonic()) < until:
            bell.wait([self._bell], until - now, clock)
            tasks = self._taken(n)
        return tasks

    def _taken(self, count: int) -> list[Task]:
        """Take what is there; for the workers that have died is looked now and then only."""
        clock = self._log.clock
        instant = clock.monotonic()
        if instant - self._looked >= _OTHERS_SECONDS:
            self._looked = instant
            self._leases.free_gone()
        ends = self.topic.end_offsets()
        if not self._has_new(ends) and not self._leases.is_due(clock.now(), instant):
            return []
        if self._sorts:
            self._admit(ends)
        until = instant + self.options.lease / MICROS
        leases, dead = self._leases.take(
            count, until, now=clock.now(), instant=instant, ends={} if self._sorts else ends
        )
        if len(leases) == count:
            self._bell.ring()  # there may be more, and only one was woken
        try:
            if dead:
                self._bury()
            if any(lease.offset >= ends.get(lease.partition, 0) for lease in leases):
                ends = self.topic.end_offsets()  # others have looked later, and given back what they got
            tasks = self._reader.tasks(leases, ends)
        except BaseException:
            with suppress(HeadraceError):
                self._leases.uncount(leases)
            raise
        if len(tasks) < len(leases):
            there = {(task.partition, task.offset) for task in tasks}
            self._leases.forget([each for each in leases if (each.partition, each.offset) not in there])
        return tasks

    def _has_new(self, ends: Mapping[int, int]) -> bool:
        nexts = self._leases.next_offsets()
        if not ends.keys() <= nexts.keys():
            self._leases.begin()
            nexts = self._leases.next_offsets()
        new = any(end > nexts[partition] for partition, end in ends.items())
        return new and not (self._sorts and self._has_no_room())

    def _has_no_room(self) -> bool:
        """Tell whether enough records are put in order; they are counted now and then."""
        instant = self._log.clock.monotonic()
        if instant - self._counted >= _OTHERS_SECONDS:
            self._counted, self._room = instant, WINDOW - self._leases.count_ready()
        return self._room <= 0

    def _admit(self, ends: Mapping[int, int]) -> None:
        """Put new records to those that are put in order, up to the window."""
        if self._has_no_room():
            return
        room, self._room = self._room, 0
        options, starts = self.options, self.topic.start_offsets()
        records, nexts, known = [], {}, self._leases.next_offsets()
        for partition, end in ends.items():  # others may know more partitions
            start = max(known[partition], starts[partition])
            offsets = range(start, min(end, start + max(room // len(ends), 1)))
            if offsets:
                with suppress(OffsetOutOfRange):  # retention was faster: the next look begins after what it deleted
                    records += ordering(
                        self.topic,
                        partition,
                        offsets,
                        priority=options.priority,
                        not_before=options.not_before,
                        in_order=options.in_order,
                    )
                    nexts[partition] = offsets.stop
        if nexts:
            self._leases.admit(records, nexts)

    # ---- answering -------------------------------------------------------------------------------------

    def ack(self, tasks: Task | Iterable[Task]) -> None:
        """Finish records: they are never handed out again.

        Raises:
            LeaseLost: the lease of some had run out, and another worker has them or had them. The others are finished.

        """
        self._answered("acknowledged", tasks, self._leases.finish)

    def release(self, tasks: Task | Iterable[Task], *, delay: str | timedelta | None = None) -> None:
        """Give records back, for any worker to take, after a delay.

        Raises:
            LeaseLost: the lease of some had run out.

        """
        later = waiting_time(delay, what="delay") if delay is not None else 0
        self._answered("released", tasks, lambda leases: self._leases.release(leases, self._log.clock.now() + later))
        if not later:
            self._bell.ring()

    def reject(self, tasks: Task | Iterable[Task], reason: str = "rejected") -> None:
        """Send records to `<topic>.dead` with a reason.

        Raises:
            LeaseLost: the lease of some had run out.

        """
        a_text(reason, "reason")
        self._answered("rejected", tasks, lambda leases: self._leases.reject(leases, reason))
        self._bury()

    def renew(self, tasks: Task | Iterable[Task], lease: str | timedelta | None = None) -> None:
        """Let leases last for `lease` from now on, by default as long as at the beginning.

        Raises:
            LeaseLost: the lease of some had run out.

        """
        micros = self.options.lease if lease is None else waiting_time(lease, what="lease")
        until = self._log.clock.monotonic() + micros / MICROS
        self._answered("renewed", tasks, lambda leases: self._leases.renew(leases, until))

    def _answered(self, what: str, tasks: Task | Iterable[Task], change: Callable[[list[Lease]], list[Lease]]) -> None:
        those = list(tasks) if isinstance(tasks, Iterable) and not isinstance(tasks, Task) else [tasks]
        if not all(isinstance(task, Task) for task in those):
            raise InvalidArgument("only tasks that `take` has returned can be answered")
        leases = list(dict.fromkeys(task.lease for task in those))
        lost = change(leases)
        if self.options.in_order:
            self._bell.ring()  # the next of a key may be taken
        if lost:
            self._check_lost(leases, lost, what)

    def _check_lost(self, leases: Sequence[Lease], lost: Sequence[Lease], what: str) -> None:
        """Report lost records: those that a worker was given once more and answered with both leases are not."""
        places = dict.fromkeys((each.partition, each.offset) for each in leases)
        answered = {(each.partition, each.offset) for each in set(leases) - set(lost)}
        if missing := [place for place in places if place not in answered]:
            raise LeaseLost(self.topic.name, what, missing, len(places))

    # ---- looking ---------------------------------------------------------------------------------------

    def status(self) -> QueueStatus:
        """Return how many records are where."""
        counts, ends = self._leases.counts(self._log.clock.now()), self.topic.end_offsets()
        nexts, starts = self._leases.next_offsets(), self.topic.start_offsets()
        new = sum(end - max(nexts.get(number, 0), starts[number]) for number, end in ends.items())
        lost = self._leases.state.ask("SELECT value FROM facts WHERE name = 'lost'")
        return QueueStatus(new=new, **counts._asdict(), lost=lost[0][0] if lost else 0)

    def _bury(self) -> None:
        """Append dead records to the topic of dead letters, once, also after a crash in between."""
        while letters := self._leases.letters(self._last_letter):
            number = letters[0][0]
            reasons = {(partition, offset): reason for _, partition, offset, _, reason in letters}
            found = []
            for partition, batch in rows_at(self.topic, reasons, sealed=True):
                offsets = batch.column("_offset")
                texts = pa.array([reasons[partition, offset] for offset in offsets.to_pylist()], pa.string())
                rows = pa.Table.from_batches([batch.select(self.topic.schema.names)])
                partitions = pa.array([partition] * batch.num_rows, pa.int32())
                found.append(dead_letters(self.topic.name, partitions, offsets, texts, rows))
            if found:
                topic = dead_topic(self._log, self.topic.name)
                topic.append(pa.concat_tables(found), producer=self._producer, sequence=number)
            self._leases.buried(number)

    def _last_letter(self) -> int:
        """Return the number of the last letter that was appended before this worker's first, 0 if there was none.

        It is looked up once: the workers' file has the numbers that they have given since.
        """
        if self._letter is None:
            name = f"{self.topic.name}.dead"
            last = self._log.topic(name).last_sequence(self._producer) if self._log.has_topic(name) else None
            self._letter = last or 0
        return self._letter
