"""A stream of documents with a table of stored queries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from headrace.plan.nodes.lookup_join import LookupJoin
from headrace.plan.nodes.node import Description
from headrace.plan.nodes.sources import Source

TEXT = "_headrace_text"
"""The column of a search's documents that is searched."""
ANALYSIS = 1
"""The version of what texts and queries mean: the kept form of a query is of one."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Search(LookupJoin):
    """Rows of a stream, each with the rows of a table whose `query` the column `TEXT` meets when it arrives."""

    verb = "search"
    kind = "Search"
    kernel = "search.search.Search"
    to_all_shards: ClassVar[bool] = True

    query: str

    @property
    def partition_keys(self) -> tuple[tuple[str, ...], ...]:
        """None: documents go to all shards, and a query is in one of them, by its key."""
        return ((), ())

    def partition_keys_after(self, at: tuple[int, ...]) -> tuple[str, ...] | None:
        """Nothing: a document comes out of every shard."""
        del at
        return None

    @property
    def not_null(self) -> frozenset[str]:
        """What is on its side: a search has no column that both sides agree in."""
        sides = (self.left.not_null, self.right.not_null)
        return frozenset(
            column.name for column in self.columns if column.left in sides[0] or column.right in sides[1]
        ) & frozenset(self.schema.names)

    def parameters(self) -> dict[str, Any]:
        """Return the column inside with the terms."""
        return {"terms": self.inside_names(0)[TEXT]}

    def identity(self) -> dict[str, Any]:
        """Return those of a join, the column of the query, and what queries mean."""
        return {**super().identity(), "query": self.query, "key": list(self.right.key or ()), "analysis": ANALYSIS}

    @property
    def refusing(self) -> Source | None:
        """The source whose dead letters get the queries that cannot be read; None: these stop the app."""
        sources = [node for node in self.right.walk() if isinstance(node, Source)]
        return None if any(source.on_error == "fail" for source in sources) else sources[0]

    def describe(self) -> Description:
        """Return what rows match by."""
        return Description(
            detail=f"the rows whose {self.query} the text meets, as it arrives; each row goes to all shards",
            state=f"the rows of the right side and an index of their queries, kept until they are deleted"
            f"{self.shown_growth(1)}",
        )
