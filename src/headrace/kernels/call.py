"""Calls of the user's scalar functions: whole columns in, a whole column out, before the SQL that reads it.

DuckDB could call them from inside a query, but in pieces of 2048 rows, and twice where a filter reads what a select
makes: so a column is made here, once, whatever reads it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.base.errors import FunctionError
from headrace.base.names import quote
from headrace.base.schema import type_name
from headrace.kernels import blame
from headrace.kernels.duck import typed, without_zones

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.kernels.duck import Duck
    from headrace.kernels.spec import Call, FunctionCall

_FAMILIES: tuple[Callable[[pa.DataType], bool], ...] = (
    lambda kind: pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind),
    lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind) or kind == pa.string_view(),
    lambda kind: (
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
        or kind == pa.binary_view()
    ),
    pa.types.is_timestamp,
    pa.types.is_date,
    pa.types.is_boolean,
    lambda kind: pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind),
    pa.types.is_map,
    pa.types.is_struct,
)


def called(duck: Duck, op: Call, rows: pa.Table) -> pa.Table:
    """Return rows with a column for each call, in the order of the calls: a later one may read an earlier column.

    Raises:
        FunctionError: a function raised, or gave back what it had not promised.

    """
    for call in op.calls:
        made = _Calling(op.step, call).column(_arguments(duck, call, rows))
        rows = rows.append_column(call.column, without_zones(pa.table({"": made})).column(0))
    return rows


def _arguments(duck: Duck, call: FunctionCall, rows: pa.Table) -> list[pa.Array]:
    """Compute the arguments, row for row; a plain column is taken as it is."""
    plain = {quote(name): name for name in rows.column_names}
    names = [plain.get(sql, f"_x{i}") for i, (sql, _) in enumerate(call.arguments)]
    missing = [f"{sql} AS {name}" for (sql, _), name in zip(call.arguments, names, strict=True) if sql not in plain]
    source = rows
    if missing:
        computed = duck.arrow(f"SELECT {', '.join(missing)} FROM {duck.register(rows)}")
        for name in computed.column_names:
            source = source.append_column(name, computed.column(name))
    schema = pa.schema([(f"_{i}", kind) for i, (_, kind) in enumerate(call.arguments)])
    given = pa.table([source.column(name) for name in names], names=schema.names)
    return [whole(column) for column in typed(given, schema).columns]


def whole(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array where it fits into one, else (text of 2 GB) as it is."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


class _Calling:
    """One call over one batch, and the search for who is to blame when it fails."""

    def __init__(self, step: str, call: FunctionCall) -> None:
        self.step = step
        self.call = call

    def column(self, arguments: list[pa.Array]) -> pa.Array:
        try:
            return self._made(arguments)
        except Wrong as wrong:
            raise self._error(wrong, arguments) from wrong.__cause__

    def _made(self, arguments: list[pa.Array]) -> pa.Array:
        function, count = self.call.function, len(arguments[0])
        try:
            made = function(*arguments)
        except Exception as error:
            raise Wrong(f"raised {blame.said(error)}", error, of_rows=True) from error
        if not isinstance(made, pa.Array | pa.ChunkedArray):
            raise Wrong(f"gave {type(made).__name__}, not a pyarrow.Array")
        if len(made) != count:
            raise Wrong(f"gave {len(made)} values for {count} rows")
        return fitted(made, self.call.returns)

    def _error(self, wrong: Wrong, arguments: list[pa.Array]) -> FunctionError:
        where = blame.place(self.call.function, wrong.error)
        detail = blame.NOT_COMMITTED
        if wrong.of_rows:
            row = blame.first_failing(lambda start, length: self._works(arguments, start, length), len(arguments[0]))
            if row is None:
                found = f"No row of the {len(arguments[0])} in this batch fails alone."
            else:
                found = f"The first row that fails: {self.call.name}({blame.shown(arguments, row)})."
            detail = f"{found} It was called again with parts of the batch to find that. {detail}"
        return FunctionError(f'step "{self.step}": {where}, called as {self.call.name}, {wrong.what}', detail=detail)

    def _works(self, arguments: list[pa.Array], start: int, length: int) -> bool:
        try:
            self._made([argument.slice(start, length) for argument in arguments])
        except Wrong:
            return False
        return True


class Wrong(Exception):
    """What is wrong with a call; `of_rows`: it may be the fault of one of them."""

    def __init__(self, what: str, error: BaseException | None = None, *, of_rows: bool = False) -> None:
        super().__init__(what)
        self.what = what
        self.error = error
        self.of_rows = of_rows


def fitted(made: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return what a function gave in the type that was declared, where no value changes by that.

    Raises:
        Wrong: the type is another, or a value does not fit.

    """
    if made.type == kind:
        return made
    if not _alike(made.type, kind):
        raise Wrong(f"gave {_shown(made.type)}, not the {type_name(kind)} that returns= says")
    try:
        return made.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        text = " ".join(str(error).split())
        raise Wrong(f"gave {_shown(made.type)} that does not fit {type_name(kind)}: {text}", of_rows=True) from None


def _alike(one: pa.DataType, other: pa.DataType) -> bool:
    if pa.types.is_null(one):
        return True
    if pa.types.is_dictionary(one):
        return _alike(one.value_type, other)
    if not any(family(one) and family(other) for family in _FAMILIES):
        return False
    if pa.types.is_struct(one):
        return [f.name for f in one] == [f.name for f in other] and all(
            _alike(a.type, b.type) for a, b in zip(one, other, strict=True)
        )
    inner = zip(_inside(one), _inside(other), strict=True)
    return all(_alike(a, b) for a, b in inner)


def _inside(kind: pa.DataType) -> list[Any]:
    if pa.types.is_map(kind):
        return [kind.key_type, kind.item_type]
    return [kind.field(i).type for i in range(kind.num_fields)]


def _shown(kind: pa.DataType) -> str:
    from headrace.base.errors import InvalidSchema

    try:
        return type_name(kind)
    except InvalidSchema:
        return str(kind)
