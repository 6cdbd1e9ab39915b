"""Documents with the stored queries that they meet when they arrive; changes of the queries trigger nothing.

State is the table of the queries, as a lookup keeps it, each with what it is as a `StoredQuery`; and an index, a row
for each term of a query's cover. An epoch looks the terms of its documents up there, and then the queries found: what
it costs follows the documents, and the queries that share a rare term with one of them.

Times are those of a lookup (`joins/lookup_join`): inside an epoch a document meets the queries that were there when it
arrived. The documents go to all shards, each of which has some of the queries.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.base.names import quote
from headrace.kernels.arrays import one_array
from headrace.kernels.counts import Counts
from headrace.kernels.joins.lookup_join import ARRIVAL, NEVER, ROWS, LookupJoin, LookupRun
from headrace.kernels.op import Operator, StepResult
from headrace.kernels.search.analysis import analysed
from headrace.kernels.search.matching import During, Queries, beginnings, matches
from headrace.kernels.search.query import QueryError, parsed, words_of
from headrace.kernels.search.stored_query import STAR, stored
from headrace.kernels.sql import alike
from headrace.kernels.state.tables import COUNT, TableSpec

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headrace.kernels.delta import Delta
    from headrace.kernels.duck import Duck
    from headrace.kernels.op import Context
    from headrace.kernels.search.matching import Longs

TERMS = "terms"
ERROR = "_search_error"
"""The column with why a query cannot be read."""
COVER, LEAVES, UPS, NEEDS = "_search_cover", "_search_leaves", "_search_ups", "_search_needs"
STORED = ((COVER, "VARCHAR[]"), (LEAVES, "VARCHAR[]"), (UPS, "INTEGER[]"), (NEEDS, "INTEGER[]"))
"""The columns of a query as it is stored: null where it cannot be read, or is null."""
_TYPES = (pa.list_(pa.string()), pa.list_(pa.string()), pa.list_(pa.int32()), pa.list_(pa.int32()))
MOST_BEGINNING = 4
"""A query that is found by the beginning of a word is in the index under so many of its letters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParseQueries(Operator):
    """Rows of a table with their query as it is stored, and with why it cannot be read, or null."""

    query: str

    def run(self, inputs: Sequence[Delta], context: Context) -> StepResult:
        """Return the rows with these columns."""
        return StepResult([_with_stored(context.duck, part, self.query) for part in inputs[0].tables])


@dataclass(frozen=True, slots=True, kw_only=True)
class Search(LookupJoin):
    """Documents, each with the queries that it meets when it arrives; `terms` is their column inside with the terms."""

    terms: str

    @property
    def shared(self) -> tuple[str, ...]:
        """A row without a query that can be read meets nothing."""
        return (COVER,)

    @property
    def right(self) -> tuple[tuple[str, str], ...]:
        """The columns of a query inside."""
        return (*self.join.right, *STORED)

    def tables(self) -> tuple[TableSpec, ...]:
        """Return the table of the queries, by what identifies them, and their index, by terms."""
        names = self.identity
        keys = tuple((name, kind) for name, kind in self.join.right if name in names)
        values = tuple((name, kind) for name, kind in self.right if name not in names)
        rows = TableSpec(name=ROWS, keys=keys, values=values, by=(tuple(name for name, _ in keys),))
        index = TableSpec(name=TERMS, keys=(("term", "VARCHAR"), *keys), values=(), by=(("term",), rows.by[0]))
        return (rows, index)

    def before_exchange(self, side: int, rows: int, *, output: int, late: int | None) -> Operator | None:
        """Do nothing: the changes of a query stay in its shard."""
        del side, rows, output, late
        return None

    def run(self, inputs: Sequence[Delta], context: Context) -> StepResult:
        """Return the documents with the queries that they meet; then the changes of the queries are in the state."""
        left, right = (delta.tables for delta in inputs)
        delta = SearchRun(self, context).results(left, right) if left or right else []
        here = context.task == 0  # the same documents are in all shards
        return StepResult(delta, counts=Counts(rows_in=here * sum(part.num_rows for part in left)))


class SearchRun(LookupRun):
    """One epoch of one search in one shard, that has rows."""

    op: Search

    def __init__(self, op: Search, context: Context) -> None:
        super().__init__(op, context)
        self.keyed = context.keyed
        self.terms = op.terms
        self.by = list(op.tables()[0].by[0])

    def results(self, left: list[pa.Table], right: list[pa.Table]) -> list[pa.Table]:
        """Return the documents with their queries; then the changes of the queries are in the state."""
        changes = self.changes(right) if right else None
        relation = None if changes is None else self.duck.register(changes)
        found = list(self._found(pa.concat_tables(left), relation)) if left else []
        if changes is not None:
            self._index(changes)
            self.keep(changes)
        return found

    # -- the index

    def _index(self, changes: pa.Table) -> None:
        """Bring the index to what the last change of each query leaves."""
        last = changes.filter(pc.is_null(changes.column("_until")))
        kept = last.filter(pc.is_valid(last.column("o_row")))
        gone = np.empty(0, np.int64)
        if kept.num_rows:
            old = self.duck.register(kept.select(self.by))
            rows = self.state.lookup(TERMS, self.by, old)
            sql = f"SELECT s.rowid FROM {rows} s SEMI JOIN {old} d ON {alike('s', 'd', self.by)}"
            gone = self.duck.arrow(sql).column(0).to_numpy()
        names = ", ".join(self.by)
        source = self.duck.register(last.select([*self.by, "n", COVER]))
        term = f"CASE WHEN ends_with(term, '{STAR}') THEN left(rtrim(term, '{STAR}'), {MOST_BEGINNING}) || '{STAR}' "
        terms = f"SELECT {names}, unnest({COVER}) AS term FROM {source} WHERE n > 0"
        added = self.duck.arrow(
            f"SELECT DISTINCT {term}ELSE term END AS term, {names}, 1::BIGINT AS {COUNT} FROM ({terms})"
        )
        self.keyed.put(TERMS, added.select(self.state.tables[TERMS].columns), gone)

    def _queries(self, words: pa.Array, changes: str | None) -> pa.Table:
        """Return the queries that may be met: rows of the table with the times of their presence."""
        begun = [pc.binary_join_element_wise(each, STAR, "") for each in beginnings(words, MOST_BEGINNING)]
        probe = self.duck.register(pa.table({"term": pa.concat_arrays([words, *begun])}))
        terms = self.state.lookup(TERMS, ["term"], probe)
        names = ", ".join(self.by)
        keys = self.duck.arrow(f"SELECT DISTINCT {names} FROM {terms} s SEMI JOIN {probe} p ON s.term = p.term")
        rows = self.state.lookup(ROWS, self.by, self.duck.register(keys))
        if changes is None:
            return self.duck.large(f"SELECT * EXCLUDE rowid FROM {rows}")
        return self.duck.large(f"SELECT * FROM {self.table(rows, changes, [name for name, _ in self.op.right])}")

    # -- documents

    def _found(self, documents: pa.Table, changes: str | None) -> Iterator[pa.Table]:
        """Yield the step's delta, in the order of the documents."""
        words = pc.unique(pc.list_flatten(documents.column(self.terms)))
        queries = self._queries(words, changes)
        stored_queries = Queries(*(queries.column(name) for name, _ in STORED))
        counts = pc.max_element_wise(pc.fill_null(queries.column(COUNT), 1), 1).to_numpy()
        documents_only = documents.drop_columns([self.terms])
        for document, query in matches(documents.column(self.terms), stored_queries, _during(documents, queries)):
            often = counts[query]
            if len(query):
                yield self._rows(documents_only, queries, document.repeat(often), query.repeat(often))

    def _rows(self, documents: pa.Table, queries: pa.Table, document: Longs, query: Longs) -> pa.Table:
        """Return the columns of the step for pairs of a document and a query."""
        left = documents.take(pa.array(document))
        right = queries.select([name for name, _ in self.join.right]).take(pa.array(query))
        pairs = self.duck.register(pa.table([*left.columns, *right.columns], [*left.column_names, *right.column_names]))
        columns = [f"{sql}::{kind} AS {quote(name)}" for name, sql, kind in self.join.output]
        columns += ["_weight", "_time"]
        if self.op.arrived is not None:
            columns.append(f"{ARRIVAL} AS {quote(self.op.arrived)}")
        rows = self.duck.large(f"SELECT {', '.join(columns)} FROM {pairs}")
        self.duck.release(pairs)
        return rows


def _during(documents: pa.Table, queries: pa.Table) -> During | None:
    if "_from" not in queries.column_names:
        return None
    until = pc.fill_null(queries.column("_until"), NEVER)
    return During(*(column.to_numpy() for column in (documents.column(ARRIVAL), queries.column("_from"), until)))


def _with_stored(duck: Duck, rows: pa.Table, column: str) -> pa.Table:
    """Return rows with their query as it is stored, each distinct text read once."""
    texts = one_array(rows.column(column)).dictionary_encode()
    trees, errors = {}, {}
    for text in texts.dictionary.to_pylist():
        try:
            trees[text] = parsed(text)
        except QueryError as error:
            errors[text] = str(error)
    terms = analysed(duck, [word for tree in trees.values() for word in words_of(tree)])
    found = {}
    for text, tree in trees.items():
        try:
            found[text] = stored(tree, terms)
        except QueryError as error:
            errors[text] = str(error)
    distinct = texts.dictionary.to_pylist()
    for place, ((name, _), kind) in enumerate(zip(STORED, _TYPES, strict=True)):
        values = [found[text][place] if text in found else None for text in distinct]
        rows = rows.append_column(name, pa.array(values, kind).take(texts.indices))
    return rows.append_column(ERROR, pa.array([errors.get(text) for text in distinct], pa.string()).take(texts.indices))
