"""The verbs that choose and compute columns, as nodes of the plan."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.base import arguments
from headrace.base.errors import InvalidPlan, WrongColumnType
from headrace.base.schema import as_schema, type_name
from headrace.plan import check
from headrace.plan.nodes import Explode, MapBatches, Select

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from headrace.dsl.verb import Verb
    from headrace.expressions import Scalar

_ALIAS = re.compile(r"(?is)^(.*\S)\s+as\s+(?:`(.+)`|([a-z_]\w*))\s*$")


def select_node(verb: Verb, texts: Sequence[str], named: Mapping[str, str]) -> Select:
    """Return the step of `select`: columns and `expression AS name` in `texts`, expressions by name in `named`.

    Raises:
        UnknownColumn: a name is not there.
        PlanError: an expression cannot be read or has a wrong type, or a name is taken.

    """
    columns: list[tuple[str, Scalar]] = []
    for text in texts:
        if text == "*":
            columns += verb.columns()
        elif text in verb.schema.names:
            columns.append((text, verb.column(text)))
        elif isinstance(text, str) and (alias := _ALIAS.match(text)):
            columns.append((alias[2] or alias[3], verb.scalar(alias[1])))
        else:
            check.named(text, verb.schema, step=verb.step, verb="select")
    columns += [(name, verb.scalar(text)) for name, text in named.items()]
    return _selected(verb, columns)


def with_columns_node(verb: Verb, named: Mapping[str, str]) -> Select:
    """Return the step of `with_columns`: all columns, those of `named` added or replaced.

    Raises:
        PlanError: an expression cannot be read, or a name is taken.

    """
    computed = {name: verb.scalar(text) for name, text in named.items()}
    return _selected(verb, list((dict(verb.columns()) | computed).items()))


def drop_node(verb: Verb, names: Sequence[str]) -> Select:
    """Return the step of `drop`: the other columns.

    Raises:
        UnknownColumn: a name is not there.
        InvalidPlan: no column is left.

    """
    dropped = check.columns(names, verb.schema, step=verb.step)
    return _selected(verb, [(name, column) for name, column in verb.columns() if name not in dropped])


def rename_node(verb: Verb, new_old: Mapping[str, str]) -> Select:
    """Return the step of `rename`: all columns, some under new names.

    Raises:
        UnknownColumn: an old name is not there.
        InvalidPlan: two columns would have one name, or one column two.

    """
    new = {check.has_column(old, verb.schema, step=verb.step): name for name, old in new_old.items()}
    if len(new) < len(new_old):
        twice = next(old for old in new if list(new_old.values()).count(old) > 1)
        raise InvalidPlan(
            f'step "{verb.step}" gives the column "{twice}" two names',
            hint=f'To have it twice say .with_columns(other="{twice}").',
        )
    return _selected(verb, [(new.get(name, name), column) for name, column in verb.columns()])


def _selected(verb: Verb, columns: list[tuple[str, Scalar]]) -> Select:
    check.no_repeats([name for name, _ in columns], step=verb.step)
    if not columns:
        raise InvalidPlan(f'step "{verb.step}" leaves no column')
    schema = pa.schema([(name, column.type) for name, column in columns])
    return Select(up=verb.node, schema=schema, columns=tuple(columns), shown=verb.name)


def explode_node(verb: Verb, text: str, names: str | Sequence[str]) -> Explode:
    """Return the step of `explode`: a row for each element of an array, or each entry of a map.

    Raises:
        UnknownColumn: the column is not there.
        WrongColumnType: it is neither array nor map.
        InvalidPlan: `names` does not fit it.

    """
    column = verb.scalar(text)
    into = arguments.name_list(names, "as_")
    check.no_repeats(into, step=verb.step)
    types = _exploded_types(column, verb.step, text)
    if len(into) != len(types):
        raise InvalidPlan(
            f'step "{verb.step}": {type_name(column.type)} explodes into {len(types)} column(s), {len(into)} named',
            hint='For a map give two names: as_=("key", "value").',
        )
    fields = {field.name: field.type for field in verb.schema} | dict(zip(into, types, strict=True))
    return Explode(up=verb.node, schema=pa.schema(list(fields.items())), column=column, into=into)


def _exploded_types(column: Scalar, step: str, text: str) -> list[pa.DataType]:
    if pa.types.is_map(column.type):
        return [column.type.key_type, column.type.item_type]
    if pa.types.is_list(column.type):
        return [column.type.value_type]
    raise WrongColumnType(text, step=step, is_type=type_name(column.type), needs="an array or a map", role="exploded")


def map_batches_node(verb: Verb, function: Callable[[pa.Table], pa.Table], schema: str | pa.Schema) -> MapBatches:
    """Return the step of `map_batches`.

    Raises:
        InvalidPlan: `function` cannot be called.
        SealedColumn: it would get private columns.
        InvalidSchema: `schema` cannot be read.

    """
    if not callable(function):
        raise InvalidPlan(f"map_batches needs a function, not {function!r}")
    check.no_sealed_input(verb.node.sealed, step=verb.step, what="the function")
    return MapBatches(up=verb.node, schema=as_schema(schema), function=function)
