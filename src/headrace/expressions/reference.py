"""The reference page of expressions, printed from the table: `python -m headrace.expressions.reference PATH`."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.expressions.table import FAMILIES
from headrace.expressions.table.aggregates import ALL
from headrace.expressions.table.spark_names import NONDETERMINISTIC, REFUSED

if TYPE_CHECKING:
    from headrace.expressions.functions import Function

WIDTH = 118
_HEAD = """\
# Expressions

<!-- Printed from the table of translations by `python -m headrace.expressions.reference docs/expressions.md`. -->

Expressions are Spark SQL text with Spark's meaning: ANSI mode, the session's zone UTC. They are typed when the step is
declared and computed by DuckDB. Every example on this page is compared with Spark on nulls, NaN, signs of zero,
infinities, limits and overflow, empty and unusual text, leap days and the years 1 and 9999: values, types and errors
are the same, but for the differences that are stated here.

A column is found by its exact name, else by its name in any case if only one column fits. Odd names are written in
backquotes. `a.b` is a field of a struct, `a[0]` an element of an array, `m['k']` the value of a key. `case`, `in`,
`between`, `is null`, `is distinct from` and interval literals (`interval 1 hour`, `interval '1 2:30' day to minute`)
are those of Spark. Functions over elements take `x -> …` or `(x, y) -> …`. A function that is not here is refused by
name: make it one of your own with `app.function` ([functions.md](functions.md)), compute whole batches with
`.map_batches`, or let Spark do it before, with `app.read`.
"""
_CASTS = """
## Casts

`cast(x as type)`, `x::type` and `try_cast` take every pair of types that Spark's ANSI mode takes, and raise (or give
null) for the same values. Arrays, maps and structs are not cast to text.
"""
_DIFFERENCES = {
    "double and float to text": (
        "the shortest digits that read back, as Java 19 and later print them; older Javas print more digits for some"
        " numbers (`1.57273096E12` for the float `1.572731E12`), and the least numbers as `4.9E-324` and `1.4E-45`"
    ),
    "dates and months": "a date after the year 294246 that is moved by months raises",
    "number to timestamp": (
        "beyond the years that 64 bits of microseconds hold, we raise; Spark gives the last instant, or wraps around"
    ),
    "text to decimal": "digits other than 0 to 9, of other scripts, raise",
    "text to double or float": "hexadecimal numbers (`0x1p3`) raise",
    "text to date or timestamp": ("names of zones (`Europe/Berlin`) and times without a date (`T10:00`) raise"),
    "binary to text": "bytes that are no UTF-8 raise",
    "decimal arithmetic": "what needs more than 38 digits on the way is refused when it is declared; Spark rounds",
    "regular expressions": (
        "Java's dialect, computed by RE2: look-around, back-references, possessive quantifiers and sets within sets are"
        " refused; `\\b` knows ASCII words, as in Java 19 and later"
    ),
    "x in (…)": "all choices are computed, so one that raises does so even where an earlier one matches",
    "a part that raises beside a null": (
        "where another argument of the same call is null in a whole batch of rows (some thousands), DuckDB may leave"
        " out a part that Spark computes, and the error with it: the result is null instead"
    ),
    "constants that raise": "Spark may raise before there is a row; here the rows raise that compute them",
    "structs and arrays with a null inside, in an order": (
        "the null is greater than every value, in Spark less: in `sort_array`, `array_max` and `<`;"
        " put `coalesce` around what may be null. `min`, `max`, `min_by` and `max_by` are as in Spark"
    ),
    "exp, ln, pow, sin, cbrt and similar": "may differ from the JVM's in the last digit",
    "lower, initcap": "do not keep U+10FFFE and U+10FFFF, which are no characters",
    "errors": "the condition is Spark's, the words are ours",
}


def page() -> str:
    """Return the page as Markdown."""
    parts = [_HEAD]
    for family, functions in FAMILIES.items():
        parts.append(f"\n## {family}\n\n| name | takes | examples | notes |\n|---|---|---|---|\n")
        parts += [_row(function) for function in functions]
    parts += [_CASTS, _aggregates(), _refused(), _differences()]
    return "".join(parts)


def _row(function: Function) -> str:
    names = ", ".join(f"`{_cell(name)}`" for name in function.names)
    takes = ", ".join(function.takes).replace("=", "")
    examples = ", ".join(f"`{_cell(example)}`" for example in function.examples[:3])
    return f"| {names} | {_cell(takes)} | {examples} | {_cell(function.notes)} |\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _wrapped(text: str, *, indent: str = "") -> str:
    """Return a paragraph in lines of Markdown; the second and later ones begin with `indent`."""
    return textwrap.fill(text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _aggregates() -> str:
    intro = (
        "They are called in `.agg(…)`, alone or in expressions (`sum(price) / count(*)`), each with `distinct` where"
        " the table says so and with `filter (where …)`."
    )
    head = f"\n## Aggregates\n\n{_wrapped(intro)}\n\n| name | takes | distinct | notes |\n|---|---|---|---|\n"
    rows = (
        f"| {', '.join(f'`{name}`' for name in entry.names)} | {', '.join(entry.takes)} | {'yes' * entry.distinct} |"
        f" {entry.notes} |\n"
        for entry in ALL
    )
    return head + "".join(rows)


def _refused() -> str:
    reasons: dict[str, list[str]] = {}
    for name, reason in {**NONDETERMINISTIC, **REFUSED}.items():
        reasons.setdefault(reason, []).append(f"`{name}`")
    lines = (_wrapped(f"- {reason}: {', '.join(names)}", indent="  ") + "\n" for reason, names in reasons.items())
    return "\n## Refused, with the reason\n\n" + "".join(lines)


def _differences() -> str:
    lines = (f"| {where} | {_cell(text)} |\n" for where, text in _DIFFERENCES.items())
    return "\n## Known differences\n\n| where | difference |\n|---|---|\n" + "".join(lines)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
