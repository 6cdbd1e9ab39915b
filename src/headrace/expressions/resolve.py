"""Calls: a name and arguments find their entry in the table, or an error that says what to do instead."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from headrace.base.errors import (
    InvalidExpression,
    Nondeterministic,
    UnknownFunction,
    UnsupportedFunction,
    did_you_mean,
)
from headrace.expressions import kinds as k
from headrace.expressions.casts import cast
from headrace.expressions.coercion import implicit, unify
from headrace.expressions.functions import Function
from headrace.expressions.grammar import parse
from headrace.expressions.mismatch import Mismatch
from headrace.expressions.table import AGGREGATES, TABLE, spark_names
from headrace.expressions.values import Closure, Value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import pyarrow as pa

    from headrace.expressions.compiling import Compiling

WAYS_ON = (
    "app.function(name, fn, returns=…) makes a function of yours one that expressions know, .map_batches(fn, schema)"
    " computes whole batches, and app.read(frame) takes a streaming DataFrame in which Spark has computed it."
)


def call(compiler: Compiling, name: str, trees: Sequence[exp.Expression], text: str) -> Value:
    """Return the value of a call.

    Raises:
        PlanError: the function is not known, not supported, or does not take these arguments.

    """
    lower = name.lower()
    forms = TABLE.get(lower)
    if forms is None and lower in compiler.functions:
        if compiler.inside_lambda:
            raise Mismatch(
                f"{name} is a function of yours, which cannot be inside a lambda",
                hint="Give it the whole array, or make a row of each element first with .explode(…).",
                condition=UnsupportedFunction,
            )
        return compiler.user_calls.add(compiler.functions[lower], compiler.all(list(trees)), text)
    if forms is None:
        raise refusal(name, step=compiler.step, declared=compiler.functions)
    words = len(trees) > 1 and any(form.takes[:1] == ("word",) and _count_fits(form, len(trees)) for form in forms)
    values = [
        _word(tree) if words and i == 0 and _is_bare(tree) else _given(compiler, tree) for i, tree in enumerate(trees)
    ]
    return replace(_choose(lower, forms, values), text=text)


def _given(compiler: Compiling, tree: exp.Expression) -> Value:
    return compiler.closure(tree) if type(tree).__name__ == "Lambda" else compiler.compile(tree)


def refusal(name: str, *, step: str, declared: Iterable[str] = ()) -> Exception:
    """Return the error for a function that the table does not have."""
    lower = name.lower()
    where = f'step "{step}"'
    if lower in AGGREGATES:
        return InvalidExpression(
            f"{where}: {lower} is an aggregate", hint="Aggregates are possible in .group_by(…).agg(…) only."
        )
    if lower in spark_names.NONDETERMINISTIC:
        return Nondeterministic(
            f"{where}: {lower}() {spark_names.NONDETERMINISTIC[lower]}", hint=spark_names.NONDETERMINISTIC_HINT
        )
    if lower in spark_names.REFUSED:
        return UnsupportedFunction(f"{where}: {lower}() is not supported: {spark_names.REFUSED[lower]}", hint=WAYS_ON)
    if lower in spark_names.SPARK:
        return UnsupportedFunction(f"{where}: {lower}() is a function of Spark's that is not supported", hint=WAYS_ON)
    if lower == "reveal":  # the opposite of sealing, which readers do
        return UnsupportedFunction(
            f"{where}: an app cannot unseal a private column: what it computes would stay in its state after forget",
            hint="Compute what you need of a value before it is appended. Readers of views, topics and stores see "
            "values: they unseal as they read, until the subject is forgotten.",
        )
    suggestion = did_you_mean(lower, [*TABLE, *AGGREGATES, *declared])
    return UnknownFunction(f'{where}: there is no function "{name}"', hint=f"{suggestion} {WAYS_ON}".strip())


def refused_name(name: str) -> str:
    """Return why a function of the user's may not have this name, or an empty text."""
    lower = name.lower()
    if lower in TABLE or lower in AGGREGATES:
        return "Expressions have a function of this name."
    if lower in spark_names.SPARK or lower in spark_names.REFUSED or lower in spark_names.NONDETERMINISTIC:
        return "Spark has a function of this name: what reads it would expect Spark's, and a later release may have it."
    try:
        tree = parse(f"{name}(x)", step="")
    except InvalidExpression:
        tree = None
    return "" if isinstance(tree, exp.Anonymous) and tree.name == name else "It is a word of SQL."


def _is_bare(tree: exp.Expression) -> bool:
    return type(tree).__name__ in ("Column", "Var", "Identifier") and not tree.args.get("table")


def _word(tree: exp.Expression) -> Value:
    return Value(tree.name, tree.name, k.STRING, constant=tree.name)


def _choose(name: str, forms: Sequence[Function], values: list[Value]) -> Value:
    fitting = [form for form in forms if _count_fits(form, len(values))]
    if not fitting:
        raise Mismatch(f"{name} takes {_counts(forms)}, not {len(values)} arguments", hint=_usage(name, forms))
    for form in fitting:
        arguments = _arguments(form, values, name)
        if arguments is not None:
            return form.apply(arguments)
    raise Mismatch(f"{name} does not take ({_shown(values)})", hint=_usage(name, forms))


def _shown(values: Sequence[Value]) -> str:
    return ", ".join("function" if isinstance(v.constant, Closure) else k.shown(v.type) for v in values)


def _usage(name: str, forms: Sequence[Function]) -> str:
    if not name[0].isalpha():
        return ""
    return "It takes " + " or ".join(dict.fromkeys(f"{name}({', '.join(form.takes)})" for form in forms)) + "."


def _classes(form: Function, count: int) -> list[str]:
    classes = [part.strip("[]") for part in form.takes]
    if classes and classes[-1].endswith("..."):
        last = classes.pop().removesuffix("...")
        classes += [last] * (count - len(classes))
    return classes[:count]


def _bounds(form: Function) -> tuple[int, int | None]:
    least = sum(not part.startswith("[") for part in form.takes)
    endless = bool(form.takes) and form.takes[-1].strip("[]").endswith("...")
    return least, None if endless else len(form.takes)


def _count_fits(form: Function, count: int) -> bool:
    least, most = _bounds(form)
    return least <= count and (most is None or count <= most)


def _counts(forms: Sequence[Function]) -> str:
    counts = []
    for form in forms:
        least, most = _bounds(form)
        counts.append(f"{least} or more" if most is None else str(least) if least == most else f"{least} to {most}")
    return " or ".join(dict.fromkeys(counts))


def arguments(name: str, takes: tuple[str, ...], values: list[Value]) -> list[Value]:
    """Return the arguments of an aggregate, brought to what it takes.

    Raises:
        Mismatch: their number or a type is wrong.

    """
    form = Function((name,), takes)
    if not _count_fits(form, len(values)):
        raise Mismatch(f"{name} takes {_counts([form])}, not {len(values)} arguments")
    fitted = _arguments(form, values, name)
    if fitted is None:
        raise Mismatch(f"{name} does not take ({_shown(values)})", hint=_usage(name, [form]))
    return fitted


def _arguments(form: Function, values: list[Value], name: str) -> list[Value] | None:
    """Return the values cast to what the form takes, or None if one does not fit."""
    classes = _classes(form, len(values))
    fitted_values: list[Value] = []
    for value, wanted in zip(values, classes, strict=True):
        fitted = _argument(value, wanted)
        if fitted is None:
            return None
        fitted_values.append(fitted)
    same = [i for i, wanted in enumerate(classes) if wanted in ("same", "alike")]
    if same:
        strings = classes[same[0]] == "same"
        for i, value in zip(same, unify([fitted_values[i] for i in same], strings=strings, what=name), strict=True):
            fitted_values[i] = value
    return fitted_values


def _argument(value: Value, wanted: str) -> Value | None:
    if wanted == "function" or isinstance(value.constant, Closure):
        return value if wanted == "function" and isinstance(value.constant, Closure) else None
    if wanted in ("any", "same", "alike"):
        return value
    if wanted in ("word", "whole"):
        return _constant(value, wanted)
    if wanted in _KINDS:
        return value if _KINDS[wanted](value.type) else None
    if wanted.startswith("="):
        return _exactly(value, wanted[1:])
    if wanted == "days":  # a text is cast, a bigint is not
        wanted = "int" if value.type == k.STRING else "=int"
        return _argument(value, wanted)
    if wanted in _CAST_IF_TEXT:
        return _cast_if_text(value, *_CAST_IF_TEXT[wanted])
    return implicit(value, k.parse_type(wanted))


_KINDS: dict[str, Callable[[pa.DataType], bool]] = {
    "array": k.is_array,
    "map": k.is_map,
    "struct": k.is_struct,
    "interval": k.is_interval,
    "text": k.STRING.equals,  # text as it is, no cast
}
_CAST_IF_TEXT = {"integral": (k.is_integral, k.BIGINT, k.INT), "number": (k.is_number, k.DOUBLE, k.DOUBLE)}


def _exactly(value: Value, wanted: str) -> Value | None:
    """Return the value if it has the type already: Spark casts nothing here."""
    if value.type == k.NULL:
        return cast(value, {"numeric": k.DOUBLE, "integral": k.BIGINT}.get(wanted) or k.parse_type(wanted))
    if wanted == "int":
        fits = k.is_integral(value.type) and value.type != k.BIGINT
    elif wanted in ("numeric", "integral"):
        fits = {"numeric": k.is_number, "integral": k.is_integral}[wanted](value.type)
    else:
        fits = value.type == k.parse_type(wanted)
    return value if fits else None


def _constant(value: Value, wanted: str) -> Value | None:
    if not value.is_constant:
        raise Mismatch(f"{value.text or 'this argument'} must be a constant here")
    if wanted == "word":
        return value if isinstance(value.constant, str) else None
    is_whole = isinstance(value.constant, int) and not isinstance(value.constant, bool)
    return value if is_whole else None


def _cast_if_text(
    value: Value, fits: Callable[[pa.DataType], bool], text: pa.DataType, null: pa.DataType
) -> Value | None:
    if fits(value.type):
        return value
    if value.type == k.STRING:
        return cast(value, text)
    return cast(value, null) if value.type == k.NULL else None
