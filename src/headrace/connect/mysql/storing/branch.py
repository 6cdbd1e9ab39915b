"""A database of MariaDB in an epoch of several databases: XA PREPARE, then XA COMMIT.

A prepared branch belongs to its connection until that one has ended: `XA RECOVER` shows it to all, but nobody else can
end it, and is told that there is none. The connection has the writer's lock as well, by which it is found.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pymysql

from headrace.base.outside import Unavailable
from headrace.connect.mysql.storing.errors import code_of
from headrace.connect.mysql.storing.writer import PATIENCE, MysqlWriter, run, unlock
from headrace.connect.store import StoreDiffers
from headrace.connect.two_phase import Naming

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    import pyarrow as pa

    from headrace.connect.mysql.address import MysqlAddress
    from headrace.connect.two_phase import Doubt

_UNKNOWN, _ROLLED_BACK = 1397, 1402


def check_two_phase(address: MysqlAddress) -> None:
    """Check that a server's prepared transactions survive the connection that prepared them.

    Raises:
        StoreDiffers: they do not: it is a node of a Galera cluster, which has no XA.
        Unavailable: the server does not answer.

    """
    with address.connected() as sql:
        found = run(sql, "SHOW VARIABLES LIKE 'wsrep_on'")
    if found and found[0][1] == "ON":
        raise StoreDiffers(
            f"{address} is a node of a Galera cluster, which has no prepared transactions (XA)",
            hint="Write to it alone, without two_phase: mysql.upsert(url, …).",
        )


class MysqlBranch(MysqlWriter):
    """Prepares epochs, and ends what is prepared."""

    opening_wait = PATIENCE  # a branch that is prepared meanwhile keeps the mark locked: it is resolved first

    @property
    def place(self) -> str:
        """The database."""
        return str(self.address)

    @property
    def names(self) -> Collection[str]:
        """The names of its sinks."""
        return self.tables

    @property
    def naming(self) -> Naming:
        """The names of its transactions."""
        return Naming.of(self.writer, self.place)

    def mark(self) -> int:
        """Return the epoch that is committed here, -1 for none."""
        with self.connected(-1) as sql:
            return self.mark_of(sql)

    def in_doubt(self) -> list[Doubt]:
        """Return the transactions that are prepared, by this writer or by older ones."""
        with self.connected(-1) as sql:
            return self.naming.doubts(_prepared(sql), upto=self.generation)

    def prepare(self, epoch: int, rows: Mapping[str, Iterator[pa.RecordBatch]]) -> None:
        """Write an epoch and prepare its transaction; nothing where it is committed already."""
        name = self.naming.name(self.generation, epoch)
        with self.connected(epoch) as sql:
            self.lock(sql)
            run(sql, "XA START %s", [name])
            there = self.take(sql) >= epoch
            if not there:
                self.write(sql, epoch, rows)
                self.set_mark(sql, epoch)
            run(sql, "XA END %s", [name])
            if there:
                run(sql, "XA ROLLBACK %s", [name])
                unlock(sql)
            else:
                run(sql, "XA PREPARE %s", [name])

    def end(self, doubt: Doubt, *, commit: bool) -> bool:
        """Commit or roll back a prepared transaction; return whether it was there.

        Raises:
            Unavailable: the connection that has it cannot be ended.

        """
        with self.connected(doubt.epoch) as sql:
            if not self._end(sql, doubt.name, commit=commit):
                if doubt.name not in _prepared(sql):
                    return False
                if not self.locked(sql, PATIENCE):
                    self.end_holder(sql)
                    self.lock(sql)
                if not self._end(sql, doubt.name, commit=commit) and doubt.name in _prepared(sql):
                    raise Unavailable(
                        f"{self.place} has a prepared transaction that another connection holds: {doubt.name}",
                        hint="SHOW PROCESSLIST, then KILL that connection. It is tried again.",
                    )
            unlock(sql)
        return True

    def _end(self, sql: pymysql.Connection[Any], name: str, *, commit: bool) -> bool:
        try:
            run(sql, f"XA {'COMMIT' if commit else 'ROLLBACK'} %s", [name])
        except pymysql.Error as error:
            if code_of(error) not in {_UNKNOWN, _ROLLED_BACK}:
                raise
            return False
        return True


def _prepared(sql: pymysql.Connection[Any]) -> list[str]:
    """Return the names of what is prepared on the server, that of live connections included."""
    return [bytes(data).decode(errors="replace") for *_, data in run(sql, "XA RECOVER")]
