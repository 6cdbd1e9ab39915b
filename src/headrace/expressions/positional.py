"""Functions of a row's place among those of its key: `lag`, `lead`, `first_value`, `last_value`, `row_number`.

They are known where rows have an order: after `over`. A call is typed as an aggregate's is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from headrace.base.errors import InvalidExpression
from headrace.expressions import kinds as k
from headrace.expressions.coercion import implicit
from headrace.expressions.mismatch import Mismatch

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from headrace.expressions.values import Value

POSITIONAL = ("lag", "lead", "first_value", "last_value", "row_number")
_MOST = {"lag": 3, "lead": 3, "first_value": 2, "last_value": 2, "row_number": 0}
FARTHEST = 1_000_000


def constants_of(name: str, trees: Sequence[exp.Expression]) -> tuple[list[exp.Expression], tuple[int, ...]]:
    """Return the values of a call, and its constants: how far away the other row is, or 1 where nulls are skipped.

    Raises:
        Mismatch: there are too many or too few arguments, or a constant is none.

    """
    least = min(_MOST[name], 1)
    if not least <= len(trees) <= _MOST[name]:
        takes = f"{least} to {_MOST[name]} arguments" if least else "no arguments"
        raise Mismatch(f"{name} takes {takes}, not {len(trees)}", condition=InvalidExpression)
    if name == "row_number":
        return [], ()
    if name in ("lag", "lead"):
        away = 1 if len(trees) == 1 else _number(name, trees[1])
        return [trees[0], *trees[2:]], (away,)
    return [trees[0]], (int(_skips_nulls(name, trees[1:])),)


def typed(name: str, values: list[Value]) -> tuple[list[Value], pa.DataType]:
    """Return the arguments in the type of the result, and that type: the one of the value, which a default becomes.

    Raises:
        Mismatch: a default cannot become it.

    """
    if not values:
        return [], k.INT
    kind = values[0].type
    if kind == k.NULL:
        raise Mismatch(f"null has no type, so {name} has none", condition=InvalidExpression)
    if len(values) == 1:
        return values, kind
    default = implicit(values[1], kind)
    if default is None:
        shown = k.shown(values[1].type)
        raise Mismatch(f"the default of {name} is {shown}, not {k.shown(kind)}", condition=InvalidExpression)
    return [values[0], default], kind


def _number(name: str, tree: exp.Expression) -> int:
    text = tree.this if isinstance(tree, exp.Literal) and not tree.is_string else ""
    if not str(text).isdigit() or not 0 <= int(text) <= FARTHEST:
        other = "lead" if name == "lag" else "lag"
        raise Mismatch(
            f"the offset of {name} must be a constant from 0 to {FARTHEST}",
            hint=f"The other way is {other}." if isinstance(tree, exp.Neg) else "",
            condition=InvalidExpression,
        )
    return int(text)


def _skips_nulls(name: str, trees: Sequence[exp.Expression]) -> bool:
    if trees and not isinstance(trees[0], exp.Boolean):
        raise Mismatch(
            f"the second argument of {name} must be true or false: whether nulls are skipped",
            condition=InvalidExpression,
        )
    return bool(trees and trees[0].this)
