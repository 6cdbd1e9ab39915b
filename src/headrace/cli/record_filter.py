"""Which records of a topic are shown: those of a key, and those for which a Spark SQL condition is true."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from headrace.base.errors import HeadraceError, PlanError, did_you_mean
from headrace.base.schema import TIMESTAMP, type_name
from headrace.cli.values import from_text
from headrace.expressions import condition
from headrace.kernels.duck import Duck
from headrace.log.rows import to_array

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from headrace.cli.endpoints import ReadableTopic

SYSTEM = {"_partition": pa.int32(), "_offset": pa.int64(), "_time": TIMESTAMP, "_deleted": pa.bool_()}


class ConditionFailed(PlanError):
    """The condition of `--where` cannot be computed for a record, as in Spark's ANSI mode."""

    condition = "CONDITION_FAILED"


class RecordFilter:
    """Keeps the records of a key for which a condition is true. A context manager: it holds a DuckDB connection."""

    def __init__(self, topic: ReadableTopic, *, keys: Sequence[str], where: str | None) -> None:
        self._keys = _key(topic, keys) if keys else {}
        schema = pa.schema([*topic.schema, *(pa.field(name, kind) for name, kind in SYSTEM.items())])
        self._where = condition(where, schema, step="--where") if where is not None else None
        self._duck = Duck() if where is not None else None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._duck is not None:
            self._duck.close()

    def apply(self, rows: pa.Table) -> pa.Table:
        """Return the rows that pass, in their order; `rows` has the topic's columns and those of `SYSTEM`.

        Raises:
            ConditionFailed: the condition cannot be computed for one of them.

        """
        for name, value in self._keys.items():
            rows = rows.filter(pc.equal(rows.column(name), value))
        if self._duck is None or self._where is None or not rows.num_rows:
            return rows
        needed = rows.select(sorted(self._where.columns) or ["_offset"])
        try:
            passed = self._duck.arrow(
                f"SELECT coalesce(({self._where.sql}), false) AS passed FROM {self._duck.register(needed)}"
            )
        except duckdb.Error as error:
            raise ConditionFailed(
                f"--where {self._where.text!r} failed: {str(error).splitlines()[0]}",
                hint="Guard it with try_cast, nullif or a test before it.",
            ) from None
        finally:
            self._duck.forget()
        return rows.filter(passed.column("passed"))


def _key(topic: ReadableTopic, texts: Sequence[str]) -> dict[str, pa.Scalar]:
    """Return the value of each key column that `--key` names."""
    if not topic.key:
        raise PlanError(f"the topic {topic.name} has no key", hint='Use --where "column = value" instead.')
    values = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if len(topic.key) == 1 and name not in topic.key:
            name, equals, value = topic.key[0], "=", text
        if not equals or name not in topic.key:
            raise PlanError(
                f'--key "{text}" names no column of the key of {topic.name}, which is {", ".join(topic.key)}',
                hint=did_you_mean(name, topic.key) or f"Write --key {topic.key[0]}=VALUE.",
            )
        kind = topic.schema.field(name).type
        try:
            values[name] = to_array([from_text(kind)(value)], kind)[0]
        except (ValueError, TypeError, ArithmeticError, pa.ArrowException, HeadraceError) as error:
            raise PlanError(f'--key "{text}" is not a value of type {type_name(kind)}: {error}') from None
    return values
