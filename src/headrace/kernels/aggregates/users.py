"""The user's aggregates: `init`, `add`, `merge`, `result` and `remove` over Arrow, as functions that DuckDB calls.

DuckDB groups the rows into lists and hands over some thousand groups at a time; what the user's methods see are whole
columns: the rows of all these groups with their group numbers, or the states of all these groups. A group without rows
has no state: null here, which no method ever sees.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.base.errors import FunctionError
from headrace.base.names import quote
from headrace.base.schema import duckdb_type, to_ddl, type_name
from headrace.kernels import blame
from headrace.kernels.aggregates.aggregate_spec import Accumulator
from headrace.kernels.arrays import one_array
from headrace.kernels.call import CallError, fitted
from headrace.kernels.duck import typed
from headrace.kernels.zones import without_zones

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from headrace.kernels.aggregates.aggregate_spec import UserAggregate
    from headrace.kernels.duck import Duck


class Sql:
    """The names and types under which DuckDB knows an aggregate's methods."""

    def __init__(self, user: UserAggregate) -> None:
        takes = [type_name(kind) for kind in user.takes]
        signature = f"{user.name} {takes} {to_ddl(user.state)} {type_name(user.returns)}"
        self.prefix = f"user_{sha256(signature.lower().encode()).hexdigest()[:16]}"
        self.takes = [duckdb_type(kind) for kind in user.takes]
        self.row = f"STRUCT({', '.join(f'a{i} {kind}' for i, kind in enumerate(self.takes))})"
        self.state = f"STRUCT({', '.join(f'{quote(f.name)} {duckdb_type(f.type)}' for f in user.state)})"
        self.returns = duckdb_type(user.returns)

    def call(self, method: str, *arguments: str) -> str:
        """Return SQL that calls a method."""
        return f"{self.prefix}_{method}({', '.join(arguments)})"

    def rows(self, arguments: Iterable[str]) -> str:
        """Return SQL for a row of arguments."""
        typed_ = zip(arguments, self.takes, strict=True)
        return f"struct_pack({', '.join(f'a{i} := ({sql})::{kind}' for i, (sql, kind) in enumerate(typed_))})"


def define(duck: Duck, step: str, users: Iterable[UserAggregate]) -> None:
    """Make aggregates callable in SQL; failures are of the step that defined them last."""
    for user in users:
        sql, run = Sql(user), _AggregateRun(duck, step, user)
        kinds: dict[str, tuple[list[str], str]] = {
            "add": ([f"{sql.row}[]"], sql.state),
            "fold": ([f"{sql.state}[]"], sql.state),
            "merge": ([sql.state, sql.state], sql.state),
            "remove": ([sql.state, sql.state], sql.state),
            "result": ([sql.state], sql.returns),
        }
        for method, (takes, returns) in kinds.items():
            duck.define(f"{sql.prefix}_{method}", getattr(run, method), takes, returns)


class _AggregateRun:
    """The functions that DuckDB calls for an aggregate; they take care of nulls and types before its methods run."""

    def __init__(self, duck: Duck, step: str, user: UserAggregate) -> None:
        self.duck = duck
        self.step = step
        self.user = user
        self.arguments = pa.schema([(f"a{i}", kind) for i, kind in enumerate(user.takes)])

    # ---- what DuckDB calls ----

    def add(self, lists_of_rows: pa.ChunkedArray) -> pa.Array:
        """Compute a state from each list of rows."""
        lists, present = _present(lists_of_rows)
        if not len(lists):
            return self._absent(len(lists_of_rows))
        groups = np.repeat(np.arange(len(lists)), pc.list_value_length(lists).to_numpy())
        rows = _columns(lists.flatten(), self.arguments)
        states = self._states("add", [pa.array(groups), *rows], len(lists))
        return _scattered(states, present)

    def fold(self, lists_of_states: pa.ChunkedArray) -> pa.Array:
        """Compute one state from each list of states, by merging neighbours."""
        lists, present = _present(lists_of_states)
        states = lists.flatten()
        groups = np.repeat(np.arange(len(lists)), pc.list_value_length(lists).to_numpy())
        valid = np.asarray(states.is_valid())
        states, groups = states.drop_null(), groups[valid]
        while len(groups) and len(states) > len(np.unique(groups)):
            states, groups = self._halved(states, groups)
        present[present] = np.isin(np.arange(len(lists)), groups)
        return _scattered(states, present) if len(states) else self._absent(len(lists_of_states))

    def merge(self, left: pa.ChunkedArray, right: pa.ChunkedArray) -> pa.Array:
        """Merge two states of each group."""
        return self._paired("merge", one_array(left), one_array(right), alone="either")

    def remove(self, left: pa.ChunkedArray, right: pa.ChunkedArray) -> pa.Array:
        """Take the second state of each group out of the first."""
        return self._paired("remove", one_array(left), one_array(right), alone="left")

    def result(self, column: pa.ChunkedArray) -> pa.Array:
        """Compute the results of states; a group without rows has that of `init`."""
        states = one_array(column)
        if states.null_count:
            states = pa.concat_arrays([states, self._empty(1)])
            positions = np.where(np.asarray(states.is_valid()), np.arange(len(states)), len(states) - 1)[:-1]
            states = states.take(pa.array(positions))
        results = pa.table({"": self._called("result", [self._table(states)], len(states))})
        return one_array(without_zones(results).column(0))

    # ---- inside ----

    def _paired(self, method: str, left: pa.Array, right: pa.Array, *, alone: str) -> pa.Array:
        ours, theirs = np.asarray(left.is_valid()), np.asarray(right.is_valid())
        if alone == "left" and (theirs & ~ours).any():  # removed from nothing
            left, ours = pc.if_else(pa.array(ours), left, self._empty(len(left))), ours | theirs
        both = np.flatnonzero(ours & theirs)
        count, positions = len(left), np.arange(len(left))
        if len(both):
            tables = [self._table(side.take(pa.array(both))) for side in (left, right)]
            joined = self._states(method, tables, len(both))
        else:
            joined = self._absent(0)
        positions = np.where(ours, positions, positions + count)
        positions[both] = 2 * count + np.arange(len(both))
        return pa.concat_arrays([_plain(left), _plain(right), joined]).take(pa.array(positions))

    def _halved(self, states: pa.Array, groups: np.ndarray[Any, Any]) -> tuple[pa.Array, np.ndarray[Any, Any]]:
        """Merge the first state of each group with its second, the third with the fourth, and so on."""
        first = np.searchsorted(groups, groups)
        even = np.flatnonzero((np.arange(len(groups)) - first) % 2 == 0)
        partner = even + 1
        paired = (partner < len(groups)) & (groups[np.minimum(partner, len(groups) - 1)] == groups[even])
        left, right = (self._table(states.take(pa.array(at[paired]))) for at in (even, partner))
        method = getattr(self.user.function, "folds_by", "merge")
        merged = self._states(method, [left, right], int(paired.sum()))
        order = np.argsort(np.concatenate([even[paired], even[~paired]]), kind="stable")
        together = pa.concat_arrays([merged, _plain(states.take(pa.array(even[~paired])))])
        return together.take(pa.array(order)), groups[even]

    def _empty(self, count: int) -> pa.Array:
        return self._states("init", [count], count)

    def _absent(self, count: int) -> pa.Array:
        fields = [pa.field(f.name, without_zones(pa.schema([f]).empty_table()).schema[0].type) for f in self.user.state]
        return pa.nulls(count, pa.struct(fields))

    def _table(self, states: pa.Array) -> pa.Table:
        return pa.table(_columns(states, self.user.state), schema=_bare(self.user.state))

    def _states(self, method: str, arguments: list[Any], count: int) -> pa.Array:
        return _struct(self._called(method, arguments, count))

    def _called(self, method: str, arguments: list[Any], count: int) -> Any:
        """Call a method of the user's and check its result; a failure is kept aside, where DuckDB cannot garble it."""
        function = getattr(self.user.function, method)
        try:
            return self._checked(function, method, arguments, count)
        except CallError as failure:
            self.duck.blamed = self._error(function, method, arguments, failure)
            raise self.duck.blamed from failure.__cause__

    def _checked(self, function: Callable[..., Any], method: str, arguments: list[Any], count: int) -> Any:
        try:
            returned = function(*arguments)
        except Exception as error:
            raise CallError(f"raised {blame.message(error)}", error, of_rows=True) from error
        if method == "result":
            return _column(returned, self.user.returns, count, "rows")
        return _state_table(returned, _bare(self.user.state), count)

    def _error(
        self, function: Callable[..., Any], method: str, arguments: list[Any], failure: CallError
    ) -> FunctionError:
        detail = blame.NOT_COMMITTED
        if failure.of_rows and method != "init":
            detail = f"{self._first_failure(function, method, arguments)} {detail}"
        where = blame.location(function, failure.error)
        return FunctionError(
            f'step "{self.step}": {where}, {method} of the aggregate {self.user.name}, {failure.what}', detail=detail
        )

    def _first_failure(self, function: Callable[..., Any], method: str, arguments: list[Any]) -> str:
        def works(start: int, length: int) -> bool:
            try:
                part = [argument.slice(start, length) for argument in arguments]
                if method == "add":
                    part[0] = pc.subtract(part[0], part[0][0])
                self._checked(function, method, part, len(pc.unique(part[0])) if method == "add" else length)
            except CallError:
                return False
            return True

        row = blame.first_failing(works, len(arguments[0]))
        again = "It was called again with parts of the batch to find that."
        if row is None:
            return f"No row of the {len(arguments[0])} in this batch fails alone. {again}"
        if method == "add":
            return f"The first row that fails: {self.user.name}({blame.row_text(arguments[1:], row)}). {again}"
        states = ", ".join(str(table.slice(row, 1).to_pylist()[0]) for table in arguments)
        return f"The first that fails: {method}({states}). {again}"


def _present(column: pa.ChunkedArray) -> tuple[pa.Array, np.ndarray[Any, Any]]:
    """Return the lists that have an element, and which lists have one."""
    lists = one_array(column)
    present = np.asarray(pc.fill_null(pc.greater(pc.list_value_length(lists), 0), fill_value=False))
    return lists.filter(pa.array(present)), present


def _scattered(states: pa.Array, present: np.ndarray[Any, Any]) -> pa.Array:
    """Put states back to the positions of their lists; elsewhere is null."""
    return states.take(pa.array(np.cumsum(present) - 1, mask=~present))


def _columns(rows: pa.Array, schema: pa.Schema) -> list[Any]:
    """Return the fields of structs from DuckDB as columns of the types that the user knows."""
    plain = pa.table(rows.flatten(), names=schema.names)
    return [one_array(column) for column in typed(plain, schema).columns]


def _struct(table: pa.Table) -> pa.Array:
    """Return states as DuckDB keeps them."""
    plain = without_zones(table)
    return pa.StructArray.from_arrays([one_array(column) for column in plain.columns], names=plain.column_names)


def _plain(states: pa.Array) -> pa.Array:
    """Return structs of DuckDB's in a type that can be concatenated with ours."""
    fields = [pa.field(field.name, field.type) for field in states.type]
    return states.cast(pa.struct(fields))


def _bare(schema: pa.Schema) -> pa.Schema:
    return pa.schema([(field.name, field.type) for field in schema])


def _column(returned: Any, kind: pa.DataType, count: int, what: str) -> Any:
    if not isinstance(returned, pa.Array | pa.ChunkedArray):
        raise CallError(f"gave {type(returned).__name__}, not a pyarrow.Array")
    if len(returned) != count:
        raise CallError(f"gave {len(returned)} values for {count} {what}")
    return fitted(returned, kind)


def _state_table(returned: Any, schema: pa.Schema, count: int) -> pa.Table:
    """Return the states that a method gave: a table, a batch, or columns by name."""
    if isinstance(returned, pa.Table | pa.RecordBatch):
        named: dict[str, Any] = {name: returned.column(name) for name in returned.schema.names}
    elif isinstance(returned, Mapping):
        named = dict(returned)
    else:
        raise CallError(f"gave {type(returned).__name__}, not states: a pyarrow.Table, or a dict of columns")
    if set(named) != set(schema.names):
        raise CallError(
            f"gave the columns {', '.join(map(str, named))}, not those of its state: {', '.join(schema.names)}"
        )
    columns = []
    for field in schema:
        column = named[field.name]
        if not isinstance(column, pa.Array | pa.ChunkedArray):
            try:
                column = pa.array(column, from_pandas=False)
            except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError) as error:
                raise CallError(f"gave a column {field.name} that is none: {' '.join(str(error).split())}") from None
        columns.append(_column(column, field.type, count, "groups"))
    return pa.table(columns, schema=schema)


def accumulator(
    user: UserAggregate, arguments: Iterable[str], where: str | None, *, insert_only: bool
) -> tuple[Accumulator, str]:
    """Return the accumulator that an aggregate is kept as, and SQL for its result over `{p}`.

    Rows added and rows withdrawn have states of their own (`came`, `went`: names in files) until both reach the kept
    state: only there can a row be removed.
    """
    sql = Sql(user)
    row = sql.rows(arguments)
    if insert_only:
        rows = f"list({row}){f' FILTER (WHERE {where})' if where else ''}"
        kept = Accumulator(
            type=sql.state,
            partial=sql.call("add", rows),
            fold="list",
            finish=sql.call("fold", "{f}"),
            merge=sql.call("merge", "{o}", "{d}"),
        )
        return kept, sql.call("result", "{p}")
    more = f" AND ({where})" if where else ""

    def added(sign: str, test: str) -> str:
        repeated = f"list_resize([{row}], greatest({sign}_weight, 0)::BIGINT, {row})"
        return sql.call("add", f"flatten(list({repeated}) FILTER (WHERE _weight {test} 0{more}))")

    def folded(side: str) -> str:
        return sql.call("fold", f"list_transform({{f}}, lambda x: x.{side})")

    came = sql.call("remove", sql.call("merge", "{o}.came", "{d}.came"), "{d}.went")
    kept = Accumulator(
        type=f"STRUCT(came {sql.state}, went {sql.state})",
        partial=f"struct_pack(came := {added('', '>')}, went := {added('-', '<')})",
        fold="list",
        finish=f"struct_pack(came := {folded('came')}, went := {folded('went')})",
        merge=f"struct_pack(came := {came}, went := NULL::{sql.state})",
    )
    return kept, sql.call("result", "{p}.came")
