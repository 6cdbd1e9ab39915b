"""The records of a queue that are not finished, in a file that all its workers share.

A partition's records before `next` that are in no table are finished. So acknowledging a record deletes its row, and
what is kept is bounded by what is in work.

New records that are leased together are one row of `spans`, whatever their number. It becomes a row of `work` for each
record as soon as these differ: some are answered and others are not, or they come back.

All of it is of one topic, whose id is in the file: a topic that is deleted and created again has other records.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.base.errors import TopicDeleted
from headrace.log.shared_state import Life, SharedState, is_gone

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from headrace.log.topic import Topic

    _OfSpan = Callable[[sqlite3.Connection, tuple[int, int], range], bool]

READY, LEASED, DEAD = range(3)
_NOBODY = ""
TABLES = (
    "CREATE TABLE IF NOT EXISTS progress (partition INTEGER PRIMARY KEY, next INTEGER NOT NULL)",
    (
        "CREATE TABLE IF NOT EXISTS work ("
        "partition INTEGER NOT NULL, offset INTEGER NOT NULL, state INTEGER NOT NULL, deliveries INTEGER NOT NULL, "
        "at INTEGER NOT NULL, until REAL NOT NULL, holder TEXT NOT NULL, token INTEGER NOT NULL, "
        "priority INTEGER NOT NULL, key INTEGER, reason TEXT, letter INTEGER, "
        "PRIMARY KEY (partition, offset)) WITHOUT ROWID"
    ),
    (
        "CREATE TABLE IF NOT EXISTS spans (token INTEGER NOT NULL, partition INTEGER NOT NULL, start INTEGER NOT NULL, "
        "stop INTEGER NOT NULL, until REAL NOT NULL, holder TEXT NOT NULL, PRIMARY KEY (token, partition)) "
        "WITHOUT ROWID"
    ),
    "CREATE INDEX IF NOT EXISTS by_state ON work (state, priority DESC, offset, partition)",
    "CREATE INDEX IF NOT EXISTS by_key ON work (partition, key, offset)",
    f"CREATE INDEX IF NOT EXISTS came_back ON work (deliveries) WHERE state = {READY} AND deliveries > 0",
)
_SPLIT = (
    (
        "INSERT INTO work (partition, offset, state, deliveries, at, until, holder, token, priority, key) "
        "WITH RECURSIVE each (partition, offset, stop, until, holder, token) AS ("
        "SELECT partition, start, stop, until, holder, token FROM spans WHERE {0} UNION ALL "
        "SELECT partition, offset + 1, stop, until, holder, token FROM each WHERE offset + 1 < stop) "
        f"SELECT partition, offset, {LEASED}, 1, 0, until, holder, token, 0, NULL FROM each"
    ),
    "DELETE FROM spans WHERE {0}",
)
"""Make rows of `work` of the spans that meet a condition."""
_FORGET = ("DELETE FROM progress", "DELETE FROM work", "DELETE FROM spans", "DELETE FROM facts WHERE name = 'lost'")
"""What is of a former topic. The number of the last letter is not: the topic of dead letters may still be there."""
_FREE = f"UPDATE work SET state = {READY}, holder = '' WHERE state = {LEASED}"
_FRESH = (*(each.format("TRUE") for each in _SPLIT), _FREE)
_HAS_OLD = "SELECT EXISTS (SELECT 1 FROM work) OR EXISTS (SELECT 1 FROM spans WHERE until <= ?)"
_ADMIT = (
    "INSERT OR IGNORE INTO work (partition, offset, state, deliveries, at, until, holder, token, priority, key) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_ALONE = (  # nothing of the same key that came before is unfinished
    "AND (w.key IS NULL OR NOT EXISTS (SELECT 1 FROM work e INDEXED BY by_key WHERE e.partition = w.partition "
    f"AND e.key = w.key AND e.offset < w.offset AND e.state < {DEAD})) "
)
_SPAN = "token = ? AND partition = ?"
_MINE = f"partition = ? AND offset = ? AND token = ? AND state = {LEASED}"


class Lease(NamedTuple):
    """A record that was leased: its place, how often it was delivered, and what proves the lease."""

    partition: int
    offset: int
    deliveries: int
    token: int


class _NewLease(NamedTuple):
    until: float
    token: int


class Admitted(NamedTuple):
    """A record that is put to the others: when it may be taken (microseconds since 1970), its priority and its key."""

    partition: int
    offset: int
    at: int
    priority: int
    key: int | None


class Counts(NamedTuple):
    """What is in work."""

    ready: int
    delayed: int
    leased: int
    dead: int


class Leases:
    """Who works on what.

    Args:
        folder: of the queue.
        topic: whose records they are.
        limit: a record that was delivered so often, and comes back, is dead.
        in_order: whether records of one key are leased one after the other.

    """

    def __init__(self, folder: Path, topic: Topic, *, limit: int, in_order: bool) -> None:
        self.topic, self.limit, self.in_order = topic, limit, in_order
        self._alive = folder / "alive"
        self.state = SharedState(folder / "queue.db", TABLES, fresh=_FRESH, alive=self._alive)
        self.life = Life(self._alive)
        self._turn = 0

    def close(self) -> None:
        """Give back what this worker holds; the deliveries count."""
        with self.state.change() as sql:
            _free(sql, "holder = ?", self.life.id)
        self.state.close()
        self.life.end()

    def next_offsets(self) -> dict[int, int]:
        """Return the offset from which on nothing has been looked at, by partition."""
        return dict(self.state.ask("SELECT partition, next FROM progress"))

    def begin(self) -> None:
        """Note where partitions begin that the queue does not know.

        Where the file is of a former topic of this name, all that it has of it is forgotten; a file of an earlier
        release, which does not say so, is of this one.

        Raises:
            TopicDeleted: the topic is gone.

        """
        known = self.next_offsets() if self.state.ask(TOPIC) == [(self.topic.id,)] else {}
        if self.topic.start_offsets().keys() <= known.keys():
            return
        with self.state.change() as sql:
            starts = self.topic.start_offsets()  # in our turn: a former topic raises before the file becomes its own
            of = sql.execute(TOPIC).fetchone()
            if of and of[0] != self.topic.id:
                for statement in _FORGET:
                    sql.execute(statement)
            sql.execute("INSERT OR REPLACE INTO facts VALUES ('topic', ?)", [self.topic.id])
            sql.executemany("INSERT OR IGNORE INTO progress VALUES (?, ?)", starts.items())

    def _check_topic(self, sql: sqlite3.Connection) -> None:
        """Refuse to change offsets for a worker that knows those of the former topic only."""
        if sql.execute(TOPIC).fetchone() != (self.topic.id,):
            raise TopicDeleted(
                f'the topic "{self.topic.name}" was deleted and created again', hint="Ask the log for its queue again."
            )

    def is_due(self, now: int, instant: float) -> bool:
        """Tell whether something is ready, or comes back: its lease has run out."""
        query = (
            f"SELECT EXISTS (SELECT 1 FROM work WHERE state = {READY} AND at <= ?) "
            f"OR EXISTS (SELECT 1 FROM work WHERE state = {LEASED} AND until <= ?) "
            f"OR EXISTS (SELECT 1 FROM work WHERE state = {DEAD}) "
            "OR EXISTS (SELECT 1 FROM spans WHERE until <= ?)"
        )
        return bool(self.state.ask(query, (now, instant, instant))[0][0])

    def free_gone(self) -> int:
        """Give back what workers held whose processes have died; return how many records."""
        query = f"SELECT holder FROM work WHERE state = {LEASED} UNION SELECT holder FROM spans"
        holders = self.state.ask(query)
        gone = [holder for (holder,) in holders if holder != self.life.id and is_gone(self._alive, holder)]
        if not gone:
            return 0
        with self.state.change() as sql:
            return sum(_free(sql, "holder = ?", holder) for holder in gone)

    def take(
        self, count: int, until: float, *, now: int, instant: float, ends: Mapping[int, int]
    ) -> tuple[list[Lease], bool]:
        """Lease what is ready, then what is new up to `ends`, in the order of its offsets.

        The result says, too, whether some may be dead.

        Args:
            count: so many at most.
            until: when the lease runs out, in seconds of the monotonic clock.
            now: microseconds since 1970.
            instant: seconds of the monotonic clock.
            ends: where new records of partitions end; empty where they are admitted first.

        Raises:
            TopicDeleted: the topic was deleted and created again, and the queue was opened anew.

        """
        new = _NewLease(until, secrets.randbits(62))
        with self.state.change() as sql:
            self._check_topic(sql)
            old = sql.execute(_HAS_OLD, [instant]).fetchone()[0]
            leased = self._old(sql, count, new, now=now, instant=instant) if old else []
            if len(leased) < count and ends:
                leased += self._new(sql, count - len(leased), new, ends)
        return leased, bool(old)

    def _old(self, sql: sqlite3.Connection, count: int, new: _NewLease, *, now: int, instant: float) -> list[Lease]:
        """Lease records that somebody has looked at; what has run out is ready before, what came too often is dead."""
        _free(sql, "until <= ?", instant)
        sql.execute(
            f"UPDATE work INDEXED BY came_back SET state = {DEAD}, "
            "reason = 'delivered ' || deliveries || ' times, never acknowledged' "
            f"WHERE state = {READY} AND deliveries > 0 AND deliveries >= ?",
            [self.limit],
        )
        found = sql.execute(
            f"SELECT w.partition, w.offset, w.deliveries + 1 FROM work w WHERE w.state = {READY} AND w.at <= ? "
            f"{_ALONE if self.in_order else ''}ORDER BY w.priority DESC, w.offset, w.partition LIMIT ?",
            [now, count],
        ).fetchall()
        sql.executemany(
            f"UPDATE work SET state = {LEASED}, deliveries = deliveries + 1, until = ?, holder = ?, token = ? "
            "WHERE partition = ? AND offset = ?",
            [(new.until, self.life.id, new.token, partition, offset) for partition, offset, _ in found],
        )
        return [Lease(partition, offset, deliveries, new.token) for partition, offset, deliveries in found]

    def _new(self, sql: sqlite3.Connection, count: int, new: _NewLease, ends: Mapping[int, int]) -> list[Lease]:
        """Lease records that nobody has looked at: of one partition after the other, each time from another one on."""
        self._turn += 1
        progress = _progress(sql)
        spans: list[tuple[int, range]] = []
        for number in range(len(progress)):
            partition, start = progress[(number + self._turn) % len(progress)]
            if offsets := range(start, ends.get(partition, start))[:count]:
                spans.append((partition, offsets))
                count -= len(offsets)
        sql.executemany(
            "INSERT INTO spans VALUES (?, ?, ?, ?, ?, ?)",
            [(new.token, partition, each.start, each.stop, new.until, self.life.id) for partition, each in spans],
        )
        sql.executemany(
            "UPDATE progress SET next = ? WHERE partition = ?", [(each.stop, partition) for partition, each in spans]
        )
        return [Lease(partition, offset, 1, new.token) for partition, offsets in spans for offset in offsets]

    def admit(self, records: Sequence[Admitted], nexts: Mapping[int, int]) -> None:
        """Put records to the others that are ready; `nexts`: from which offsets on they were read, and up to which.

        Another worker may have put them there meanwhile; those that it has finished do not come back.

        Raises:
            TopicDeleted: the topic was deleted and created again, and the queue was opened anew.

        """
        with self.state.change() as sql:
            self._check_topic(sql)
            known = dict(_progress(sql))
            fresh = [each for each in records if each.offset >= known[each.partition]]
            sql.executemany(
                _ADMIT,
                [
                    (each.partition, each.offset, READY, 0, each.at, 0.0, _NOBODY, 0, each.priority, each.key)
                    for each in fresh
                ],
            )
            sql.executemany(
                "UPDATE progress SET next = max(next, ?) WHERE partition = ?",
                [(following, partition) for partition, following in nexts.items()],
            )

    def count_ready(self) -> int:
        """Return how many records are ready or delayed."""
        return int(self.state.ask(f"SELECT count(*) FROM work WHERE state = {READY}")[0][0])

    def finish(self, leases: Iterable[Lease]) -> list[Lease]:
        """Finish records; return those whose lease another worker has."""
        return self._each(f"DELETE FROM work WHERE {_MINE}", (), leases, _finish_span)

    def release(self, leases: Iterable[Lease], at: int) -> list[Lease]:
        """Give records back, to be taken from a time on (microseconds since 1970); return those that were lost."""
        return self._each(f"UPDATE work SET state = {READY}, holder = '', at = ? WHERE {_MINE}", (at,), leases)

    def renew(self, leases: Iterable[Lease], until: float) -> list[Lease]:
        """Let leases last until a later time (seconds of the monotonic clock); return those that were lost."""

        def of_span(sql: sqlite3.Connection, place: tuple[int, int], offsets: range) -> bool:
            update = f"UPDATE spans SET until = ? WHERE {_SPAN} AND stop = ?"
            return bool(sql.execute(update, (until, *place, offsets.stop)).rowcount)

        return self._each(f"UPDATE work SET until = ? WHERE {_MINE}", (until,), leases, of_span)

    def uncount(self, leases: Iterable[Lease]) -> None:
        """Do not count a delivery of records that nobody was given; they come again when their lease runs out."""
        self._each(f"UPDATE work SET deliveries = deliveries - 1 WHERE {_MINE}", (), leases)

    def reject(self, leases: Iterable[Lease], reason: str) -> list[Lease]:
        """Make records dead; return those that were lost."""
        update = f"UPDATE work SET state = {DEAD}, holder = '', reason = ? WHERE {_MINE}"
        return self._each(update, (reason,), leases)

    def _each(
        self, statement: str, values: tuple[Any, ...], leases: Iterable[Lease], of_span: _OfSpan | None = None
    ) -> list[Lease]:
        """Change records; `of_span` does the same to the first records of a span, and says whether it could."""
        together: dict[tuple[int, int], list[Lease]] = {}
        for each in leases:
            together.setdefault((each.token, each.partition), []).append(each)
        lost: list[Lease] = []
        with self.state.change() as sql:
            for place, some in together.items():
                span = sql.execute(f"SELECT start, stop FROM spans WHERE {_SPAN}", place).fetchone()
                if span:
                    offsets = range(span[0], min(span[1], span[0] + len(some)))
                    if of_span and sorted(each.offset for each in some) == [*offsets] and of_span(sql, place, offsets):
                        continue
                    _split(sql, _SPAN, *place)
                lost += [
                    each
                    for each in some
                    if not sql.execute(statement, (*values, each.partition, each.offset, each.token)).rowcount
                ]
        return lost

    def letters(self, last: Callable[[], int]) -> list[tuple[int, int, int, int, str]]:
        """Return the dead records that are to become dead letters: letter, partition, offset, deliveries, reason.

        Those of a letter are appended together; it is a number that grows. A letter that a process did not finish
        comes again with the same records and the same number.

        Args:
            last: returns the number of the last letter in the topic of dead letters. It may be more than this file
                knows, which somebody removed, or which is older after a power loss; an append of an older number than
                that would be dropped.

        """
        if not self.state.ask(f"SELECT 1 FROM work WHERE state = {DEAD} LIMIT 1"):
            return []
        appended = last()
        with self.state.change() as sql:
            found = sql.execute("SELECT value FROM facts WHERE name = 'letter'").fetchone()
            open_letter = sql.execute(f"SELECT min(letter) FROM work WHERE state = {DEAD}").fetchone()[0]
            letter = open_letter if open_letter is not None else max(found[0] if found else 0, appended) + 1
            if open_letter is None:
                sql.execute(f"UPDATE work SET letter = ? WHERE state = {DEAD}", [letter])
                sql.execute("INSERT OR REPLACE INTO facts VALUES ('letter', ?)", [letter])
            return sql.execute(
                f"SELECT letter, partition, offset, deliveries, reason FROM work WHERE state = {DEAD} AND letter = ? "
                "ORDER BY partition, offset",
                [letter],
            ).fetchall()

    def buried(self, letter: int) -> None:
        """Forget the records of a letter, which is in the topic of dead letters."""
        with self.state.change() as sql:
            sql.execute("DELETE FROM work WHERE letter = ?", [letter])

    def forget(self, missing: Sequence[Lease]) -> None:
        """Forget leased records that the topic does not have any more, and count them."""
        self.finish(missing)
        with self.state.change() as sql:
            sql.execute("INSERT OR IGNORE INTO facts VALUES ('lost', 0)")
            sql.execute("UPDATE facts SET value = value + ? WHERE name = 'lost'", [len(missing)])

    def counts(self, now: int) -> Counts:
        """Return what is in work."""
        return counted(self.state.ask(COUNTS, (now, now))[0])


TOPIC = "SELECT value FROM facts WHERE name = 'topic'"
"""The id of the topic that the rest is of."""
COUNTS = (
    f"SELECT sum(state = {READY} AND at <= ?), sum(state = {READY} AND at > ?), "
    f"ifnull(sum(state = {LEASED}), 0) + (SELECT ifnull(sum(stop - start), 0) FROM spans), sum(state = {DEAD}) "
    "FROM work"
)


def counted(row: Sequence[int | None]) -> Counts:
    """Return the counts of the query `COUNTS`."""
    return Counts(*(each or 0 for each in row))


def _progress(sql: sqlite3.Connection) -> list[tuple[int, int]]:
    return sql.execute("SELECT partition, next FROM progress ORDER BY partition").fetchall()


def _split(sql: sqlite3.Connection, condition: str, *values: object) -> None:
    for statement in _SPLIT:
        sql.execute(statement.format(condition), values)


def _free(sql: sqlite3.Connection, condition: str, value: object) -> int:
    """Give back what is leased and meets a condition; return how many records."""
    _split(sql, condition, value)
    return sql.execute(f"{_FREE} AND {condition}", [value]).rowcount


def _finish_span(sql: sqlite3.Connection, place: tuple[int, int], offsets: range) -> bool:
    if not sql.execute(f"DELETE FROM spans WHERE {_SPAN} AND stop = ?", (*place, offsets.stop)).rowcount:
        sql.execute(f"UPDATE spans SET start = ? WHERE {_SPAN}", (offsets.stop, *place))
    return True
