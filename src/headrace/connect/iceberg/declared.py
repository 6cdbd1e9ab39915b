"""The sink: a table of a catalog of Iceberg, made or checked at the app's start."""

from __future__ import annotations

import os
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import requests
from pyiceberg import exceptions as failed
from pyiceberg.catalog import load_catalog
from pyiceberg.io.pyarrow import schema_to_pyarrow
from sqlalchemy import exc as database

from headrace.base.broker_errors import LoginRefused
from headrace.base.errors import InvalidPlan
from headrace.base.outside import OutputLost, Unavailable
from headrace.base.schema import to_ddl, type_name
from headrace.connect.buckets import refusal
from headrace.connect.comparing import compare_rows
from headrace.connect.iceberg.files import batches_of, changed_files
from headrace.connect.iceberg.snapshots import commit_epoch, last_epoch
from headrace.connect.sink import SinkWriter
from headrace.connect.store import StoreDiffers, StoreRefused, StoreSink, check_partitions, names_that_fit

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyiceberg.table import Table

    from headrace.base.time import Clock
    from headrace.connect.sink import Difference

_NOW_AND_THEN = (
    OSError,
    requests.RequestException,
    database.OperationalError,
    failed.CommitFailedException,  # somebody else was quicker
    failed.CommitStateUnknownException,  # whether the epoch is there, the next attempt looks
    failed.ServerError,
    failed.ServiceUnavailableError,
    failed.TooManyRequestsError,
    failed.AuthorizationExpiredError,
    failed.ValidationException,  # a file that this snapshot replaces is gone: somebody else was quicker
)
_NO_LOGIN = (failed.UnauthorizedError, failed.ForbiddenError, failed.OAuthError)
_REFUSED = (
    database.SQLAlchemyError,
    failed.RESTError,
    failed.NoSuchNamespaceError,
    failed.NotInstalledError,
    failed.ValidationError,
    ValueError,  # also properties of the catalog, and metadata that cannot be read
)


def table(name: str, *, catalog: str | Mapping[str, str], partition_by: str | Sequence[str] = ()) -> IcebergTable:
    """Return a table of Iceberg as a sink: the current rows of a table, merged by key, or the rows of a stream.

    Exactly once: a snapshot has the rows of an epoch, and in its summary the writer and the epoch. Every reader of
    Iceberg sees whole epochs. The rows of one epoch must fit into memory. Small files are gathered; those that were
    replaced stay until somebody expires snapshots.

    Args:
        name: of the table, with its namespace: `"shop.totals"`. Both are created where they are missing.
        catalog: properties of the catalog, as the library `pyiceberg` knows them: `type`, `uri`, `warehouse`,
            credentials; and `name` (a SQL catalog keeps its tables under it; "default"). A value `"env:NAME"` is that
            of an environment variable. Nothing shows them. Or the name of a catalog in `.pyiceberg.yaml`.
        partition_by: columns to partition by, by their values, where the table is created.

    """
    columns = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
    options = {"name": catalog} if isinstance(catalog, str) else {"name": "default"} | dict(catalog)
    if not all(name.split(".")) or "." not in name:
        raise InvalidPlan(f"{name!r} is no table of a catalog", hint='Name it with its namespace: "shop.totals".')
    return IcebergTable(table=name, partition_by=columns, options=tuple(sorted(options.items())))


@dataclass(frozen=True, kw_only=True)
class IcebergTable(StoreSink):
    """A table of Iceberg."""

    table: str
    partition_by: tuple[str, ...] = ()
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @property
    def where(self) -> str:
        """The catalog and the table."""
        return f'the Iceberg table {self.table} of the catalog "{dict(self.options)["name"]}"'

    @property
    def name(self) -> str:
        """The catalog and the table."""
        return f"iceberg:{dict(self.options)['name']}:{self.table}"

    def for_step(
        self, *, schema: pa.Schema, key: tuple[str, ...] | None, is_table: bool, sealed: frozenset[str]
    ) -> Self:
        """Return the sink for the rows of a step.

        Raises:
            InvalidPlan: it has no such column to partition by, a nested one or a float; a column's name has a dot; or a
                column of the key has arrays of structs.

        """
        check_partitions(self.where, schema, self.partition_by, refused=pa.types.is_floating)
        for each in schema.names:
            if "." in each:  # it would be the field of a struct
                raise InvalidPlan(f'{self.where} cannot have a column "{each}"', hint="Rename it: .rename(…).")
        for each in (key or ()) if is_table else ():
            if _loses_nulls(schema.field(each).type):
                raise InvalidPlan(
                    f'{self.where} cannot have the key "{each}", which is {type_name(schema.field(each).type)}',
                    detail="It stores an array of structs that is null as an empty one: keys would not be found again.",
                    hint=f'Make a text of it: .with_columns({each}="to_json({each})").',
                )
        return super().for_step(schema=schema, key=key, is_table=is_table, sealed=sealed)

    def prepare(self, *, clock: Clock) -> None:
        """Create the table, or check its columns.

        Raises:
            StoreDiffers: it has other columns.
            StoreRefused: there is no such catalog, or it refuses the table.
            LoginRefused: it refuses the credentials.
            Unavailable: it does not answer.

        """
        del clock
        with self.failures(), self.catalog() as catalog:
            if not catalog.table_exists(self.table):
                catalog.create_namespace_if_not_exists(self.table.rpartition(".")[0])
                with catalog.create_table_transaction(self.table, plain(self.columns)) as fresh:
                    if self.partition_by:
                        with fresh.update_spec() as spec:
                            for each in self.partition_by:
                                spec.add_identity(each)
            self.check_columns(catalog.load_table(self.table))

    def check_columns(self, table: Table) -> None:
        """Check that the table has the columns of the step; it raises `StoreDiffers`."""
        has = schema_to_pyarrow(table.schema(), include_field_ids=False)
        if to_ddl(plain(has)) != to_ddl(plain(self.columns)):
            raise StoreDiffers(
                f"{self.where} has other columns than the step",
                detail=f"It has {to_ddl(plain(has))}; the step has {to_ddl(plain(self.columns))}.",
                hint="Change it with ALTER TABLE (no column may be required), or write to another table: it is filled.",
            )

    @contextmanager
    def catalog(self) -> Iterator[Any]:
        """Open the catalog, and close it."""
        options = {key: _resolved(value) for key, value in self.options}
        opened = load_catalog(options.pop("name"), **options)
        try:
            yield opened
        finally:
            opened.close()

    @contextmanager
    def failures(self, epoch: int = -1) -> Iterator[None]:
        """Turn errors of the library into ours.

        Raises:
            Unavailable: catalog or storage do not answer, or somebody else has just written a snapshot.
            OutputLost: the table was dropped.
            LoginRefused: the catalog, or the store of the files, refuses the credentials.
            AccessRefused: the store of the files does not let them do this.
            StoreRefused: there is no such bucket; or the catalog, or the library, refuses anything else.

        """
        try:
            yield
        except _NOW_AND_THEN as error:
            refused = refusal(self.where, _said(error), epoch=epoch)
            if refused is not None:
                raise refused from None
            raise Unavailable(f"{self.where} cannot be used now: {type(error).__name__}: {_said(error)}") from None
        except failed.NoSuchTableError:
            raise OutputLost(f"{self.where} was dropped") from None
        except _NO_LOGIN as error:
            raise LoginRefused(
                f"{self.where}: the catalog refuses the login: {_said(error)}",
                hint="Correct its properties: credential, token.",
            ) from None
        except _REFUSED as error:
            raise StoreRefused(self.where, f"{type(error).__name__}: {_said(error)}", epoch=epoch) from None

    def compare(self, rows: Iterator[pa.RecordBatch], *, repair: bool) -> Difference | None:
        """Return how the table differs from what it should have, and with `repair` bring it level, in one snapshot.

        Raises:
            Unavailable: catalog or storage do not answer.

        """
        with self.failures(), self.catalog() as catalog:
            held = batches_of(catalog.load_table(self.table), self.columns)
            return compare_rows(self, map(_as_stored, rows), held, repair=repair)

    def open(self, *, writer: str, clock: Clock) -> SinkWriter:
        """Return a writer.

        Raises:
            Unavailable: its catalog does not answer.

        """
        del clock
        return TableWriter(self, writer)


class TableWriter(SinkWriter):
    """Writes epochs as snapshots of a table."""

    def __init__(self, sink: IcebergTable, writer: str) -> None:
        self.sink, self.writer = sink, writer
        self._open = ExitStack()
        with sink.failures():
            self._catalog = self._open.enter_context(sink.catalog())
            self.last = last_epoch(self._catalog.load_table(sink.table), writer)

    def last_epoch(self) -> int | None:
        """Return the last epoch that the table has."""
        return self.last

    def publish(self, epoch: int, rows: Iterator[pa.RecordBatch]) -> None:
        """Write an epoch as the next snapshot.

        Raises:
            Unavailable: catalog or storage do not answer, or somebody else has just written a snapshot.
            StoreRefused: the table refuses the rows.
            StoreDiffers: somebody has changed its columns.
            OutputLost: it was dropped.

        """
        fault = self.sink.fault
        fault("before_snapshot")
        changes = pa.Table.from_batches(rows)
        with self.sink.failures(epoch):
            table = self._catalog.load_table(self.sink.table)
            if epoch > last_epoch(table, self.writer):
                self.sink.check_columns(table)
                try:
                    with names_that_fit(self.sink.where, epoch=epoch):
                        change = changed_files(table, changes, self.sink.key if self.sink.is_table else None)
                except (ValueError, NotImplementedError, pa.ArrowException) as error:
                    raise StoreRefused(self.sink.where, str(error), epoch=epoch) from error
                fault("files_written")
                commit_epoch(table, epoch, change, writer=self.writer, fault=fault)
        self.last = epoch
        fault("after_snapshot")

    def close(self) -> None:
        """Close the catalog."""
        self._open.close()


def plain(schema: pa.Schema) -> pa.Schema:
    """Return columns as Iceberg has them: no small integers, no large texts, nothing required."""
    return pa.schema([pa.field(each.name, _plain(each.type)) for each in schema])


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_int8(kind) or pa.types.is_int16(kind):
        return pa.int32()
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(pa.field("element", _plain(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(_plain(kind.key_type), _plain(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(each.name, _plain(each.type)) for each in kind])
    return kind


def _loses_nulls(kind: pa.DataType) -> bool:
    """Whether a type has arrays of structs: pyiceberg 0.12 writes one that is null as an empty one."""
    children = [kind.field(at).type for at in range(kind.num_fields)]
    return (pa.types.is_list(kind) and pa.types.is_struct(kind.value_type)) or any(map(_loses_nulls, children))


def _as_stored(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows as the table has them: an array or a map of structs that is null is empty there."""
    for at, each in enumerate(rows.schema):
        inner = each.type.item_type if pa.types.is_map(each.type) else getattr(each.type, "value_type", each.type)
        if not pa.types.is_struct(each.type) and pa.types.is_struct(inner) and rows.column(at).null_count:
            column = rows.column(at)
            places = pc.if_else(column.is_valid(), pa.array(np.arange(len(column))), len(column))
            filled = pa.concat_arrays([column, pa.array([[]], column.type)]).take(places)
            rows = rows.set_column(at, each, filled)
    return rows


def _said(error: Exception) -> str:
    return str(error.orig if isinstance(error, database.DBAPIError) else error)


def _resolved(value: str) -> str:
    """Return a property, from the environment where it says so.

    Raises:
        InvalidPlan: there is no such variable.

    """
    if not value.startswith("env:"):
        return value
    found = os.environ.get(value[4:])
    if found is None:
        raise InvalidPlan(f"the environment has no variable {value[4:]}", hint="A property of the catalog names it.")
    return found
