"""The sink: an epoch is one version of the table, which has the epoch's number as the transaction of its writer.

A version is written only if it is the next one after that in which the writer has looked for its last epoch. So of two
processes that write an epoch, one has it refused, looks again, and finds it there.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake import exceptions as failed

from headrace.base.disk import says_full
from headrace.base.errors import InvalidPlan
from headrace.base.outside import OutputLost, Unavailable
from headrace.base.schema import to_ddl
from headrace.connect.buckets import refusal
from headrace.connect.comparing import compare_rows
from headrace.connect.sink import SinkWriter
from headrace.connect.store import StoreDiffers, StoreRefused, StoreSink, check_folder, check_partitions

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from os import PathLike

    from headrace.base.time import Clock
    from headrace.connect.sink import Difference

MOST_FILES = 64
"""So many files are added before small ones are compacted."""
_BUSY = failed.CommitFailedError
_NOT_TO_SHOW = re.compile(r"\x1b\[\d+m|\n +0: .*|\nPreview of invalid data.*", re.DOTALL)
"""Colours, a trace, and rows, which may have private values."""


def table(
    path: str | PathLike[str],
    *,
    partition_by: str | Sequence[str] = (),
    storage_options: Mapping[str, str] | None = None,
) -> DeltaLake:
    """Return a table of Delta Lake as a sink: the current rows of a table, merged by key, or the rows of a stream.

    Exactly once: a version has the rows of an epoch and its number (`txn`). Every reader of Delta Lake sees whole
    epochs. The rows of one epoch must fit into memory. Small files are compacted; old ones stay until somebody runs
    `VACUUM`.

    Args:
        path: a folder, or an address that the library `deltalake` knows, such as `s3://bucket/orders`.
        partition_by: columns to partition by, where the table is created.
        storage_options: what the library is to know of the address: credentials, endpoints. Nothing shows them.

    """
    columns = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
    options = tuple(sorted((storage_options or {}).items()))
    return DeltaLake(path=str(path), partition_by=columns, options=options)


@dataclass(frozen=True, kw_only=True)
class DeltaLake(StoreSink):
    """A table of Delta Lake."""

    path: str
    partition_by: tuple[str, ...] = ()
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @property
    def where(self) -> str:
        """The address."""
        return f"the Delta table {self.path}"

    @property
    def name(self) -> str:
        """The address."""
        return f"delta:{self.path}"

    @property
    def location(self) -> str:
        """The folder or the address, however it is spelled."""
        return self.name.rstrip("/") if "://" in self.path else f"delta:{Path(self.path).resolve()}"

    def for_step(
        self, *, schema: pa.Schema, key: tuple[str, ...] | None, is_table: bool, sealed: frozenset[str]
    ) -> Self:
        """Return the sink for the rows of a step.

        Raises:
            InvalidPlan: it has no such column to partition by, one of a type that has no text, or no other column.

        """
        check_partitions(self.where, schema, self.partition_by, refused=_has_no_text)
        if schema.names and set(self.partition_by) >= set(schema.names):
            raise InvalidPlan(
                f"{self.where} is to be partitioned by all columns of the step",
                hint="Leave one out: files of Delta Lake have the other columns.",
            )
        return super().for_step(schema=schema, key=key, is_table=is_table, sealed=sealed)

    def prepare(self, *, clock: Clock) -> None:
        """Create the table, or check its columns.

        Raises:
            StoreDiffers: it has other columns.
            StoreRefused: there can be no table at this address, or with these options.
            Unavailable: its storage does not answer.

        """
        del clock
        if "://" not in self.path:
            check_folder(self.where, Path(self.path))
        with self.failures():
            options = dict(self.options)
            if not DeltaTable.is_deltatable(self.path, storage_options=options):
                columns = list(self.partition_by)
                DeltaTable.create(self.path, self.columns, partition_by=columns, storage_options=options, mode="ignore")
            lake = self.opened()
            self.check_changes(lake)
            has = to_ddl(pa.schema(lake.schema().to_arrow()))
        if has.replace(" not null", "") != to_ddl(self.columns).replace(" not null", ""):
            raise StoreDiffers(
                f"{self.where} has other columns than the step",
                detail=f"It has {has}; the step has {to_ddl(self.columns)}.",
                hint="Change it with ALTER TABLE in Spark, or write to another table, which is filled.",
            )

    def check_changes(self, lake: DeltaTable) -> None:
        """Check that rows may be replaced, if the step is a table; it raises `StoreDiffers`."""
        if self.is_table and lake.metadata().configuration.get("delta.appendOnly") == "true":
            raise StoreDiffers(
                f"{self.where} is append-only, and the rows of a table change",
                hint="ALTER TABLE … UNSET TBLPROPERTIES ('delta.appendOnly'); or write to another table.",
            )

    def opened(self) -> DeltaTable:
        """Return the table at its last version."""
        return DeltaTable(self.path, storage_options=dict(self.options))

    @contextmanager
    def failures(self, epoch: int = -1) -> Iterator[None]:
        """Turn errors of the library into ours.

        Raises:
            Unavailable: its storage does not answer, or somebody else has just written a version.
            OutputLost: the table was there, and is gone.
            StoreRefused: the library cannot read or write such a table, or there is no such bucket.
            LoginRefused, AccessRefused: its store refuses the credentials, or what they may do.

        """
        try:
            yield
        except (failed.DeltaError, OSError) as error:
            refused = refusal(self.where, _said(error), epoch=epoch)
            if refused is not None:
                raise refused from error
            if isinstance(error, (_BUSY, OSError)) or says_full(error):
                raise Unavailable(f"{self.where} cannot be written now: {_said(error)}") from error
            if epoch >= 0 and isinstance(error, failed.TableNotFoundError):
                raise OutputLost(f"{self.where} is gone") from error
            raise StoreRefused(self.where, _said(error), epoch=epoch) from error

    def compare(self, rows: Iterator[pa.RecordBatch], *, repair: bool) -> Difference | None:
        """Return how the table differs from what it should have, and with `repair` bring it level, in one version.

        Raises:
            Unavailable: its storage does not answer.

        """
        with self.failures():
            held = self.opened().to_pyarrow_dataset().to_batches(columns=self.columns.names)
        return compare_rows(self, rows, held, repair=repair)

    def open(self, *, writer: str, clock: Clock) -> SinkWriter:
        """Return a writer.

        Raises:
            Unavailable: its storage does not answer.

        """
        del clock
        return LakeWriter(self, writer)


class LakeWriter(SinkWriter):
    """Writes epochs as versions of a table."""

    def __init__(self, sink: DeltaLake, writer: str) -> None:
        remote = "://" in sink.path
        self.sink = sink if remote else replace(sink, path=str(Path(sink.path).absolute()))  # wherever the process goes
        self.writer = writer
        with self.sink.failures():
            self.last = self._last(self.sink.opened())

    def _last(self, lake: DeltaTable) -> int:
        found = lake.transaction_version(self.writer)
        return -1 if found is None else int(found)

    def last_epoch(self) -> int | None:
        """Return the last epoch that the table has."""
        return self.last

    def publish(self, epoch: int, rows: Iterator[pa.RecordBatch]) -> None:
        """Write an epoch as the next version.

        Raises:
            Unavailable: its storage does not answer, or somebody else has just written a version.
            StoreRefused: the table refuses the rows.
            StoreDiffers: somebody has made it append-only.
            OutputLost: it is gone.

        """
        fault = self.sink.fault
        fault("before_transaction")
        changes = pa.Table.from_batches(rows)
        fault("in_transaction")
        with self.sink.failures(epoch):
            lake = self.sink.opened()
            if epoch > self._last(lake):
                self.sink.check_changes(lake)
                self._write(lake, epoch, changes)
        self.last = epoch
        fault("after_transaction")
        self._compact()
        fault("after_compaction")

    def _write(self, lake: DeltaTable, epoch: int, rows: pa.Table) -> None:
        mark = CommitProperties(app_transactions=[Transaction(self.writer, epoch)], max_commit_retries=0)
        names = self.sink.columns.names
        if not self.sink.is_table:
            write_deltalake(lake, rows.select(names), mode="append", commit_properties=mark)
            return
        # without brackets DataFusion compares with all that follows
        same = " AND ".join(
            f"(held.{_quoted(name)} IS NOT DISTINCT FROM new.{_quoted(name)})" for name in self.sink.key
        )
        values = {_quoted(name): f"new.{_quoted(name)}" for name in names}
        merge = lake.merge(
            rows.select([*names, "_deleted"]),
            predicate=same,
            source_alias="new",
            target_alias="held",
            commit_properties=mark,
        )
        merge = merge.when_matched_delete(predicate="new._deleted").when_matched_update(values)
        merge.when_not_matched_insert(values, predicate="NOT new._deleted").execute()

    def _compact(self) -> None:
        """Compact small files; who writes at the same moment comes first."""
        with self.sink.failures():
            lake = self.sink.opened()
            if lake.version() % MOST_FILES == MOST_FILES - 1:
                try:
                    lake.optimize.compact(commit_properties=CommitProperties(max_commit_retries=0))
                except _BUSY:
                    return

    def close(self) -> None:
        """Do nothing: nothing is open between epochs."""


def _has_no_text(kind: pa.DataType) -> bool:
    """Whether the library writes values of a type wrongly as the text of a partition: -1.50 becomes `-1.-50`."""
    return bool(pa.types.is_binary(kind) or (pa.types.is_decimal(kind) and kind.scale > 0))


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _said(error: Exception) -> str:
    return _NOT_TO_SHOW.sub("", str(error)).strip()
