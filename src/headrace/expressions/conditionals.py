"""`CASE` and `IF`: the syntaxes that choose between values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from headrace.expressions import kinds as k
from headrace.expressions.casts import cast
from headrace.expressions.coercion import common_type_of
from headrace.expressions.grammar import shown
from headrace.expressions.mismatch import Mismatch
from headrace.expressions.resolve import call
from headrace.expressions.values import Value

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.expressions.compiling import Compiling


def _case(compiler: Compiling, tree: exp.Expression) -> Value:
    branches = tree.args["ifs"]
    conditions = [
        compiler.compile(exp.EQ(this=tree.this, expression=branch.this) if tree.this else branch.this)
        for branch in branches
    ]
    for condition in conditions:
        if condition.type not in (k.BOOLEAN, k.NULL):
            raise Mismatch(f'"when {condition.text}" is {k.shown(condition.type)}, not boolean')
    results = compiler.all([branch.args["true"] for branch in branches])
    if tree.args.get("default") is not None:
        results.append(compiler.compile(tree.args["default"]))
    kind = common_type_of(results, what="case")
    branch_values = [cast(result, kind) for result in results]
    sql = " ".join(
        f"WHEN {cast(c, k.BOOLEAN).sql} THEN {r.sql}" for c, r in zip(conditions, branch_values, strict=False)
    )
    otherwise = f" ELSE {branch_values[-1].sql}" if len(branch_values) > len(conditions) else ""
    parts = [*conditions, *branch_values]
    columns = frozenset[str]().union(*(part.columns for part in parts))
    return Value(shown(tree), f"(CASE {sql}{otherwise} END)", kind, columns, any(part.raises for part in parts))


def _if(compiler: Compiling, tree: exp.Expression) -> Value:
    parts = [tree.this, tree.args.get("true"), tree.args.get("false")]
    return call(compiler, "if", [part for part in parts if part is not None], shown(tree))


HANDLERS: dict[type[exp.Expression], Callable[[Compiling, exp.Expression], Value]] = {exp.Case: _case, exp.If: _if}
