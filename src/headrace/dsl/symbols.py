"""Symbols of a pattern in expressions: conditions of rows, and measures of matches, become expressions as any other.

In a condition, `prev(x)` is `lag(x)`. In a measure, an aggregate over the rows of a symbol has a filter, and `first(x)`
and `last(x)` are those of the least and the greatest place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from headrace.base.errors import InvalidExpression, InvalidPlan
from headrace.expressions import Rewritten, is_aggregate, parse
from headrace.plan.nodes import MATCH_ROW, MATCH_SYMBOL

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.expressions import UserFunction

_ENDS = {"first": "min_by", "last": "max_by"}


@dataclass(frozen=True, slots=True)
class Symbols:
    """The symbols of a step's pattern, and what its expressions may call."""

    names: tuple[str, ...]
    step: str
    functions: Mapping[str, UserFunction]

    def condition(self, text: str, name: str) -> Rewritten:
        """Return the condition of a symbol, over columns and earlier rows.

        Raises:
            PlanError: it cannot be read, or reads rows of another symbol.

        """
        tree = parse(text, step=self.step)
        for column in list(tree.find_all(exp.Column)):
            symbol = self._of(column)
            if symbol is not None and symbol != name:
                raise InvalidPlan(
                    f'step "{self.step}": the condition of "{name}" reads rows of "{symbol}"',
                    detail="It reads its own row and those before it in the group; not what was matched so far.",
                    hint='Say prev(x) for the row before, or compare in a measure and call .where("…") after it.',
                )
            if symbol is not None and len(column.parts) > 1:
                column.set("table", None)
        for call in tree.find_all(exp.Anonymous):
            if call.name.lower() == "prev":
                call.set("this", "lag")
        return Rewritten(text, tree)

    def measure(self, text: str) -> Rewritten:
        """Return a measure over the columns of rows, their places and their symbols.

        Raises:
            PlanError: it cannot be read, or one aggregate reads rows of several symbols.

        """
        return Rewritten(text, self._measure(parse(text, step=self.step)))

    def _measure(self, tree: exp.Expression) -> exp.Expression:
        if isinstance(tree, exp.Column) and self._of(tree) is not None:  # of the last such row, as in SQL
            return self._aggregate(exp.Anonymous(this="last", expressions=[tree.copy()]))
        call = _call(tree)
        if isinstance(call, exp.Anonymous) and (call.name.lower() in _ENDS or self._is_aggregate(call)):
            return self._aggregate(tree.copy())
        for name, part in list(tree.args.items()):
            if isinstance(part, list):
                tree.set(name, [self._measure(each) if isinstance(each, exp.Expression) else each for each in part])
            elif isinstance(part, exp.Expression):
                tree.set(name, self._measure(part))
        return tree

    def _aggregate(self, tree: exp.Expression) -> exp.Expression:
        """Return an aggregate without symbols, over the rows of its own alone."""
        columns = [(column, symbol) for column in tree.find_all(exp.Column) if (symbol := self._of(column))]
        symbols = sorted({symbol for _, symbol in columns})
        if len(symbols) > 1:
            raise InvalidPlan(
                f'step "{self.step}": one aggregate reads rows of {" and ".join(symbols)}',
                hint="Each aggregate is over the rows of one symbol, or over all: sum(a.x) + sum(b.x).",
            )
        for column, _ in columns:
            if len(column.parts) == 1 or isinstance(column.this, exp.Star):
                column.replace(exp.Star())
            else:
                column.set("table", None)
        call = _call(tree)
        end = _ENDS.get(call.name.lower())
        if end is not None:
            if len(call.expressions) != 1:
                hint = f"For example {call.name}({self.names[0]}.price)."
                raise InvalidExpression(f'step "{self.step}": {call.name} takes one value', hint=hint)
            call.append("expressions", exp.column(MATCH_ROW))
            call.set("this", end)
        return self._filtered(tree, symbols[0]) if symbols else tree

    def _filtered(self, tree: exp.Expression, symbol: str) -> exp.Expression:
        number = exp.Literal.number(self.names.index(symbol))
        condition: exp.Expression = exp.EQ(this=exp.column(MATCH_SYMBOL), expression=number)
        if isinstance(tree, exp.Filter):
            condition = exp.And(this=condition, expression=exp.Paren(this=tree.expression.this))
            tree = tree.this
        return exp.Filter(this=tree, expression=exp.Where(this=condition))

    def _is_aggregate(self, call: exp.Anonymous) -> bool:
        return is_aggregate(call.name, self.functions)

    def _of(self, column: exp.Column) -> str | None:
        """Return the symbol that a column is of, as `fail.at` and `fail.*`, or that it is itself: `count(fail)`."""
        name = column.parts[0].name.lower()
        return next((symbol for symbol in self.names if symbol.lower() == name), None)


def _call(tree: exp.Expression) -> exp.Expression:
    """Return the call of an aggregate without its filter and order."""
    tree = tree.this if isinstance(tree, exp.Filter) else tree
    return tree.this if isinstance(tree, exp.WithinGroup) else tree
