"""What sinks of stores share: the columns and key of their step, points where a test may crash, and their errors."""

from __future__ import annotations

import errno
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Self

import pyarrow as pa

from headrace.base.blame import OutsideError
from headrace.base.disk import in_the_way
from headrace.base.errors import InvalidPlan, did_you_mean
from headrace.base.memory import task_memory
from headrace.base.schema import type_name
from headrace.connect.sink import Form, Guarantee, Sink

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

NO_ROWS = pa.schema([])


class StoreDiffers(OutsideError):
    """What is in a store has other columns, another key or another layout than the step that writes to it."""

    condition = "STORE_DIFFERS"


class StoreRefused(OutsideError):
    """A store refuses an epoch's rows, and would refuse them again; `in_part`: it may have some of them.

    An `epoch` below 0: it refuses what comes before the first one.
    """

    condition = "STORE_REFUSED"

    def __init__(self, where: str, why: str, *, epoch: int, in_part: bool = False) -> None:
        if epoch < 0:  # it is not written to yet
            super().__init__(f"{where} refuses the app: {why}", hint="Mend the store or its settings and start again.")
            return
        written = "Rows of it may be written, and will be again" if in_part else f"Nothing of epoch {epoch} was written"
        super().__init__(
            f"{where} refuses epoch {epoch}: {why}",
            detail=f"{written}; its rows are staged under the app's storage.",
            hint="Mend the store or its settings and start again: the epoch is published first.",
        )


class WriterFenced(OutsideError):
    """A newer writer of the same name writes to the store, so this one stops."""

    condition = "FENCED"

    def __init__(self, where: str) -> None:
        super().__init__(
            f"{where} is written by another process of this app now",
            detail="It took over while this one did not answer. Nothing is lost, and nothing was written twice.",
            hint="Leave that one running, or stop it before this one is started again.",
        )


def check_folder(where: str, folder: Path) -> None:
    """Refuse a folder that cannot be there.

    Raises:
        StoreRefused: something that is no folder is in its place, or in that of one above it.

    """
    file = in_the_way(folder)
    if file is not None:
        raise StoreRefused(where, f"{file} is no folder", epoch=-1)


@contextmanager
def names_that_fit(where: str, *, epoch: int) -> Iterator[None]:
    """Turn the error of a file's name that is too long, which no later attempt mends, into one of ours.

    Raises:
        StoreRefused: a value to partition by, as a part of a path, is too long for the file system.

    """
    try:
        yield
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        why = f"a value to partition by is too long for the name of a folder: {error.filename or error}"
        raise StoreRefused(where, why, epoch=epoch) from error


def no_fault(point: str) -> None:
    """Do not crash."""
    del point


def check_partitions(
    where: str, schema: pa.Schema, partition_by: Sequence[str], *, refused: Callable[[pa.DataType], bool]
) -> None:
    """Refuse columns to partition by that a step does not have, or whose type a store cannot partition by.

    Raises:
        InvalidPlan: there is such a column.

    """
    for each in partition_by:
        if each not in schema.names:
            raise InvalidPlan(
                f'{where} is to be partitioned by "{each}", which the step does not have',
                hint=did_you_mean(each, schema.names),
            )
        kind = schema.field(each).type
        if pa.types.is_nested(kind) or refused(kind):
            raise InvalidPlan(
                f'{where} cannot be partitioned by "{each}", which is {type_name(kind)}',
                hint="Make a text or a number of it: .with_columns(…).",
            )


def database_options(spill: str) -> dict[str, str | bool | int | float | list[str]]:
    """Return DuckDB's settings for a database that a sink opens: a task's memory, and a folder for what is more."""
    return {"memory_limit": f"{task_memory()}B", "temp_directory": spill}


def together(rows: Iterable[pa.RecordBatch], count: int) -> Iterator[pa.Table]:
    """Join batches to tables of at least `count` rows, the last one apart."""
    held: list[pa.RecordBatch] = []
    held_rows = 0
    for batch in rows:
        held.append(batch)
        held_rows += batch.num_rows
        if held_rows >= count:
            yield pa.Table.from_batches(held)
            held, held_rows = [], 0
    if held:
        yield pa.Table.from_batches(held)


@dataclass(frozen=True, kw_only=True)
class StoreSink(Sink):
    """A store that keeps a table by its key, and where it can (`takes_streams`), a stream as rows that are added.

    `columns`, `key` and `is_table` are those of the step; `.to` sets them. `fault`: called where a test may crash.
    """

    columns: pa.Schema = NO_ROWS
    key: tuple[str, ...] = ()
    is_table: bool = False
    fault: Callable[[str], None] = no_fault
    takes_streams: ClassVar[bool] = True
    guarantee: Guarantee = "exactly_once"

    @property
    def form(self) -> Form:
        """One change a key for a table, else rows."""
        return "changelog" if self.is_table else "rows"

    @property
    def where(self) -> str:
        """What people call the store, without passwords."""
        raise NotImplementedError

    @property
    def name(self) -> str:
        """What tells it from the other sinks of an app: it is a part of the writer's name, so it shows no password."""
        raise NotImplementedError

    @property
    def location(self) -> str:
        """What tells it from other stores, whatever they are called: it is written by one step of an app."""
        return self.name

    def overlaps(self, other: object) -> bool:
        """Whether it and another sink write to the same rows."""
        return self.location == getattr(other, "location", None)

    def for_step(
        self, *, schema: pa.Schema, key: tuple[str, ...] | None, is_table: bool, sealed: frozenset[str]
    ) -> Self:
        """Return the sink for the rows of a step.

        Raises:
            InvalidPlan: the step is a table without a key, or a stream and the store keeps tables alone.

        """
        del sealed
        if is_table and not key:
            raise InvalidPlan(
                f"{self.where} keeps a table by its key, and this table has none",
                hint="Give it one: group it, or read it with key=.",
            )
        if not is_table and not self.takes_streams:
            raise InvalidPlan(
                f"{self.where} keeps one entry a key, and a stream has no key",
                hint='Make it a table: stream.latest("id"), or a group.',
            )
        return replace(self, columns=schema, key=key or (), is_table=is_table)
