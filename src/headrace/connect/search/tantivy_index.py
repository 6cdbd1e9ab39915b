"""The sink: an epoch is one commit of the index, with a document that has the epoch's number."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import tantivy as engine

from headrace.base.disk import says_full
from headrace.base.errors import InvalidArgument, InvalidPlan
from headrace.base.outside import Unavailable
from headrace.base.schema import to_ddl
from headrace.connect.comparing import ENTRY, compare_entries
from headrace.connect.entry_keys import entry_keys
from headrace.connect.formats.json_text import encode
from headrace.connect.search.documents import KEY, ROW, WRITER, documents, kind_of
from headrace.connect.sink import SinkWriter
from headrace.connect.store import StoreDiffers, StoreRefused, StoreSink, WriterFenced, check_folder, together

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from os import PathLike
    from typing import Self

    from headrace.base.time import Clock
    from headrace.connect.sink import Difference

COLUMNS = "columns"
"""What the document is called that says what the index has; writers have an `/` in their names."""
MARK = "%mark"
"""The key of such documents, which no row has: a `%` of a row's key is `%25`."""
_ROWS = 8_192
_OURS = frozenset({KEY, ROW, WRITER, "_score"})
_LONGEST_KEY = 65_530
"""Bytes; tantivy leaves longer ones out of the index, so that their rows would never be replaced."""


def tantivy(path: str | PathLike[str], *, memory_bytes: int = 128 << 20) -> SearchIndex:
    """Return a full-text index in a folder as a sink: of a table its current rows, of a stream all rows.

    Exactly once: an epoch is one commit, with its number. Texts and lists of texts are searched by words, numbers,
    instants and booleans by value and range; other columns are only in what is found.

    Args:
        path: the folder; it is created.
        memory_bytes: what the index may use while an epoch is written, 15 MB at least.

    Raises:
        InvalidArgument: too little memory.

    """
    if memory_bytes < 15_000_000:  # noqa: PLR2004 -- tantivy's own limit
        raise InvalidArgument(f"memory_bytes is 15 000 000 at least, not {memory_bytes}")
    return SearchIndex(path=str(Path(path)), memory_bytes=memory_bytes)


def query(path: str | PathLike[str], text: str, *, limit: int = 10, fields: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Return the rows that a query finds, the best first: dicts with JSON's values, and `_score` (float).

    Args:
        path: the folder of the index.
        text: in tantivy's language: `cheap "red shoes" -old price:[10 TO 20]`.
        limit: how many rows at most.
        fields: the columns that words without a field are looked for in; by default all with texts.

    Raises:
        StoreDiffers: there is no index.
        InvalidArgument: the query cannot be understood.

    """
    where = f"the index {path}"
    index = _opened(str(path), where)
    found = _document(index, COLUMNS)
    if found is None:
        raise StoreDiffers(f"{where} is not written by an app")
    try:
        parsed = index.parse_query(text, list(fields or found["text"]))
    except ValueError as error:
        raise InvalidArgument(f"the query {text!r} cannot be understood: {error}") from error
    searcher, occur = index.searcher(), engine.Occur
    marks = engine.Query.term_query(index.schema, KEY, MARK)
    hits = searcher.search(engine.Query.boolean_query([(occur.Must, parsed), (occur.MustNot, marks)]), limit).hits
    rows = ((score, searcher.doc(address).get_first(ROW)) for score, address in hits)
    return [{**json.loads(row), "_score": score} for score, row in rows]


@dataclass(frozen=True, kw_only=True)
class SearchIndex(StoreSink):
    """An index in a folder."""

    path: str
    memory_bytes: int = 128 << 20

    @property
    def where(self) -> str:
        """The folder."""
        return f"the index {self.path}"

    @property
    def name(self) -> str:
        """The folder."""
        return f"tantivy:{self.path}"

    @property
    def location(self) -> str:
        """The folder, however it is spelled."""
        return f"tantivy:{Path(self.path).resolve()}"

    def for_step(
        self, *, schema: pa.Schema, key: tuple[str, ...] | None, is_table: bool, sealed: frozenset[str]
    ) -> Self:
        """Return the sink for the rows of a step.

        Raises:
            InvalidPlan: a column has a name that a field cannot have.

        """
        for each in schema.names:
            if not engine.SchemaBuilder.is_valid_field_name(each) or {*each} & {*'".\\'} or each in _OURS:
                raise InvalidPlan(f'"{each}" cannot be a field of {self.where}', hint="Rename the column with .select.")
        return super().for_step(schema=schema, key=key, is_table=is_table, sealed=sealed)

    def prepare(self, *, clock: Clock) -> None:
        """Create the index, or check its columns.

        Raises:
            StoreDiffers: it has other columns, or another key.
            StoreRefused: a file is in the folder's place.

        """
        del clock
        check_folder(self.where, Path(self.path))
        Path(self.path).mkdir(parents=True, exist_ok=True)
        if not engine.Index.exists(self.path):
            engine.Index(self._schema(), path=self.path)
        has = {"columns": to_ddl(self.columns), "key": list(self.key), "is_table": self.is_table}
        index = _opened(self.path, self.where)
        there = _document(index, COLUMNS)
        if there is None:
            text = [each.name for each in self.columns if kind_of(each.type) == "text"]
            with committing(index, self) as writer:
                _put(writer, COLUMNS, has | {"text": text})
        elif {name: there[name] for name in has} != has:
            raise StoreDiffers(
                f"{self.where} has other columns or another key than the step",
                detail=f"It has {there['columns']}, with the key {there['key']}; the step has {has['columns']}.",
                hint="The columns of an index are fixed: write to another folder, which is filled from the table.",
            )

    def _schema(self) -> engine.Schema:
        builder = engine.SchemaBuilder()
        for name in (KEY, WRITER):
            builder.add_text_field(name, stored=True, tokenizer_name="raw", index_option="basic")
        builder.add_text_field(ROW, stored=True, tokenizer_name="raw", index_option="basic")
        for each in self.columns:
            kind = kind_of(each.type)
            if kind == "text":
                builder.add_text_field(each.name)
            elif kind is not None:
                getattr(builder, f"add_{kind}_field")(each.name, indexed=True, fast=True)
        return builder.build()

    def compare(self, rows: Iterator[pa.RecordBatch], *, repair: bool) -> Difference | None:
        """Return how the documents differ from what they should be, and with `repair` bring them level.

        Raises:
            Unavailable: another process writes to the index.

        """
        return compare_entries(self, rows, self._held(), entries=self._entries, delete=self._delete if repair else None)

    def _entries(self, rows: pa.RecordBatch) -> tuple[pa.Array, pa.Array]:
        return entry_keys(rows, self.key), encode(rows)

    def _held(self) -> Iterator[pa.RecordBatch]:
        searcher = _opened(self.path, self.where).searcher()
        hits = searcher.search(engine.Query.all_query(), max(1, searcher.num_docs)).hits
        for at in range(0, len(hits), _ROWS):
            found = [searcher.doc(address) for _, address in hits[at : at + _ROWS]]
            some = [(each.get_first(KEY), each.get_first(ROW)) for each in found if each.get_first(WRITER) is None]
            columns = [pa.array([one[at] for one in some], pa.string()) for at in (0, 1)]
            yield pa.record_batch(columns, schema=ENTRY)

    def _delete(self, keys: list[str]) -> None:
        with committing(_opened(self.path, self.where), self) as changes:
            for key in keys:
                changes.delete_documents_by_term(KEY, key)

    def open(self, *, writer: str, clock: Clock) -> SinkWriter:
        """Return a writer.

        Raises:
            Unavailable: another process writes to the index at the moment.

        """
        del clock
        return IndexWriter(self, writer)


class IndexWriter(SinkWriter):
    """Writes epochs to an index."""

    def __init__(self, sink: SearchIndex, writer: str) -> None:
        self.sink, self.writer = sink, writer
        self.index = _opened(sink.path, sink.where)
        with committing(self.index, sink) as changes:
            mark = _document(self.index, writer) or {"epoch": -1, "generation": 0}
            self.last, self.generation = int(mark["epoch"]), int(mark["generation"]) + 1
            self._set_mark(changes, self.last)

    def last_epoch(self) -> int | None:
        """Return the last epoch that the index has."""
        return self.last

    def publish(self, epoch: int, rows: Iterator[pa.RecordBatch]) -> None:
        """Write an epoch as one commit.

        Raises:
            Unavailable: another process writes to the index at the moment.
            WriterFenced: a newer writer has taken over.
            StoreRefused: the index refuses a row.

        """
        self.sink.fault("before_transaction")
        with committing(self.index, self.sink) as changes:
            mark = _document(self.index, self.writer) or {"epoch": -1, "generation": 0}
            if mark["generation"] != self.generation:
                raise WriterFenced(self.sink.where)
            if epoch > mark["epoch"]:
                try:
                    for each in together(rows, _ROWS):
                        self._write(changes, each)
                        self.sink.fault("in_transaction")
                except ValueError as error:
                    if says_full(error):
                        raise
                    raise StoreRefused(self.sink.where, str(error), epoch=epoch) from error
                self._set_mark(changes, epoch)
                self.sink.fault("before_transaction_ends")
        self.sink.fault("after_transaction")
        self.last = epoch

    def _write(self, changes: engine.IndexWriter, rows: pa.Table) -> None:
        """Write rows. tantivy takes a document a call, so this is one of the places where Python runs for each row."""
        for batch in rows.combine_chunks().to_batches():
            texts = documents(batch, columns=self.sink.columns, key=self.sink.key).to_pylist()
            if not self.sink.is_table:
                for text in texts:
                    changes.add_json(text)
                continue
            keys = entry_keys(batch, self.sink.key).to_pylist()
            for key in keys:
                if len(key.encode()) > _LONGEST_KEY:
                    raise ValueError(f"the key {key[:60]}… has more than {_LONGEST_KEY:,} bytes")
            for key, text, deleted in zip(keys, texts, batch.column("_deleted").to_pylist(), strict=True):
                changes.delete_documents_by_term(KEY, key)
                if not deleted:
                    changes.add_json(text)

    def _set_mark(self, changes: engine.IndexWriter, epoch: int) -> None:
        _put(changes, self.writer, {"epoch": epoch, "generation": self.generation})

    def close(self) -> None:
        """Do nothing: the index is open for writing only while an epoch is written."""


@contextmanager
def committing(index: engine.Index, sink: SearchIndex) -> Iterator[engine.IndexWriter]:
    """Be the only one that writes to an index; commit if the block ends well, else change nothing.

    Raises:
        Unavailable: another process writes to it, or the disk is full.

    """
    try:
        with _alone(index, sink) as writer:
            yield writer
    except ValueError as error:
        if not says_full(error):
            raise
        raise Unavailable(f"{sink.where} cannot be written now: {error}") from error


@contextmanager
def _alone(index: engine.Index, sink: SearchIndex) -> Iterator[engine.IndexWriter]:
    try:
        writer = index.writer(heap_size=sink.memory_bytes, num_threads=1)
    except ValueError as error:
        raise Unavailable(f"{sink.where} cannot be written now: {error}") from error
    try:
        writer.garbage_collect_files()  # a commit that was cut short leaves some whose names the next one needs
        index.reload()
        try:
            yield writer
        except BaseException:
            writer.rollback()
            raise
        writer.commit()
    finally:
        writer.wait_merging_threads()  # which also lets go of the lock
    index.reload()


def _opened(path: str, where: str) -> engine.Index:
    try:
        return engine.Index.open(path)
    except ValueError as error:
        raise StoreDiffers(f"{where} cannot be opened: {error}") from error


def _document(index: engine.Index, name: str) -> dict[str, Any] | None:
    index.reload()
    searcher = index.searcher()
    hits = searcher.search(engine.Query.term_query(index.schema, WRITER, name), 1).hits
    return json.loads(searcher.doc(hits[0][1]).get_first(ROW)) if hits else None


def _put(writer: engine.IndexWriter, name: str, data: dict[str, Any]) -> None:
    writer.delete_documents_by_term(WRITER, name)
    writer.add_json(json.dumps({KEY: MARK, WRITER: name, ROW: json.dumps(data)}))
