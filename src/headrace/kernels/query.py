"""Stateless steps as SQL: composed, and computed only where rows are needed."""

from __future__ import annotations

import re
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

import duckdb

from headrace.base.errors import InvalidQuery
from headrace.kernels.blame import duckdb_text
from headrace.kernels.duck import Duck, typed
from headrace.kernels.op import Operator, StepResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from headrace.kernels.delta import Delta
    from headrace.kernels.op import Context


_INSERTED = "1::INTEGER AS _weight"
_COLUMN = rf'(?:"[^",]+"|_time|{_INSERTED})'
_PLAIN = re.compile(rf"SELECT ({_COLUMN}(?:, {_COLUMN})*) FROM")


@dataclass(frozen=True, slots=True, kw_only=True)
class Query(Operator):
    """SQL over the rows of one delta or, all treated alike, of several: `before`, the rows, `after`.

    `shared` results are computed once.
    """

    before: str
    after: str
    shared: bool

    def passed(self, inputs: Sequence[Delta]) -> list[pa.Table]:
        """Return the columns that the result has of its input as they are, if it has all rows and computes nothing."""
        known = inputs[0].known if len(inputs) == 1 else None
        found = _PLAIN.fullmatch(self.before)
        if known is None or found is None or self.after or self.shared:
            return []
        names = [name.strip('"') for name in found[1].split(", ") if name != _INSERTED]
        return [part.select(names) for part in known] if set(names) <= set(known[0].column_names) else []

    def run(self, inputs: Sequence[Delta], context: Context) -> StepResult:
        """Return the SQL, or what it computes."""
        sources = [rows for delta in inputs if (rows := delta.relation) is not None]
        if not sources:
            return StepResult()
        sql = f"({' UNION ALL '.join(f'{self.before} {rows} {self.after}' for rows in sources)})"
        return StepResult([context.duck.arrow(f"SELECT * FROM {sql}")] if self.shared else sql)


def computed(sql: str, schema: pa.Schema) -> pa.Table:
    """Return the rows of SQL that reads no table, in the types of a schema.

    Raises:
        InvalidQuery: it cannot be computed.

    """
    with closing(Duck()) as duck:
        try:
            return typed(duck.arrow(sql), schema)
        except duckdb.Error as error:
            raise InvalidQuery(f"values cannot be computed: {duckdb_text(error)}") from None
