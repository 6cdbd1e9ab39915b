"""Rows on their way from one operation of a level to the next: as Arrow tables, or as SQL that is not computed yet.

The columns are the step's, `_weight` (+1 inserted, -1 withdrawn) and `_time` (event time, microseconds since 1970).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.base.names import quote

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.kernels.duck import Duck

    Rows = Sequence[pa.Table] | str


class Delta:
    """A step's rows in an epoch; SQL becomes tables, or tables a relation, when an operation needs it, once."""

    def __init__(self, duck: Duck, rows: Rows = (), *, about: int = 0, passed: Sequence[pa.Table] = ()) -> None:
        self._duck = duck
        self._about = about
        self._passed = passed
        self._tables: list[pa.Table] | None = None
        self._relation: str | None = None
        if isinstance(rows, str):
            self._relation = rows
        else:
            tables: Sequence[pa.Table] = rows
            self._tables = [part for part in tables if part.num_rows]

    @property
    def about(self) -> int:
        """About how many rows there are; of SQL, how many it reads."""
        return self._about if self._tables is None else sum(part.num_rows for part in self._tables)

    @property
    def known(self) -> Sequence[pa.Table] | None:
        """Tables with some or all of the rows' columns, known without computing anything; None: there are none."""
        return self._tables or self._passed or None

    @property
    def tables(self) -> list[pa.Table]:
        """The rows as tables, none of them empty."""
        if self._tables is None:
            computed = self._duck.large(f"SELECT * FROM {self._relation}")
            self._tables, self._relation = ([computed] if computed.num_rows else []), None
        return self._tables

    def beside(self, names: Sequence[str]) -> list[pa.Table] | None:
        """Return columns of the rows, of which only those are computed that are not known.

        None where no column is known, and where the rows are tables already.
        """
        if self._tables is not None or not self._passed:
            return None
        schema = self._passed[0].schema
        if any(part.schema != schema for part in self._passed):
            return None
        rows, others = pa.concat_tables(self._passed), [name for name in names if name not in schema.names]
        if others:
            computed = self._duck.large(f"SELECT {', '.join(map(quote, others))} FROM {self._relation}")
            for name in others:
                rows = rows.append_column(name, computed.column(name))
        return [rows.select(names)]

    @property
    def relation(self) -> str | None:
        """The rows as SQL to select from; None where it is plain that there are none."""
        if self._relation is None and self._tables:
            names = [self._duck.register(part) for part in self._tables]
            union = " UNION ALL ".join(f"SELECT * FROM {name}" for name in names)
            self._relation = names[0] if len(names) == 1 else f"({union})"
        return self._relation

    @property
    def computed(self) -> list[pa.Table] | None:
        """The rows as tables, where they are known without computing anything."""
        return self._tables
