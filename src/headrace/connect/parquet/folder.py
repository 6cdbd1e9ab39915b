"""The sink: an epoch's rows are hidden files, which are there once the manifest that names them is."""

from __future__ import annotations

import hashlib
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

import duckdb
import pyarrow as pa

from headrace.base.errors import InvalidArgument, InvalidPlan
from headrace.base.schema import parse, to_ddl
from headrace.base.time import duration
from headrace.connect.comparing import compare_rows
from headrace.connect.parquet.files import DELETED, RUN, Rolling, by_partition, stored_schema
from headrace.connect.parquet.gathering import gather, remove_replaced
from headrace.connect.parquet.manifest import FILES, DataFile, Manifest, alone
from headrace.connect.parquet.reading import sql
from headrace.connect.sink import SinkWriter
from headrace.connect.store import (
    StoreDiffers,
    StoreSink,
    WriterFenced,
    check_folder,
    check_partitions,
    database_options,
    names_that_fit,
    together,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import timedelta
    from os import PathLike

    from headrace.base.time import Clock
    from headrace.connect.sink import Difference

MOST_PARTITIONS = 1_000
_TOGETHER = 65_536


def folder(
    path: str | PathLike[str],
    *,
    partition_by: str | Sequence[str] = (),
    file_bytes: int = 128 << 20,
    keep: str | timedelta = "1 hour",
) -> ParquetFolder:
    """Return a folder of Parquet files as a sink, exactly once for readers of its manifest (`files`, `sql`).

    A stream's rows are added; of a table the files have one row a change, and `sql` reads the last one of each key.
    Small epochs are gathered into larger files; no reader of the manifest misses a row meanwhile, or sees one twice.

    Who lists the folder instead sees a stream's finished files: whole, each row once, but late by up to `file_bytes` a
    partition. Of a table such a reader sees nothing.

    Args:
        path: a folder on a file system of this machine, or one that all machines mount; it is created.
        partition_by: columns whose values become folders, as Hive names them; of a table, columns of its key.
        file_bytes: the size from which on a file is finished, in bytes.
        keep: how long replaced files stay, for readers that have an older list.

    Raises:
        InvalidArgument: a size below 1.

    """
    if file_bytes < 1:
        raise InvalidArgument(f"file_bytes is a size in bytes, not {file_bytes}")
    columns = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
    kept = duration(keep, what="keep")
    return ParquetFolder(path=str(Path(path)), partition_by=columns, file_bytes=file_bytes, keep=kept)


@dataclass(frozen=True, kw_only=True)
class ParquetFolder(StoreSink):
    """A folder of Parquet files; `keep` in microseconds."""

    path: str
    partition_by: tuple[str, ...] = ()
    file_bytes: int = 128 << 20
    keep: int = 3_600_000_000

    @property
    def where(self) -> str:
        """The folder."""
        return f"the folder {self.path}"

    @property
    def name(self) -> str:
        """The folder."""
        return f"parquet:{self.path}"

    @property
    def location(self) -> str:
        """The folder, however it is spelled."""
        return f"parquet:{Path(self.path).resolve()}"

    def for_step(
        self, *, schema: pa.Schema, key: tuple[str, ...] | None, is_table: bool, sealed: frozenset[str]
    ) -> Self:
        """Return the sink for the rows of a step.

        Raises:
            InvalidPlan: it has no such column to partition by, or one that is nested or not of the table's key; or a
                column has a name that files have.

        """
        found = super().for_step(schema=schema, key=key, is_table=is_table, sealed=sealed)
        check_partitions(self.where, schema, self.partition_by, refused=lambda _: False)
        for column in self.partition_by:
            if is_table and column not in found.key:
                raise InvalidPlan(
                    f'{self.where} is to be partitioned by "{column}", which is not of the table\'s key',
                    detail="A row whose value changes would be in two partitions.",
                    hint=f"The key is {', '.join(found.key)}.",
                )
        for column in schema.names if is_table else ():
            if column.lower() == RUN:
                raise InvalidPlan(
                    f'{self.where} cannot have a column "{column}": its files have one of their own',
                    hint=f'It numbers the changes of a key. Rename yours: .rename(run="{column}").',
                )
        return found

    def prepare(self, *, clock: Clock) -> None:
        """Create the folder, or check what is in it.

        Raises:
            StoreDiffers: it has other columns, another key or other partitions.
            StoreRefused: a file is in the folder's place.

        """
        del clock
        check_folder(self.where, Path(self.path))
        root, wanted = Path(self.path), self._manifest()
        with alone(root):
            there = Manifest.read(root)
            if there is None:
                wanted.write(root)
                return
            self._check(there)
            if there.schema != wanted.schema:
                there.schema = wanted.schema
                there.write(root)

    def _manifest(self) -> Manifest:
        return Manifest(to_ddl(self.columns), self.key, self.partition_by, self.is_table)

    def _check(self, there: Manifest) -> None:
        shape = (there.is_table, there.key, there.partition_by)
        if shape != (self.is_table, self.key, self.partition_by):
            raise StoreDiffers(
                f"{self.where} has {_shape(*shape)}, and the step {_shape(self.is_table, self.key, self.partition_by)}",
                hint="Write to another folder.",
            )
        has, columns = parse(there.schema), {each.name: each.type for each in self.columns}
        differing = [each.name for each in has if columns.get(each.name) != each.type]
        if differing:
            raise StoreDiffers(
                f"{self.where} has columns that the step does not have, or with another type: {', '.join(differing)}",
                detail=f"It has {there.schema}.",
                hint="Columns may be added; else write to another folder.",
            )

    def compare(self, rows: Iterator[pa.RecordBatch], *, repair: bool) -> Difference | None:
        """Return how the current rows differ from what they should be, and with `repair` bring them level."""
        return compare_rows(self, rows, self._held(), repair=repair)

    def _held(self) -> Iterator[pa.RecordBatch]:
        with (
            tempfile.TemporaryDirectory(prefix="headrace-") as spill,
            duckdb.connect(config=database_options(spill)) as query,
        ):
            yield from query.sql(sql(self.path)).to_arrow_reader(_TOGETHER)

    def open(self, *, writer: str, clock: Clock) -> SinkWriter:
        """Return a writer.

        Raises:
            Unavailable: another process changes the folder at the moment.

        """
        return FolderWriter(self, writer, clock)


class FolderWriter(SinkWriter):
    """Writes epochs to a folder."""

    def __init__(self, sink: ParquetFolder, writer: str, clock: Clock) -> None:
        self.sink, self.writer, self.clock = sink, writer, clock
        self.root = Path(sink.path).absolute()
        self.tag = hashlib.sha256(writer.encode()).hexdigest()[:8]
        with alone(self.root):
            manifest = self._read()
            mark = manifest.writers.get(writer, {"epoch": -1, "generation": 0})
            self.last, self.generation = mark["epoch"], mark["generation"] + 1
            manifest.writers[writer] = {"epoch": self.last, "generation": self.generation}
            manifest.write(self.root)
            self._clear(manifest)

    def _read(self) -> Manifest:
        manifest = Manifest.read(self.root)
        if manifest is None:
            raise StoreDiffers(f"{self.sink.where} has no manifest any more", hint="Restore the folder from a backup.")
        return manifest

    def _clear(self, manifest: Manifest) -> None:
        """Delete what no manifest names: files that a crash cut off. They are only written by who is alone here."""
        known = {each.path for each in manifest.files} | set(manifest.replaced)
        for each in (self.root / FILES).rglob("*"):
            if each.is_file() and str(each.relative_to(self.root)) not in known:
                each.unlink(missing_ok=True)

    def last_epoch(self) -> int | None:
        """Return the last epoch that the manifest has."""
        return self.last

    def publish(self, epoch: int, rows: Iterator[pa.RecordBatch]) -> None:
        """Write an epoch's files, then the manifest that names them; then gather small files.

        Raises:
            WriterFenced: a newer writer has taken over.
            StoreRefused: a value to partition by is too long for a folder's name.
            Unavailable: another process changes the folder at the moment.
            OSError: the disk refuses.

        """
        self.sink.fault("before_files")
        with alone(self.root):
            manifest = self._read()
            mark = manifest.writers.get(self.writer, {"epoch": -1, "generation": 0})
            if mark["generation"] != self.generation:
                raise WriterFenced(self.sink.where)
            if epoch > mark["epoch"]:
                manifest.files += self._write(epoch, rows, manifest)
                manifest.writers[self.writer] = {"epoch": epoch, "generation": self.generation}
                self.sink.fault("before_manifest")
                manifest.write(self.root)
                self.sink.fault("after_manifest")
            self.last = max(epoch, mark["epoch"])
            now = self.clock.now()
            gather(self.root, manifest, target=self.sink.file_bytes, now=now, fault=self.sink.fault)
            remove_replaced(self.root, manifest, before=now - self.sink.keep)
        self.sink.fault("after_gathering_all")

    def _write(self, epoch: int, rows: Iterator[pa.RecordBatch], manifest: Manifest) -> list[DataFile]:
        run, schema = manifest.next_run, stored_schema(manifest, self.sink.columns)
        manifest.next_run += 1
        out: dict[str, Rolling] = {}
        try:
            for part in together(rows, _TOGETHER):
                table = part.select([*self.sink.columns.names, *([DELETED] if manifest.is_table else [])])
                if manifest.is_table:
                    table = table.append_column(RUN, pa.repeat(pa.scalar(run, pa.int64()), table.num_rows))
                for partition, some in by_partition(table, self.sink.partition_by):
                    if partition not in out:
                        out[partition] = self._rolling(epoch, run, partition, schema, count=len(out))
                    with names_that_fit(self.sink.where, epoch=epoch):
                        out[partition].write(some)
            self.sink.fault("in_files")
        except BaseException:
            for each in out.values():
                each.abandon()
            raise
        return [
            DataFile(path, partition, run, written, size)
            for partition, each in out.items()
            for path, written, size in each.close()
        ]

    def _rolling(self, epoch: int, run: int, partition: str, schema: pa.Schema, *, count: int) -> Rolling:
        if count >= MOST_PARTITIONS:
            raise StoreDiffers(
                f"epoch {epoch} has rows for more than {MOST_PARTITIONS} partitions of {self.sink.where}",
                hint="Partition by a column with fewer values.",
            )
        at = f"{FILES}/{partition}".rstrip("/")
        braces = at.replace("{", "{{").replace("}", "}}")
        return Rolling(self.root, f"{braces}/epoch-{self.tag}-{epoch:012d}-{run:012d}.parquet", schema)

    def close(self) -> None:
        """Do nothing: no file is open between epochs."""


def _shape(is_table: bool, key: Sequence[str], partition_by: Sequence[str]) -> str:  # noqa: FBT001 -- as it is stored
    kind = f"a table with the key {', '.join(key)}" if is_table else "rows of a stream"
    return kind + (f", partitioned by {', '.join(partition_by)}" if partition_by else "")
