"""Events of the log as columns: for each table the rows that transactions upserted and deleted, in order."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.base.blame import InternalError
from headrace.base.schema import TIMESTAMP
from headrace.connect.capture.cells import moved
from headrace.connect.capture.errors import ChangesLost, NotCapturable
from headrace.connect.capture.source import SOURCE_TYPE
from headrace.connect.mysql import kernels
from headrace.connect.mysql.kernels import KIND, QUERY, ROWS, TABLE, TABLE_MAP, TRANSACTION, WHOLE, WIDTH
from headrace.connect.mysql.statements import effect_of, read_statement
from headrace.connect.mysql.table_map import TableMap, parse
from headrace.connect.mysql.values import logged

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    import numpy.typing as npt

    from headrace.connect.capture.cells import Longs
    from headrace.connect.mysql.catalogue import CapturedTable
    from headrace.connect.mysql.stream import Received

_ROW_KINDS = (*kernels.WRITES, *kernels.UPDATES, *kernels.DELETES)
_COMPRESSED = range(165, 172)
_XA = re.compile(r"XA COMMIT (X'\w*',X'\w*')")


@dataclass(slots=True)
class Changes:
    """The changes of a table with one set of columns, in the order of the log."""

    topic: str
    names: tuple[str, ...]
    columns: dict[str, pa.Array]
    deleted: npt.NDArray[np.bool_]
    event: Longs
    """The number of the event of each row."""
    transaction: Longs
    """The number of each row's transaction in `Decoded`."""


@dataclass(slots=True)
class Decoded:
    """What whole transactions did."""

    changes: list[Changes] = field(default_factory=list)
    truncated: list[tuple[int, str]] = field(default_factory=list)
    """Events that removed all rows of a topic's table."""
    untold: list[tuple[int, str]] = field(default_factory=list)
    """Events that changed rows of a topic's table, and do not say which."""
    transactions: Longs = field(default_factory=lambda: np.empty((1, kernels.TRANSACTION_FIELDS), np.int64))
    files: Mapping[int, str] = field(default_factory=dict)

    @property
    def gtids(self) -> dict[int, tuple[int, int]]:
        """Return the last transaction of each domain."""
        about = self.transactions[1:]
        domains, last = np.unique(about[::-1, kernels.DOMAIN], return_index=True)
        found = about[len(about) - 1 - last]
        return {
            int(domain): (int(each[kernels.SERVER]), int(each[kernels.SEQUENCE]))
            for domain, each in zip(domains, found, strict=True)
        }

    @property
    def committed(self) -> int | None:
        """Return when the last transaction was written, in microseconds since 1970; None if there was none."""
        return int(self.transactions[-1, kernels.COMMITTED]) * 1_000_000 if len(self.transactions) > 1 else None

    def source(self, numbers: Longs) -> pa.Array:
        """Return the column `_source` for rows of some transactions."""
        unique, place = np.unique(numbers, return_inverse=True)
        about = self.transactions[unique]
        places = [f"{self.files[int(each[kernels.FILE])]}:{each[kernels.POSITION]}" for each in about]
        gtids = ["-".join(str(each[n]) for n in (kernels.DOMAIN, kernels.SERVER, kernels.SEQUENCE)) for each in about]
        committed = pa.array(about[:, kernels.COMMITTED] * 1_000_000).cast(TIMESTAMP)
        parts = [pa.array(places, pa.string()), pa.array(gtids, pa.string()), committed]
        return pa.StructArray.from_arrays(parts, fields=list(SOURCE_TYPE)).take(pa.array(place))


class Decoder:
    """Decodes events of one connection. `tables`: by topic; `charsets`: as `server.charsets` returns."""

    def __init__(self, tables: Mapping[str, CapturedTable], charsets: Mapping[int, str]) -> None:
        self._topics = {(each.schema, each.name): topic for topic, each in tables.items()}
        self._tables = tables
        self._charsets = charsets
        self._parsed: dict[bytes, TableMap | None] = {}
        self._prepared: dict[str, set[str]] = {}
        """The topics that each prepared transaction changes."""

    def decode(self, received: Received, wanted: Mapping[str, Collection[str]]) -> Decoded:
        """Return what whole transactions did. `wanted`: by topic the columns that are read.

        Raises:
            NotCapturable: the server logs less than is needed; the hint has the statement.
            ChangesLost: a transaction cannot be read.

        """
        result = Decoded(transactions=received.transactions, files=received.files)
        kinds = received.events[:, KIND]
        if (kinds == kernels.INCIDENT).any():
            raise ChangesLost("the captured tables", "the server says that its log lacks events (an incident)")
        if np.isin(kinds, _COMPRESSED).any():
            raise NotCapturable("the server compresses its log", hint="SET GLOBAL log_bin_compress = OFF; then …")
        for table, events in self._by_table(received):
            topic = self._topics[table.schema, table.name]
            result.changes.append(self._changes(received, topic, table, events, wanted[topic]))
        self._hold_prepared(received, result)
        self._read_statements(received, result)
        return result

    def _by_table(self, received: Received) -> Iterator[tuple[TableMap, Longs]]:
        """Return the events with rows of each captured table, by what it was when they were logged."""
        events = received.events
        is_row = np.isin(events[:, KIND], _ROW_KINDS)
        if not is_row.any():
            return
        described: dict[int, list[tuple[int, TableMap | None]]] = {}
        for number in np.flatnonzero(events[:, KIND] == TABLE_MAP):
            table, known = (
                self._table(received.content(int(number))),
                described.setdefault(int(events[number, TABLE]), []),
            )
            if not known or known[-1][1] is not table:  # a restarted server gives numbers anew, to other tables
                known.append((int(number), table))
        grouped: dict[int, tuple[TableMap, list[Longs]]] = {}
        for table_id, versions in described.items():
            rows = np.flatnonzero(is_row & (events[:, TABLE] == table_id))
            version = np.searchsorted([start for start, _ in versions], rows, side="right") - 1
            for each in np.unique(version[version >= 0]):
                table = versions[each][1]
                if table is not None:
                    grouped.setdefault(id(table), (table, []))[1].append(rows[version == each])
        for table, parts in grouped.values():
            yield table, np.sort(np.concatenate(parts))

    def _table(self, content: bytes) -> TableMap | None:
        """Return the description of a table, None if it is not captured."""
        if content not in self._parsed:
            schema_end = 9 + content[8]
            name_end = schema_end + 2 + content[schema_end + 1]
            where = content[9:schema_end].decode(), content[schema_end + 2 : name_end].decode()
            self._parsed[content] = parse(content, self._charsets) if where in self._topics else None
        return self._parsed[content]

    def _changes(
        self, received: Received, topic: str, table: TableMap, numbers: Longs, wanted: Collection[str]
    ) -> Changes:
        events, full = received.events[numbers], f"{table.schema}.{table.name}"
        if table.unknown is not None:
            raise NotCapturable(
                f'{full}, column "{table.unknown}": the log has values of this type in a form that is not read',
                hint=f"ALTER TABLE {full} FORCE writes old dates anew; a COMPRESSED column must be MODIFYed.",
            )
        if not events[:, WHOLE].all():
            raise NotCapturable(
                f"the log has parts of changed rows of {full} only", hint="SET GLOBAL binlog_row_image = FULL"
            )
        if (events[:, WIDTH] != len(table.columns)).any():
            raise InternalError(f"rows of {full} have other columns than their table")
        shape = np.array([each.shape for each in table.columns], np.int64)
        bounds = np.ascontiguousarray(events[:, [ROWS, kernels.END]])
        counts = np.empty(len(events), np.int64)
        total = kernels.counted(received.data, bounds, shape, counts)
        if total < 0:
            raise InternalError(f"a row of {full} is cut off")
        starts, sizes = np.empty((total, len(shape)), np.int64), np.empty((total, len(shape)), np.int64)
        kernels.images(received.data, bounds, shape, starts, sizes)
        event = np.repeat(np.arange(len(events)), counts)
        kept, deleted = self._kept(received, topic, table, (starts, sizes, events[event, KIND]))
        columns = {
            each.name: logged(received.data, starts[kept, place], sizes[kept, place], each)
            for place, each in enumerate(table.columns)
            if each.name in wanted
        }
        names = tuple(each.name for each in table.columns)
        event = event[kept]
        return Changes(topic, names, columns, deleted, numbers[event], events[event, TRANSACTION])

    def _kept(
        self, received: Received, topic: str, table: TableMap, images: tuple[Longs, Longs, Longs]
    ) -> tuple[Longs, npt.NDArray[np.bool_]]:
        """Return which row images are changes, and which of these are deletes.

        Of an update, the row before is one if its key differs from that of the row after.
        """
        starts, sizes, kinds = images
        updates = np.flatnonzero(np.isin(kinds, kernels.UPDATES))
        before, after = updates[::2], updates[1::2]
        key = np.array([n for n, each in enumerate(table.columns) if each.name in self._tables[topic].key], np.int64)
        differs = np.zeros(len(before), np.bool_)
        moved(received.data, (starts[after], sizes[after]), (starts[before], sizes[before]), key, differs)
        deleted = np.isin(kinds, kernels.DELETES)
        deleted[before] = True
        keep = np.ones(len(kinds), np.bool_)
        keep[before[~differs]] = False
        kept = np.flatnonzero(keep)
        return kept, deleted[kept]

    def _read_statements(self, received: Received, result: Decoded) -> None:
        """Note the statements that change rows of captured tables, and do not say which."""
        for number in np.flatnonzero(received.events[:, KIND] == QUERY):
            schema, statement = read_statement(received.content(int(number)), self._charsets)
            if (branch := _XA.match(statement)) is not None:
                for topic in self._prepared.pop(branch[1], set(self._tables)):
                    result.untold.append((int(number), topic))
            for topic, table in self._tables.items():
                effect = effect_of(statement, schema, table)
                if effect is not None:
                    (result.truncated if effect == "truncated" else result.untold).append((int(number), topic))

        for number in np.flatnonzero(received.events[:, KIND] == kernels.LOAD):  # LOAD DATA, logged as text
            content = received.content(int(number))
            result.untold += [
                (int(number), topic) for topic, each in self._tables.items() if each.name.encode() in content
            ]

    def _hold_prepared(self, received: Received, result: Decoded) -> None:
        """Leave out what transactions in two phases (XA) have prepared: it is read anew where they are committed."""
        for number in np.flatnonzero(received.events[:, KIND] == kernels.XA_PREPARE):
            transaction, content = received.events[number, TRANSACTION], received.content(int(number))
            if not received.transactions[transaction, kernels.PREPARED]:
                continue
            size = int.from_bytes(content[5:9], "little")
            branch = f"X'{content[13 : 13 + size].hex()}',X'{content[13 + size :].hex()}'"
            touched = {each.topic for each in result.changes if (each.transaction == transaction).any()}
            self._prepared[branch] = touched
        prepared = received.transactions[:, kernels.PREPARED] == 1
        if prepared.any():
            result.changes = [_filtered(each, ~prepared[each.transaction]) for each in result.changes]


def _filtered(changes: Changes, kept: npt.NDArray[np.bool_]) -> Changes:
    return replace(
        changes,
        columns={name: each.filter(pa.array(kept)) for name, each in changes.columns.items()},
        deleted=changes.deleted[kept],
        event=changes.event[kept],
        transaction=changes.transaction[kept],
    )
