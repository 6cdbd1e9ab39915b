"""The rules for a step when it is declared: columns, types and keys. Each rule raises at the user's line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.base.errors import (
    InvalidExpression,
    InvalidPlan,
    Nondeterministic,
    SealedColumn,
    UnknownColumn,
    WrongColumnType,
)
from headrace.base.names import IDENTIFIER, is_unicode
from headrace.base.schema import TIMESTAMP, is_reserved, type_name
from headrace.expressions.sketches import Sketch
from headrace.plan.corrected import uncorrected
from headrace.plan.windows import AlignedWindow, SessionWindow

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from headrace.expressions import Aggregates, Scalar
    from headrace.plan.nodes import Node
    from headrace.plan.windows import Window

TIME_EXPRESSIONS = (
    'event_time="timestamp_seconds(ts)" of seconds since 1970, "timestamp_millis(ts)" of milliseconds, '
    '"cast(ts as timestamp)" of text'
)
_INSIDE = re.compile(r"_a\d+|_result\d+|_window(_last)?", re.IGNORECASE)


def has_column(column: str, schema: pa.Schema, *, step: str) -> str:
    """Return `column` if the schema has it.

    Raises:
        UnknownColumn: it has not; the nearest name is the hint.

    """
    if not isinstance(column, str) or column not in schema.names:
        raise UnknownColumn(str(column), step=step, columns=schema.names)
    return column


def named(text: str, schema: pa.Schema, *, step: str, verb: str) -> str:
    """Return a positional argument that is a column; an expression there wants a name.

    Raises:
        InvalidExpression: it is an expression; the hint says how to name its result.
        UnknownColumn: it is the name of no column.

    """
    if isinstance(text, str) and text not in schema.names and not IDENTIFIER.fullmatch(text.strip("` ")):
        quoted = text if '"' not in text else text.replace('"', "'")
        either = f', or {verb}("{quoted} AS x")' if verb == "select" else ""
        raise InvalidExpression(
            f'step "{step}": {text!r} is an expression, and its result has no name',
            hint=f'Name it: {verb}(x="{quoted}"){either}.',
        )
    return has_column(text, schema, step=step)


def columns(names: str | Sequence[str] | None, schema: pa.Schema, *, step: str) -> tuple[str, ...]:
    """Return names as a tuple, each known to the schema; None is no name."""
    if names is None:
        return ()
    if not isinstance(names, str | Iterable) or isinstance(names, Mapping | bytes):
        raise InvalidPlan(
            f'step "{step}": {names!r} names no columns', hint='Give a name, or several: "id", or ["id", "day"].'
        )
    listed = (names,) if isinstance(names, str) else tuple(names)
    for name in listed:
        has_column(name, schema, step=step)
    no_repeats(listed, step=step)
    return listed


def event_time(column: str | None, schema: pa.Schema, *, step: str) -> str | None:
    """Return the event-time column if it is there and is a timestamp."""
    if column is None:
        return None
    kind = schema.field(has_column(column, schema, step=step)).type
    if not pa.types.is_timestamp(kind):
        role, hint = "the event time", f"Or say how to compute it: {TIME_EXPRESSIONS}."
        raise WrongColumnType(column, step=step, is_type=type_name(kind), needs="timestamp", role=role, hint=hint)
    return column


def sent_time(column: str, event_time: str | None, schema: pa.Schema, *, step: str) -> None:
    """Refuse a time of sending that cannot correct the event time: both are of one device's clock.

    Raises:
        InvalidPlan: there is no event time, or the name of the uncorrected one is taken.
        UnknownColumn: the column is not there.
        WrongColumnType: one of them is no instant.

    """
    if event_time is None:
        raise InvalidPlan(
            f'step "{step}": sent_time="{column}" has no event time to correct',
            hint='Name the column that says when it happened too: event_time="at"; an expression is not corrected.',
        )
    for name, role in ((column, "the sent time"), (event_time, "an event time that is corrected")):
        kind = schema.field(has_column(name, schema, step=step)).type
        if kind != TIMESTAMP:
            raise WrongColumnType(name, step=step, is_type=type_name(kind), needs="timestamp", role=role)
    no_repeats([*schema.names, uncorrected(event_time)], step=step)


def groupable(names: Iterable[str], schema: pa.Schema, *, step: str) -> None:
    """Refuse a map as a key: maps have no equality in SQL."""
    for name in names:
        kind = schema.field(name).type
        if pa.types.is_map(kind):
            raise WrongColumnType(name, step=step, is_type=type_name(kind), needs="anything but a map", role="a key")


def reserved_keys(names: Iterable[str], *, step: str) -> None:
    """Refuse keys with a name that Headrace uses inside for results and windows.

    Raises:
        InvalidPlan: one is.

    """
    for name in names:
        if _INSIDE.fullmatch(name):
            plain = name.lstrip("_")
            raise InvalidPlan(
                f'step "{step}" groups by "{name}", a name that Headrace uses inside',
                hint=f'Give it another one: group_by({plain}="{name}").',
            )


def private(
    given: Mapping[str, str] | Sequence[str] | str | None, schema: pa.Schema, *, step: str
) -> tuple[tuple[str, str | None], ...]:
    """Return a source's private columns, each with the column of its subject, or None.

    Raises:
        UnknownColumn: a column is not there.
        WrongColumnType: one holds no text or bytes.

    """
    pairs = (
        [*given.items()] if isinstance(given, Mapping) else [(name, None) for name in columns(given, schema, step=step)]
    )
    for name, subject in pairs:
        if subject is not None:
            has_column(subject, schema, step=step)
        kind = schema.field(has_column(name, schema, step=step)).type
        inner = kind.value_type if pa.types.is_list(kind) else kind
        if not (pa.types.is_string(inner) or pa.types.is_binary(inner)):
            raise WrongColumnType(name, step=step, is_type=type_name(kind), needs="string or binary", role="private")
    return tuple(pairs)


def not_sealed(names: Iterable[str], sealed: Collection[str], *, step: str, role: str) -> None:
    """Refuse private columns as keys: a token is equal to another only if value and subject are.

    Raises:
        SealedColumn: one is.

    """
    for name in names:
        if name in sealed:
            raise SealedColumn(
                f'step "{step}": the column "{name}" is private and cannot be {role}',
                detail="An app keeps private values sealed; equal values of two subjects are not equal there.",
                hint="Take the column of the subject, or another one that is not private.",
            )


def no_sealed_input(sealed: Collection[str], *, step: str, what: str) -> None:
    """Refuse to hand private columns to a function, which would only see tokens.

    Raises:
        SealedColumn: there are some.

    """
    if sealed:
        names = ", ".join(sorted(sealed))
        raise SealedColumn(
            f'step "{step}": {what} would see the private columns sealed: {names}',
            detail="An app keeps private values sealed, so that forgetting a subject reaches every copy.",
            hint=f"Leave them out before it: .drop({', '.join(map(repr, sorted(sealed)))}).",
        )


def no_repeats(names: Sequence[str], *, step: str) -> None:
    """Refuse a step that makes two columns of one name, or one of Headrace's own names."""
    lower = [name.lower() for name in names]
    for name in names:
        if not name or "\0" in name or not is_unicode(name):
            raise InvalidPlan(
                f'step "{step}" makes a column {name!r}, which is no name', hint="Give it a name with letters."
            )
        if names.count(name) == 1 and lower.count(name.lower()) > 1:
            raise InvalidPlan(
                f'step "{step}" makes columns that differ in case alone: '
                + ", ".join(f'"{other}"' for other in names if other.lower() == name.lower()),
                hint="Give one of them another name.",
            )
        if names.count(name) > 1:
            raise InvalidPlan(
                f'step "{step}" makes the column "{name}" twice',
                hint="Give one of them another name.",
            )
        if is_reserved(name):
            raise InvalidPlan(f'step "{step}" makes a column "{name}", a name that Headrace uses itself')


def require_deterministic(expression: Scalar, *, step: str, withdrawn: bool) -> None:
    """Refuse a function that is not deterministic where rows are withdrawn: a withdrawal is computed again.

    Raises:
        Nondeterministic: `expression` calls one, and rows of its input may be withdrawn.

    """
    if withdrawn and not expression.deterministic:
        calls = _nondeterministic(expression)
        raise Nondeterministic(
            f'step "{step}": {calls} is not deterministic, and rows of this step are withdrawn and corrected',
            detail="A row is withdrawn by computing it again, so it must have the same values as the first time.",
            hint="Call it on the stream before the table, or on results that are final.",
        )


def branch_conditions(tests: Iterable[Scalar], *, step: str) -> None:
    """Refuse conditions that would send a row to two branches, or to none.

    Raises:
        Nondeterministic: a condition calls a function that is not deterministic.

    """
    for test in tests:
        if not all(call.deterministic for call in test.calls):  # the time of the epoch is the same in each
            calls = _nondeterministic(test)
            raise Nondeterministic(
                f'step "{step}": {calls} is not deterministic, and each branch computes the conditions again',
                hint="Make it a column first: .with_columns(drawn=…), and branch on that.",
            )


def aggregation(aggregates: Aggregates, *, step: str, withdrawn: bool, corrected: bool) -> None:
    """Refuse calls of the user's functions that could not be withdrawn or corrected.

    Raises:
        InvalidPlan: an aggregate without `remove` is given rows that may be withdrawn.
        Nondeterministic: a function that is not deterministic is given them, or makes results that are corrected.

    """
    for call in aggregates.calls:
        for argument in (*call.arguments, *((call.where,) if call.where else ())):
            require_deterministic(argument, step=step, withdrawn=withdrawn)
        if withdrawn and call.user is not None and isinstance(call.user.function, Sketch):
            raise InvalidPlan(
                f'step "{step}": rows of its input are withdrawn, and {call.function} is a sketch: it loses none',
                detail="Its input is a table: a row that changes is withdrawn and inserted again.",
                hint=f"Ask for the exact answer: {call.user.function.exact}; or sketch results that are final.",
            )
        if withdrawn and call.user is not None and not call.user.withdraws:
            raise InvalidPlan(
                f'step "{step}": {call.function} cannot take rows away, and rows of its input are withdrawn',
                detail="Its input is a table: a row that changes is withdrawn and inserted again.",
                hint=f"Give {call.function} a method remove(left, right), what merge(left, right) does taken back; "
                "or aggregate results that are final.",
            )
    for _, result in aggregates.results:
        require_deterministic(result, step=step, withdrawn=corrected)


def sessions(window: object, *, step: str, withdrawn: bool) -> None:
    """Refuse sessions of rows that may be withdrawn: a session that loses a row may fall apart.

    Raises:
        InvalidPlan: the window is a session, and rows of its input may be withdrawn.

    """
    if withdrawn and isinstance(window, SessionWindow):
        raise InvalidPlan(
            f'step "{step}": rows of its input are withdrawn, and a session cannot lose a row',
            detail="Its input is a table: a row that changes is withdrawn, and the session may fall apart without.",
            hint='Group results that are final (emit="final"), or the stream of what happened: .changes().',
        )


def row_times(window: Window | None, up: Node, *, step: str) -> None:
    """Refuse windows over rows that may be withdrawn, where nobody knows from which window.

    Raises:
        InvalidPlan: the rows do not carry the event time of their source any more.

    """
    if window is not None and up.time_column is None:
        raise InvalidPlan(
            f'step "{step}": rows of its input are withdrawn, and nobody knows from which window',
            detail="A row that changes leaves the window that it was in; the change says when it changed, not when the "
            "row happened.",
            hint='Say event_time="…" where the table is made, and keep that column up to here; or group the stream of '
            "what happened: .changes().",
        )


def ranked_window(window: Window | None, *, step: str) -> AlignedWindow | None:
    """Return the window of a ranking, if it is one whose bounds are known before its rows are.

    Raises:
        InvalidPlan: it is not.

    """
    if window is None or isinstance(window, AlignedWindow):
        return window
    raise InvalidPlan(
        f'step "{step}": rows cannot be ranked in such windows ({window})',
        detail="Their bounds follow from the rows, and change as rows arrive.",
        hint="Rank in tumbling, hopping or cumulating windows; or aggregate first, "
        '.window(…).agg(…), and rank the result: .group_by("window_end").top(…).',
    )


def bounds(aggregates: Aggregates, keys: Collection[str], *, step: str) -> None:
    """Refuse results that are computed from the bounds of their window, which are columns of the same row.

    Raises:
        InvalidPlan: one is.

    """
    for name, result in aggregates.results:
        used = sorted((result.columns & {"window_start", "window_end"}) - set(keys))
        if used:
            raise InvalidPlan(
                f'step "{step}": {name} reads {used[0]}, which the window adds to the result',
                hint=f'Compute it from the result: .agg(…).with_columns({name}="{result.text}").',
            )


def _nondeterministic(expression: Scalar) -> str:
    names = [call.function.name for call in expression.calls if not call.function.deterministic]
    return ", ".join(dict.fromkeys([*names, *(["the time of the epoch"] if expression.reads_clock else [])]))
