"""Who is in a group, who owns which partition, and what is committed, in a file that all members share.

A partition has an owner and somebody who is to have it. When they differ, the owner gives it up at its next poll, and
only then the other one takes it. So nobody stops for a partition that stays, and no partition has two owners. The
partitions of a member that is gone (its process died, or its session ran out) are given up for it.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, NamedTuple

from headrace.base.errors import MemberFenced
from headrace.log.groups.assigning import ASSIGNORS
from headrace.log.shared_state import Life, SharedState, is_gone

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    Place = tuple[str, int]

_NOBODY = ""
TABLES = (
    (
        "CREATE TABLE IF NOT EXISTS members (id TEXT PRIMARY KEY, topics TEXT NOT NULL, until REAL NOT NULL, "
        "pid INTEGER NOT NULL, assignor TEXT NOT NULL, joined INTEGER NOT NULL) WITHOUT ROWID"
    ),
    (
        "CREATE TABLE IF NOT EXISTS partitions (topic TEXT NOT NULL, partition INTEGER NOT NULL, "
        "topic_id TEXT NOT NULL, owner TEXT NOT NULL, wanted TEXT NOT NULL, committed INTEGER, "
        "PRIMARY KEY (topic, partition)) WITHOUT ROWID"
    ),
)
_FRESH = ("DELETE FROM members", "UPDATE partitions SET owner = '', wanted = ''")
_GENERATION = "SELECT value FROM facts WHERE name = 'generation'"


class TopicSize(NamedTuple):
    """A topic: its identity, and how many partitions it has."""

    id: str
    partitions: int


class Membership:
    """A member's view of its group.

    Args:
        folder: of the group.
        name: of the group.
        topics: what the member wants.
        assignor: how partitions are shared; that of the member who joined last decides.
        session: seconds without a sign of life after which a member is gone.

    """

    def __init__(self, folder: Path, name: str, *, topics: Sequence[str], assignor: str, session: float) -> None:
        self.name, self.topics, self.assignor, self.session = name, tuple(topics), assignor, session
        self._alive = folder / "alive"
        self.state = SharedState(folder / "group.db", TABLES, fresh=_FRESH, alive=self._alive)
        self.life: Life | None = None

    @property
    def id(self) -> str:
        """The member's id; empty: it has not joined."""
        return self.life.id if self.life is not None else _NOBODY

    def join(self, sizes: Mapping[str, TopicSize], instant: float) -> None:
        """Become a member, with an id that nobody has had."""
        self.life = Life(self._alive)
        with self.state.change() as sql:
            sql.execute(
                "INSERT INTO members SELECT ?, ?, ?, ?, ?, 1 + coalesce(max(joined), 0) FROM members",
                [self.id, json.dumps(self.topics), instant + self.session, os.getpid(), self.assignor],
            )
            self._share(sql, sizes, instant)

    def leave(self, instant: float) -> None:
        """Be no member any more, whatever fails; the others get its partitions, also where its topics are gone."""
        if self.life is None:
            return
        try:
            with self.state.change() as sql:
                _remove(sql, [self.id])
                self._share(sql, {}, instant)
        finally:
            self.forget()

    def forget(self) -> None:
        """Stop being a member that the others have removed."""
        if self.life is not None:
            self.life.end()
            self.life = None

    def beat(self, instant: float) -> bool:
        """Give a sign of life; return False where it came too late."""
        with self.state.change() as sql:
            update = "UPDATE members SET until = ? WHERE id = ? AND until > ?"
            return bool(sql.execute(update, [instant + self.session, self.id, instant]).rowcount)

    def generation(self) -> int:
        """Return how often the partitions were shared."""
        found = self.state.ask(_GENERATION)
        return int(found[0][0]) if found else 0

    def look(self, sizes: Mapping[str, TopicSize], instant: float) -> None:
        """Share the partitions anew where a member is gone, or a topic has got more partitions."""
        members = self.state.ask("SELECT id, until FROM members")
        gone = any(until <= instant or (is_gone(self._alive, each)) for each, until in members)
        known = dict(self.state.ask("SELECT topic, count(*) FROM partitions GROUP BY topic"))
        ids = dict(self.state.ask("SELECT topic, max(topic_id) FROM partitions GROUP BY topic"))
        if gone or any(known.get(topic) != size.partitions or ids[topic] != size.id for topic, size in sizes.items()):
            with self.state.change() as sql:
                self._share(sql, sizes, instant)

    def owned(self) -> dict[Place, int | None]:
        """Return the partitions that the member owns, with their commits."""
        rows = self.state.ask("SELECT topic, partition, committed FROM partitions WHERE owner = ?", (self.id,))
        return {(topic, partition): committed for topic, partition, committed in rows}

    def to_give_up(self) -> list[Place]:
        """Return the partitions that the member owns and others are to have."""
        query = "SELECT topic, partition FROM partitions WHERE owner = ? AND wanted <> owner"
        return self.state.ask(query, (self.id,))

    def give_up(self, places: Sequence[Place]) -> None:
        """Let others take partitions."""
        with self.state.change() as sql:
            sql.executemany(
                "UPDATE partitions SET owner = '' WHERE topic = ? AND partition = ? AND owner = ?",
                [(*place, self.id) for place in places],
            )

    def take(self) -> dict[Place, int | None]:
        """Own what the member is to have and nobody owns; return the commits."""
        query = "SELECT topic, partition, committed FROM partitions WHERE owner = '' AND wanted = ?"
        if not self.state.ask(query, (self.id,)):
            return {}
        with self.state.change() as sql:
            found = sql.execute(query, [self.id]).fetchall()
            sql.execute("UPDATE partitions SET owner = wanted WHERE owner = '' AND wanted = ?", [self.id])
        return {(topic, partition): committed for topic, partition, committed in found}

    def commit(self, offsets: Mapping[Place, int], instant: float) -> None:
        """Store the next offsets of partitions that the member owns: all or none.

        Raises:
            MemberFenced: it owns one of them no more, or its session has run out.

        """
        with self.state.change() as sql:
            alive = sql.execute("SELECT 1 FROM members WHERE id = ? AND until > ?", [self.id, instant]).fetchone()
            update = "UPDATE partitions SET committed = ? WHERE topic = ? AND partition = ? AND owner = ?"
            lost = [
                place
                for place, offset in offsets.items()
                if not alive or not sql.execute(update, [offset, *place, self.id]).rowcount
            ]
            if lost:
                raise MemberFenced(self.name, lost)

    def committed(self) -> dict[Place, int | None]:
        """Return all commits of the group."""
        rows = self.state.ask("SELECT topic, partition, committed FROM partitions")
        return {(topic, partition): committed for topic, partition, committed in rows}

    def reset(self, offsets: Mapping[Place, int], ids: Mapping[str, str]) -> None:
        """Set commits of a group that has no members, also of partitions that it has not read; `ids`: of the topics."""
        with self.state.change() as sql:
            for topic in sorted({topic for topic, _ in offsets}):
                _remove_others(sql, topic, ids[topic])
            sql.executemany(
                "INSERT INTO partitions VALUES (?, ?, ?, '', '', ?) "
                "ON CONFLICT (topic, partition) DO UPDATE SET committed = excluded.committed",
                [(topic, partition, ids[topic], offset) for (topic, partition), offset in offsets.items()],
            )

    def close(self) -> None:
        """Close the file."""
        self.state.close()

    def _share(self, sql: sqlite3.Connection, sizes: Mapping[str, TopicSize], instant: float) -> None:
        """Remove members that are gone, and say who is to have which partition."""
        members = sql.execute("SELECT id, topics, until, assignor FROM members ORDER BY joined").fetchall()
        gone = {member for member, _, until, _ in members if until <= instant or is_gone(self._alive, member)}
        _remove(sql, sorted(gone))
        here = {member: json.loads(topics) for member, topics, _, _ in members if member not in gone}
        for topic, size in sizes.items():
            _remove_others(sql, topic, size.id)
            sql.executemany(
                "INSERT OR IGNORE INTO partitions VALUES (?, ?, ?, '', '', NULL)",
                [(topic, number, size.id) for number in range(size.partitions)],
            )
        rows = sql.execute("SELECT topic, partition, wanted FROM partitions").fetchall()
        before = {(topic, partition): wanted for topic, partition, wanted in rows}
        assignor = next((name for member, _, _, name in reversed(members) if member in here), self.assignor)
        wanted = ASSIGNORS[assignor](list(before), here, before)
        sql.executemany(
            "UPDATE partitions SET wanted = ? WHERE topic = ? AND partition = ?",
            [(wanted.get(place, _NOBODY), *place) for place in before],
        )
        sql.execute("INSERT OR IGNORE INTO facts VALUES ('generation', 0)")
        sql.execute("UPDATE facts SET value = value + 1 WHERE name = 'generation'")


def _remove(sql: sqlite3.Connection, members: Sequence[str]) -> None:
    sql.executemany("DELETE FROM members WHERE id = ?", [(each,) for each in members])
    sql.executemany("UPDATE partitions SET owner = '' WHERE owner = ?", [(each,) for each in members])


def _remove_others(sql: sqlite3.Connection, topic: str, topic_id: str) -> None:
    """Forget a topic that was deleted and created again: it has other records, so its commits mean nothing."""
    sql.execute("DELETE FROM partitions WHERE topic = ? AND topic_id <> ?", [topic, topic_id])
