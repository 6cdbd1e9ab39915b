"""Messages of pgoutput as columns: for each table the rows that its transactions upserted and deleted, in order."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from headrace.base.blame import InternalError
from headrace.base.schema import TIMESTAMP
from headrace.connect.capture.cells import NULL, UNCHANGED, moved, texts
from headrace.connect.capture.source import SOURCE_TYPE
from headrace.connect.postgres import kernels
from headrace.connect.postgres.kernels import KIND, NEW, OLD, TABLE, TRANSACTION, WHOLE
from headrace.connect.postgres.position import lsn_text
from headrace.connect.postgres.stream import HEADER

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy.typing as npt

    Longs = npt.NDArray[np.int64]

EPOCH_2000 = 946_684_800_000_000
"""PostgreSQL counts microseconds from the year 2000."""
_INSERT, _UPDATE, _DELETE = ord("I"), ord("U"), ord("D")
_RELATION, _MESSAGE, _TRUNCATE = ord("R"), ord("M"), ord("T")


class Relation(NamedTuple):
    """A table as the stream describes it before its changes: the columns that are sent."""

    oid: int
    schema: str
    name: str
    columns: tuple[str, ...]
    key: tuple[int, ...]
    """Which columns identify a row."""

    @property
    def key_names(self) -> set[str]:
        """The names of the columns that identify a row."""
        return {self.columns[place] for place in self.key}


@dataclass(slots=True)
class Changes:
    """The changes of a table with one set of columns, in the order of the log; columns are texts.

    `unsent`: for a column, which rows have a value that the server did not send (`UNCHANGED`).
    """

    relation: Relation
    columns: dict[str, pa.Array]
    deleted: npt.NDArray[np.bool_]
    unsent: dict[str, npt.NDArray[np.bool_]]
    transaction: Longs
    """The number of each row's transaction in `Decoded`."""
    message: Longs
    """The number of each row's message."""


@dataclass(slots=True)
class Decoded:
    """What whole transactions did; `end` is the position behind the last of them, 0 if there was none."""

    changes: list[Changes] = field(default_factory=list)
    truncated: list[tuple[int, int]] = field(default_factory=list)
    """The message and the table of each TRUNCATE."""
    messages: list[tuple[str, bytes]] = field(default_factory=list)
    transactions: Longs = field(default_factory=lambda: np.empty((0, kernels.TRANSACTION_FIELDS), np.int64))
    end: int = 0

    @property
    def committed(self) -> int | None:
        """Return when the last transaction committed, in microseconds since 1970; None if there was none."""
        count = len(self.transactions)
        return int(self.transactions[count - 1, kernels.COMMITTED]) + EPOCH_2000 if count else None

    def source(self, numbers: Longs) -> pa.Array:
        """Return the column `_source` for rows of some transactions."""
        about = self.transactions
        result = [
            pa.array([lsn_text(int(end)) for end in about[:, kernels.END]], pa.string()),
            pa.array(about[:, kernels.XID]).cast(pa.string()),
            pa.array(about[:, kernels.COMMITTED] + EPOCH_2000).cast(TIMESTAMP),
        ]
        return pa.StructArray.from_arrays(result, fields=list(SOURCE_TYPE)).take(pa.array(numbers))


class Decoder:
    """Decodes messages of one connection; it remembers the tables that the server has described."""

    def __init__(self) -> None:
        self.relations: dict[int, Relation] = {}

    def decode(self, messages: Sequence[bytes], keys: Mapping[int, Sequence[str]] = MappingProxyType({})) -> Decoded:
        """Return what whole transactions did. `keys`: of tables by their numbers, whatever else identifies a row."""
        if not messages:
            return Decoded()
        joined = b"".join(messages)
        data = np.frombuffer(joined, np.uint8)
        ends = np.cumsum(np.fromiter(map(len, messages), np.int64, len(messages)))
        found = np.empty((len(messages), kernels.FIELDS), np.int64)
        transactions = np.zeros((len(messages), kernels.TRANSACTION_FIELDS), np.int64)
        count = kernels.scan(data, ends, HEADER, found, transactions)
        if count < 0:
            raise InternalError("a message of pgoutput is not as it should be")
        result = Decoded(transactions=transactions[:count].copy())
        result.end = int(result.transactions[-1, kernels.END]) if count else 0
        described = self._read_rare(messages, found, result)
        for relation, rows in _by_relation(found, described):
            key = [place for place, name in enumerate(relation.columns) if name in keys.get(relation.oid, ())]
            result.changes.append(_changes(data, relation, found[rows], rows, key or relation.key))
        return result

    def _read_rare(
        self, messages: Sequence[bytes], found: Longs, result: Decoded
    ) -> dict[int, list[tuple[int, Relation]]]:
        """Read what is no row; return for each table the descriptions, and the message from which on each is valid."""
        described = {oid: [(-1, relation)] for oid, relation in self.relations.items()}
        for number in np.flatnonzero(np.isin(found[:, KIND], (_RELATION, _MESSAGE, _TRUNCATE))):
            message = messages[int(number)][HEADER:]
            if message[0] == _RELATION:
                relation = _relation(message)
                self.relations[relation.oid] = relation
                described.setdefault(relation.oid, []).append((int(number), relation))
            elif message[0] == _MESSAGE:
                prefix, _, rest = message[10:].partition(b"\0")
                result.messages.append((prefix.decode(), rest[4:]))
            else:
                (tables,) = struct.unpack_from(">I", message, 1)
                result.truncated += [(int(number), oid) for oid in struct.unpack_from(f">{tables}I", message, 6)]
        return described


def _relation(message: bytes) -> Relation:
    (oid,) = struct.unpack_from(">I", message, 1)
    schema_end = message.index(b"\0", 5)
    name_end = message.index(b"\0", schema_end + 1)
    (count,) = struct.unpack_from(">H", message, name_end + 2)
    at, columns, key = name_end + 4, [], []
    for place in range(count):
        end = message.index(b"\0", at + 1)
        columns.append(message[at + 1 : end].decode())
        if message[at] & 1:
            key.append(place)
        at = end + 9
    return Relation(
        oid, message[5:schema_end].decode(), message[schema_end + 1 : name_end].decode(), tuple(columns), tuple(key)
    )


def _by_relation(
    found: Longs, described: dict[int, list[tuple[int, Relation]]]
) -> Iterator[tuple[Relation, npt.NDArray[np.int64]]]:
    for oid in np.unique(found[:, TABLE]):
        if oid == 0:
            continue
        rows = np.flatnonzero(found[:, TABLE] == oid)
        versions = described.get(int(oid))
        if versions is None:
            raise InternalError(f"pgoutput has changes of the table {oid}, and has not described it")
        starts = np.array([start for start, _ in versions])
        version = np.searchsorted(starts, rows, side="right") - 1
        for each in np.unique(version):
            yield versions[each][1], rows[version == each]


def _changes(
    data: npt.NDArray[np.uint8], relation: Relation, found: Longs, numbers: Longs, key: Sequence[int]
) -> Changes:
    width = len(relation.columns)
    new, old = _cells(data, found[:, NEW], width), _cells(data, found[:, OLD], width)
    whole = found[:, WHOLE] == 1
    has_both = (found[:, NEW] > 0) & (found[:, OLD] > 0)
    if has_both.any():
        kept = (new[1] == UNCHANGED) & (whole & has_both)[:, None]
        for place in (0, 1):
            new[place][kept] = old[place][kept]
    changed_key = np.zeros(len(found), np.bool_)
    if has_both.any():
        both = np.flatnonzero(has_both)
        differs = np.zeros(len(both), np.bool_)
        picked = [(np.ascontiguousarray(cells[0][both]), np.ascontiguousarray(cells[1][both])) for cells in (new, old)]
        moved(data, picked[0], picked[1], np.array(key or range(width), np.int64), differs)
        changed_key[both] = differs
    row = np.repeat(np.arange(len(found)), 1 + changed_key)
    first_of_two = np.zeros(len(row), np.bool_)
    first_of_two[:-1] = row[1:] == row[:-1]
    deleted = (found[row, KIND] == _DELETE) | first_of_two
    columns, unsent = {}, {}
    for place, name in enumerate(relation.columns):
        starts = np.where(deleted, old[0][row, place], new[0][row, place])
        sizes = np.where(deleted, old[1][row, place], new[1][row, place])
        missing = sizes == UNCHANGED
        if missing.any():
            unsent[name] = missing & ~deleted
        columns[name] = texts(data, starts, np.where(missing, NULL, sizes))
    return Changes(relation, columns, deleted, unsent, found[row, TRANSACTION], numbers[row])


def _cells(data: npt.NDArray[np.uint8], tuples: Longs, width: int) -> tuple[Longs, Longs]:
    starts, sizes = np.empty((len(tuples), width), np.int64), np.empty((len(tuples), width), np.int64)
    if kernels.cells(data, np.ascontiguousarray(tuples), starts, sizes) < 0:
        raise InternalError("a row of pgoutput has other columns than its table")
    return starts, sizes
