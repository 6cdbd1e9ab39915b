"""The functions of the user's that `app.function` declares, checked at that line."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.base.errors import InvalidFunction
from headrace.base.names import check_identifier
from headrace.base.schema import as_schema, parse_type, type_name
from headrace.expressions import UserFunction, refused_name

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

METHODS = {"init": 1, "merge": 2, "result": 1}
"""The methods of an aggregate besides `add`, with how many arguments they get."""


def check_name(name: str, taken: Collection[str]) -> str:
    """Return a name that a function of the user's may have.

    Raises:
        InvalidName: it is no identifier.
        InvalidFunction: it is taken.

    """
    check_identifier(name, what="function")
    if name.lower() in taken:
        raise InvalidFunction(
            f'the app has a function "{name}" already',
            detail="Names of functions do not depend on case.",
            hint="Give one of them another name.",
        )
    why = refused_name(name)
    if why:
        raise InvalidFunction(f'"{name}" cannot be the name of a function of yours', detail=why,
                              hint=f'Call it "my_{name}".')  # fmt: skip
    return name


def scalar_function(name: str, function: Callable[..., Any], returns: str | pa.DataType, takes: Any) -> dict[str, Any]:
    """Return the properties of a scalar function, as `UserFunction` takes them.

    Raises:
        InvalidFunction: it cannot be called with arrays alone, or `returns` or `takes` do not fit.

    """
    if not callable(function) or isinstance(function, type):
        missing = [each for each in ("init", "add", "merge", "result") if not callable(getattr(function, each, None))]
        raise InvalidFunction(
            f'"{name}" is given {function!r}, which is no function',
            detail=f"It is no aggregate either: it has no {', no '.join(missing)}.",
            hint="Give a function of arrays, or an object with state, init, add, merge and result.",
        )
    kinds = _types(name, takes)
    least, most = _expression_arguments(name, function, given=0, kinds=kinds)
    return {"function": function, "returns": _type(name, returns), "takes": kinds, "least": least, "most": most}


def is_aggregate(function: Any) -> bool:
    """Whether the user's object is an aggregate."""
    return callable(getattr(function, "add", None)) and callable(getattr(function, "merge", None))


def aggregate_function(name: str, given: Any, returns: str | pa.DataType, takes: Any) -> dict[str, Any]:
    """Return the properties of an aggregate, as `UserFunction` takes them.

    It is an object with `state`, `init`, `add`, `merge`, `result` and perhaps `remove`, or a class of such objects.

    Raises:
        InvalidFunction: something is missing, or `returns` or `takes` do not fit.

    """
    aggregate = _aggregate_object(name, given)
    for method, count in METHODS.items() | ({("remove", 2)} if hasattr(aggregate, "remove") else set()):
        _check_method(name, aggregate, method, count)
    state = getattr(aggregate, "state", None)
    if not isinstance(state, str | pa.Schema):
        raise InvalidFunction(
            f'the aggregate "{name}" does not say what its state is',
            hint='Give it an attribute, for example state = "n bigint, total double".',
        )
    kinds = _types(name, takes)
    least, most = _expression_arguments(name, aggregate.add, given=1, kinds=kinds)
    properties = {"function": aggregate, "returns": _type(name, returns), "takes": kinds, "least": least, "most": most}
    return properties | {"state": as_schema(state)}


def _aggregate_object(name: str, given: Any) -> Any:
    if not isinstance(given, type):
        return given
    try:
        return given()
    except TypeError as error:
        raise InvalidFunction(
            f'the aggregate "{name}" cannot be created: {error}', hint=f"Give an object: {given.__name__}(…)."
        ) from None


def _check_method(name: str, aggregate: Any, method: str, count: int) -> None:
    function = getattr(aggregate, method, None)
    if not callable(function):
        raise InvalidFunction(
            f'the aggregate "{name}" has no method {method}',
            hint="It needs init(count), add(groups, …), merge(left, right) and result(states).",
        )
    least, most = _argument_counts(name, function)
    if not least <= count <= (count if most is None else most):
        raise InvalidFunction(f'{method} of the aggregate "{name}" cannot be called with {count} argument(s)')


def _expression_arguments(
    name: str, function: Callable[..., Any], *, given: int, kinds: Sequence[pa.DataType] | None
) -> tuple[int, int | None]:
    """Return the least and the most arguments in an expression; we pass `given` more."""
    least, most = _argument_counts(name, function)
    if most is not None and most <= given:
        raise InvalidFunction(
            f'the function "{name}" takes no argument, so it cannot know how many values to return',
            hint="Give it at least one argument: the result has its length.",
        )
    least, most = max(least - given, 1), None if most is None else most - given
    if kinds is None:
        return least, most
    if not least <= len(kinds) <= (len(kinds) if most is None else most):
        raise InvalidFunction(f'takes of "{name}" has {len(kinds)} type(s), but the function takes {least} to {most}')
    return len(kinds), len(kinds)


def _argument_counts(name: str, function: Callable[..., Any]) -> tuple[int, int | None]:
    """Return the least and the most arguments by position; of some functions in C they are not known."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return 0, None
    needed = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
    if needed:
        raise InvalidFunction(
            f'the function "{name}" needs {", ".join(needed)} as a keyword; it is called with arrays by position'
        )
    plain = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    endless = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    return sum(p.default is p.empty for p in plain), None if endless else len(plain)


def _type(name: str, kind: str | pa.DataType) -> pa.DataType:
    if isinstance(kind, pa.DataType):
        return parse_type(type_name(kind))
    if isinstance(kind, str):
        return parse_type(kind)
    raise InvalidFunction(f'"{name}": {kind!r} is no type', hint='Say it in DDL text, for example "array<string>".')


def _types(name: str, takes: Any) -> tuple[pa.DataType, ...] | None:
    """Return the types of `"string, decimal(10, 2)"`, or of a sequence of them."""
    if takes is None:
        return None
    if not isinstance(takes, str | Sequence) or isinstance(takes, bytes):
        raise InvalidFunction(
            f'"{name}": takes={takes!r} is no list of types', hint='For example takes="string, double".'
        )
    if not isinstance(takes, str):
        return tuple(_type(name, each) for each in takes)
    parts, depth = [""], 0
    for letter in takes:
        depth += (letter in "<(") - (letter in ">)")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return tuple(parse_type(part) for part in parts)


def user_function(name: str, properties: dict[str, Any], *, deterministic: bool, version: object) -> UserFunction:
    """Return the function as expressions call it.

    Raises:
        InvalidFunction: an aggregate is not deterministic.

    """
    if "state" in properties and not deterministic:
        raise InvalidFunction(
            f'the aggregate "{name}" must be deterministic',
            detail="Its result is computed again whenever it is corrected.",
        )
    return UserFunction(
        name=name, deterministic=bool(deterministic), version=None if version is None else str(version), **properties
    )
