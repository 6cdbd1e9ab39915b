"""The sink: documents are written with external versions, which grow with the writers and with the epochs.

The server drops a write whose version is not greater than that of the document. So an epoch may be written again, also
in part; and what an old process of the app still sends changes nothing, since its versions are smaller than those of
the newer one.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc

from headrace.base.errors import InvalidPlan
from headrace.base.outside import OutputLost, Unavailable
from headrace.connect.comparing import ENTRY, compare_entries
from headrace.connect.entry_keys import entry_keys
from headrace.connect.formats.json_text import encode, json_of
from headrace.connect.search.cluster import Cluster, ClusterAddress, Refused
from headrace.connect.search.mapping import field_of, flat
from headrace.connect.sink import SinkWriter
from headrace.connect.store import StoreDiffers, StoreRefused, StoreSink, WriterFenced

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from headrace.base.time import Clock
    from headrace.connect.sink import Difference

MARKS = "headrace_marks"
REQUEST_BYTES = 8 << 20
_ROWS, _READ_AT_ONCE = 5_000, 2_000
_TRIES = 10
_CONFLICT = 409
_LATER = frozenset({429, 503})
_DELETES_KEPT = "1h"
"""So long the server knows the version of a deleted document, by which it drops a late write of it."""
_NAME = re.compile(r'[^-_+.\s"#*,/:<>?\\|][^\s"#*,/:<>?\\|]*')
"""A name of one index: others are patterns of several (`a*`, `a,b`), dates (`<a-{now/d}>`), or are refused."""
_NOTHING = pa.scalar("")


def opensearch(url: str, index: str) -> OpenSearchIndex:
    """Return an index of OpenSearch as a sink: of a table its current rows by key, of a stream all rows.

    Exactly once, document by document: a repeated or late write changes nothing, and each document has the row of the
    last epoch. But the rows of one epoch become visible one after the other. Texts are searched by words, and as a
    whole in `<column>.keyword`; a value that a field cannot have (NaN, a year after 9999) is in what is found, and is
    not searched.

    Args:
        url: `http://user:env:PASSWORD@host:9200`, or `https://…`; `?ssl_ca=FILE` for an authority of your own.
        index: its name; it is created where it is missing.

    Raises:
        InvalidPlan: the address is none, or the name is none of an index.

    """
    if not isinstance(index, str) or not _NAME.fullmatch(index) or index != index.lower() or index == MARKS:
        raise InvalidPlan(
            f"{index!r} is no name of an index",
            hint='It has small letters, and begins with one; it has no blank, and none of " # * , / : < > ? \\ |.',
        )
    return OpenSearchIndex(address=ClusterAddress.parse(url), index=index)


@dataclass(frozen=True, kw_only=True)
class OpenSearchIndex(StoreSink):
    """An index of a cluster."""

    address: ClusterAddress
    index: str

    @property
    def where(self) -> str:
        """The index and the cluster."""
        return f"the index {self.index} of {self.address}"

    @property
    def name(self) -> str:
        """The cluster and the index."""
        return f"{self.address}/{self.index}"

    @property
    def path(self) -> str:
        """The path of the index in requests."""
        return f"/{quote(self.index, safe='')}"

    def for_step(
        self, *, schema: pa.Schema, key: tuple[str, ...] | None, is_table: bool, sealed: frozenset[str]
    ) -> Self:
        """Return the sink for the rows of a step.

        Raises:
            InvalidPlan: a column has a name that a field cannot have.

        """
        for each in schema.names:
            if not each.strip() or "." in each or each.startswith("_"):
                raise InvalidPlan(f'"{each}" cannot be a field of {self.where}', hint="Rename the column with .select.")
        return super().for_step(schema=schema, key=key, is_table=is_table, sealed=sealed)

    def prepare(self, *, clock: Clock) -> None:
        """Create the index, or check its fields.

        Raises:
            StoreDiffers: it has other fields, or cannot be created.
            Unavailable: no node answers.

        """
        del clock
        wanted = {field.name: field_of(field.type) for field in self.columns}
        cluster = self.address.open()
        try:
            found = cluster.ask("GET", f"{self.path}/_mapping")
            if found is None:
                self._create(cluster, wanted)
                return
        except Refused as error:
            raise StoreDiffers(f"{self.where} cannot be created or read: {error}") from error
        finally:
            cluster.close()
        has = flat(next(iter(found.values()))["mappings"].get("properties", {}))
        lacking = {name: kind for name, kind in flat(wanted).items() if has.get(name) != kind}
        if lacking:
            raise StoreDiffers(
                f"{self.where} has other fields than the step",
                detail=f"It has {_told(has)}; what differs: {_told(lacking)}.",
                hint="The fields of an index are fixed: write to another one, which is filled from the table.",
            )

    def _create(self, cluster: Cluster, properties: Mapping[str, Any]) -> None:
        settings = {"index.gc_deletes": _DELETES_KEPT, "index.mapping.ignore_malformed": True}
        body = {"settings": settings, "mappings": {"dynamic": False, "properties": properties}}
        try:
            cluster.ask("PUT", self.path, body)
        except Refused as error:
            if "already_exists" not in str(error):  # another process of this app was faster
                raise

    def compare(self, rows: Iterator[pa.RecordBatch], *, repair: bool) -> Difference | None:
        """Return how the documents differ from what they should be, and with `repair` bring them level.

        Raises:
            Unavailable: no node answers.

        """
        cluster = self.address.open()
        try:
            cluster.ask("POST", f"{self.path}/_refresh")

            def delete(keys: list[str]) -> None:
                for key in keys:
                    cluster.ask("DELETE", f"{self.path}/_doc/{quote(key, safe='')}")

            return compare_entries(
                self, rows, self._held(cluster), entries=self._entries, delete=delete if repair else None
            )
        finally:
            cluster.close()

    def _entries(self, rows: pa.RecordBatch) -> tuple[pa.Array, pa.Array]:
        texts = [_canonical(json.loads(text, parse_float=Decimal)) for text in encode(rows).to_pylist()]
        return entry_keys(rows, self.key), pa.array(texts, pa.string())

    def _held(self, cluster: Cluster) -> Iterator[pa.RecordBatch]:
        query = {"size": _READ_AT_ONCE, "sort": ["_doc"]}
        found = cluster.ask("POST", f"{self.path}/_search", query, scroll="5m")
        while found and found["hits"]["hits"]:
            hits = found["hits"]["hits"]
            columns = [[each["_id"] for each in hits], [_canonical(each["_source"]) for each in hits]]
            yield pa.record_batch([pa.array(each, pa.string()) for each in columns], schema=ENTRY)
            found = cluster.ask("POST", "/_search/scroll", {"scroll": "5m", "scroll_id": found["_scroll_id"]})

    def open(self, *, writer: str, clock: Clock) -> SinkWriter:
        """Return a writer.

        Raises:
            Unavailable: no node answers.

        """
        return OpenSearchWriter(self, writer, clock)


class OpenSearchWriter(SinkWriter):
    """Writes epochs: their documents with one version, then the mark, if no newer writer has taken it over."""

    def __init__(self, sink: OpenSearchIndex, writer: str, clock: Clock) -> None:
        self.sink, self.writer = sink, writer
        self.cluster = sink.address.open()
        self._identity = self._uuid(-1)
        self.base, self.last = self._take_over(clock)
        self._first = self.last
        self._short = hashlib.sha256(writer.encode()).hexdigest()[:16]

    def last_epoch(self) -> int | None:
        """Return the last epoch that the index has."""
        return self.last

    def publish(self, epoch: int, rows: Iterator[pa.RecordBatch]) -> None:
        """Write an epoch's documents, then its mark; readers see them when it returns.

        Raises:
            Unavailable: no node answers, or it has too much to do; what is written already is written again.
            StoreRefused: the index refuses a row; rows before it are written, and will be again.
            WriterFenced: a newer process of the app writes.
            OutputLost: the index or the mark was removed.

        """
        if epoch <= self.last:
            return
        fault, at, number = self.sink.fault, self.base + epoch - self._first, 0
        fault("before_rows")
        self._check_there(epoch)  # else the first request would make another one
        for batch in rows:
            for first in range(0, batch.num_rows, _ROWS):
                part = batch.slice(first, _ROWS)
                self.write(epoch, at, self.lines(part, epoch, at, number))
                number += part.num_rows
                fault("rows_written")
        self._ask("POST", f"{self.sink.path}/_refresh", epoch=epoch)
        self._check_there(epoch)
        self._set_mark(epoch, at)
        self.last = epoch
        fault("after_mark")

    def lines(self, rows: pa.RecordBatch, epoch: int, version: int, number: int) -> list[str]:
        """Return what a bulk request has of rows, each one's lines together."""
        version_is = f',"version":{version},"version_type":"external"}}}}\n'
        if self.sink.is_table:
            keys = json_of(entry_keys(rows, self.sink.key))
        else:  # a repeated epoch has the same rows in the same order
            ids = (f'"{self._short}:{epoch}:{number + at}"' for at in range(rows.num_rows))
            keys = pa.array(ids, pa.string())
        documents = encode(rows.select(self.sink.columns.names))
        end = pa.scalar("\n")
        put = pc.binary_join_element_wise(
            pa.scalar('{"index":{"_id":'), keys, pa.scalar(version_is), documents, end, _NOTHING
        )
        if not self.sink.is_table:
            return list(put.to_pylist())
        gone = pc.binary_join_element_wise(pa.scalar('{"delete":{"_id":'), keys, pa.scalar(version_is), _NOTHING)
        return list(pc.if_else(rows.column("_deleted"), gone, put).to_pylist())

    def write(self, epoch: int, version: int, lines: list[str]) -> None:
        """Send lines, in requests of some megabytes."""
        if len(lines) > 1 and sum(map(len, lines)) > REQUEST_BYTES:
            middle = len(lines) // 2
            self.write(epoch, version, lines[:middle])
            self.write(epoch, version, lines[middle:])
            return
        answer = self._ask("POST", f"{self.sink.path}/_bulk", "".join(lines), epoch=epoch)
        if answer is None or not answer["errors"]:
            return
        for item in answer["items"]:
            ((_, done),) = item.items()
            status, error = done["status"], done.get("error")
            if error is None or status == _CONFLICT:  # what is there is as new, or newer
                continue
            said = f"{error.get('reason')}: {(error.get('caused_by') or {}).get('reason', '')}".rstrip(": ")
            if status in _LATER:
                raise Unavailable(f"{self.sink.where} has too much to do: {said}")
            why = f"the row with the key {done['_id']}: {said}"
            raise StoreRefused(self.sink.where, why, epoch=epoch, in_part=True)

    def _check_there(self, epoch: int) -> None:
        if self._uuid(epoch) != self._identity:
            raise OutputLost(f"{self.sink.where} was removed under the app")

    def _uuid(self, epoch: int) -> str | None:
        found = self._ask("GET", f"{self.sink.path}/_settings/index.uuid", epoch=epoch)
        return str(next(iter(found.values()))["settings"]["index"]["uuid"]) if found else None

    def _ask(self, method: str, path: str, body: Any = None, *, epoch: int, **parameters: Any) -> Any:
        try:
            return self.cluster.ask(method, path, body, **parameters)
        except Refused as error:
            if "index_not_found" in str(error):
                return None
            raise StoreRefused(self.sink.where, str(error), epoch=epoch, in_part=True) from error

    def _take_over(self, clock: Clock) -> tuple[int, int]:
        """Return a version that is greater than all that were written to the index, and the last epoch.

        Raises:
            Unavailable: other processes do the same all the time.
            OutputLost: the index was removed.

        """
        for _ in range(_TRIES):
            marks, seen = self._marks()
            used = max((max(each["base"], each["written"]) for each in marks.values()), default=0)
            mine, base = marks.get(self.writer), max(clock.now(), used + 1)
            last = -1 if mine is None else int(mine["epoch"])
            if mine is not None and last >= 0 and mine["index"] != self._identity:
                raise OutputLost(f"{self.sink.where} was removed, and had to be created anew")
            marks[self.writer] = {"index": self._identity, "base": base, "written": used, "epoch": last}
            if self._store(marks, seen):
                return base, last
        raise Unavailable(f"{self.sink.where}: other processes of this app take it over again and again")

    def _set_mark(self, epoch: int, version: int) -> None:
        """Write the mark after the one that this writer wrote last.

        Raises:
            WriterFenced: a newer writer has taken over.
            OutputLost: the cluster has lost the mark that was written last.

        """
        for _ in range(_TRIES):
            marks, seen = self._marks()
            mine = marks.get(self.writer)
            if mine is not None and mine["base"] != self.base:
                raise WriterFenced(self.sink.where)
            if mine is not None and mine["epoch"] == epoch:  # the answer was lost
                return
            if mine is None or mine["epoch"] != self.last:
                raise OutputLost(f"{self.sink.where} has lost what was written to it: its mark is {mine}")
            marks[self.writer] = mine | {"written": version, "epoch": epoch}
            if self._store(marks, seen):
                return
        raise Unavailable(f"{self.sink.where}: the mark is written by others all the time")

    def _marks(self) -> tuple[dict[str, Any], dict[str, int]]:
        """Return the marks of all writers of the index, and what tells that nobody has written them since."""
        found = self._ask("GET", f"/{MARKS}/_doc/{quote(self.sink.index, safe='')}", epoch=-1)
        if found is None or not found.get("found"):
            return {}, {}
        seen = {"if_seq_no": found["_seq_no"], "if_primary_term": found["_primary_term"]}
        return json.loads(found["_source"]["marks"]), seen

    def _store(self, marks: dict[str, Any], seen: dict[str, int]) -> bool:
        how: dict[str, Any] = dict(seen) or {"op_type": "create"}
        path = f"/{MARKS}/_doc/{quote(self.sink.index, safe='')}"
        try:
            self.cluster.ask("PUT", path, {"marks": json.dumps(marks)}, **how)
        except Refused as error:
            if error.status == _CONFLICT:
                return False
            raise StoreDiffers(f"{self.sink.where}: its mark cannot be written: {error}") from error
        return True

    def close(self) -> None:
        """Close the connections."""
        self.cluster.close()


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)


def _told(fields: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in sorted(fields.items())) or "none"
