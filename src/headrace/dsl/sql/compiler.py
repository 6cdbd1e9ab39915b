"""What the parts of a query ask of the compiler that they belong to: a query inside them, compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlglot import exp

    from headrace.dsl.sql.context import CommonQuery, Context
    from headrace.dsl.sql.ranking import Ranking, RowLimit
    from headrace.dsl.sql.relation import Body, Scope
    from headrace.dsl.stream_table import StreamOrTable


class Compiler(Protocol):
    """Compiles the queries of one text, each once; `query.QueryCompiler` is the one that does it."""

    context: Context

    def rows(self, query: exp.Query, names: Mapping[str, CommonQuery], *, strict: bool = True) -> StreamOrTable:
        """Return the rows of a query; `strict`: each of its columns needs a name."""

    def first_rows(
        self, query: exp.Query, names: Mapping[str, CommonQuery], ranking: Ranking, limit: RowLimit
    ) -> StreamOrTable:
        """Return the first rows of each group of a query that numbers its rows."""

    def body(self, select: exp.Select, names: Mapping[str, CommonQuery], outer: Scope | None) -> Body:
        """Return the rows of `from` and `where`, and the tests that read the outer query, which are not applied."""
