"""Spark's SQL grammar, as sqlglot reads it: a text becomes a tree in which every function keeps its own name."""

from __future__ import annotations

from typing import Any, ClassVar

import sqlglot
from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, SqlglotError, TokenError
from sqlglot.tokens import TokenType

from headrace.base.errors import InvalidExpression
from headrace.base.names import is_unicode
from headrace.expressions.guarded import TooManySteps, brackets_too_deep, guarded, nests_too_deeply, too_deep

_OURS = ("CAST", "TRY_CAST", "EXTRACT", "TRIM", "SUBSTRING", "SUBSTR", "POSITION")
MOST_STEPS = 200_000
SHOWN_PARTS, SHOWN_LEVELS = 60, 5
"""Errors show an expression of more parts by its outer levels alone: writing all of it at every level is quadratic."""
_Parser: Any = Spark.parser_class
_Tokenizer: Any = Spark.tokenizer_class
_BITWISE = (
    (TokenType.PIPE, exp.BitwiseOr),
    (TokenType.CARET, exp.BitwiseXor),
    (TokenType.AMP, exp.BitwiseAnd),
)
_COMPARISONS: dict[Any, Any] = _Parser.EQUALITY | _Parser.COMPARISON


class Grammar(Spark):  # type: ignore[misc]
    """Spark's dialect without sqlglot's knowledge of functions: the table of translations has its own."""

    class Tokenizer(_Tokenizer):  # type: ignore[misc]
        """A quote written twice is a quote, as in Spark since version 4."""

        STRING_ESCAPES: ClassVar[list[str]] = ["\\", "'", '"']

    class Parser(_Parser):  # type: ignore[misc]
        """No function is special but those with a syntax of their own; and it ends soon, whatever it reads.

        Operators bind as in Spark, not as in sqlglot: `||` as `+`, then shifts, `&`, `^`, `|`, then all comparisons
        alike, and `is null`, `in`, `like` and `between` last.
        """

        _steps = 0
        TERM: ClassVar[dict[Any, Any]] = {**_Parser.TERM, TokenType.DPIPE: exp.DPipe}
        BITWISE: ClassVar[dict[Any, Any]] = {}

        def _parse_bitwise(self, level: int = 0) -> exp.Expression | None:
            """Return what no comparison is outside of; the levels are those of `|`, `^` and `&`."""
            if level == len(_BITWISE):
                shifted: exp.Expression | None = super()._parse_bitwise()
                return shifted
            this, (sign, kind) = self._parse_bitwise(level + 1), _BITWISE[level]
            while self._match(sign):
                this = self.expression(kind(this=this, expression=self._parse_bitwise(level + 1)))
            return this

        def _parse_equality(self, *_: Any, **__: Any) -> exp.Expression | None:
            """Return comparisons from left to right, and the predicates behind them."""
            this = self._parse_bitwise()
            while True:
                before = self._index
                if self._match_set(_COMPARISONS):
                    this = self._build_predicate(_COMPARISONS[self._prev.token_type], this, self._parse_bitwise())
                else:
                    this = self._parse_range(this, parse_is=True)
                if self._index == before:
                    return this

        def _advance(self, *args: Any, **kwargs: Any) -> None:
            self._steps += 1
            if self._steps > MOST_STEPS:  # nested joins in parentheses are tried in 2^n ways
                raise TooManySteps
            super()._advance(*args, **kwargs)

        FUNCTIONS: ClassVar[dict[str, Any]] = {}
        FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
            name: parser for name, parser in _Parser.FUNCTION_PARSERS.items() if name in _OURS
        }
        ARRAY_CONSTRUCTORS: ClassVar[dict[str, Any]] = {}  # array(1, 2)[0] is an element, ARRAY[0] is not Spark's
        NO_PAREN_FUNCTIONS: ClassVar[dict[Any, Any]] = {}
        NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
            name: parser for name, parser in _Parser.NO_PAREN_FUNCTION_PARSERS.items() if name in ("CASE", "IF")
        }


def parse(text: str, *, step: str) -> exp.Expression:
    """Return the tree of one expression.

    Raises:
        InvalidExpression: the text is no expression, with the place; or it nests too deeply.

    """
    if isinstance(text, str) and brackets_too_deep(text):
        raise too_deep(f'step "{step}": ', text)
    with guarded(f'step "{step}": ', text):
        tree = _parsed(text, step)
    if nests_too_deeply(tree):
        raise too_deep(f'step "{step}": ', text)
    return tree


def _parsed(text: str, step: str) -> exp.Expression:
    if not isinstance(text, str) or not text.strip():
        raise InvalidExpression(f'step "{step}": {text!r} is no expression', hint='For example "price * 0.9".')
    if not is_unicode(text):
        raise InvalidExpression(f'step "{step}": {text!r} has half a character of Unicode, a surrogate')
    try:
        trees = sqlglot.parse(text, dialect=Grammar)
    except ParseError as error:
        raise _syntax(text, step, error.errors) from None
    except (TokenError, SqlglotError) as error:
        raise InvalidExpression(f'step "{step}": cannot read {text!r}: {_first_line(error)}') from None
    tree = trees[0] if len(trees) == 1 else None
    statement = isinstance(tree, exp.Query) and not isinstance(tree, exp.Subquery)
    if tree is None or statement or isinstance(tree, exp.DDL | exp.DML | exp.Command | exp.Block):
        raise InvalidExpression(
            f'step "{step}": {text!r} is not one expression',
            hint='Write one value, such as "upper(name)"; rows are chosen with where, columns with select.',
        )
    if isinstance(tree, exp.Alias):
        raise InvalidExpression(
            f'step "{step}": {text!r} names its result',
            hint=f"Name it with the keyword instead: {tree.alias or 'name'}={shown(tree.this)!r}.",
        )
    return tree


def shown(tree: exp.Expression) -> str:
    """Return a part of an expression as text, close to what was written; of a large one, its outer levels."""
    return written(_outer(tree, SHOWN_LEVELS) if _is_large(tree) else tree)


def written(tree: exp.Expression) -> str:
    """Return a part of an expression as text, close to what was written."""
    return str(tree.sql(dialect=Grammar))


def _is_large(tree: exp.Expression) -> bool:
    parts, count = [tree], 0
    while parts and count <= SHOWN_PARTS:
        parts += parts.pop().iter_expressions()
        count += 1
    return count > SHOWN_PARTS


def _outer(tree: exp.Expression, levels: int) -> exp.Expression:
    """Return a copy of a tree's outer levels: `…` stands for what is further inside."""
    if not levels and next(tree.iter_expressions(), None) is not None:
        return exp.Var(this="…")

    def outer(part: Any) -> Any:
        if isinstance(part, list):
            return [outer(each) for each in part[:SHOWN_PARTS]]
        return _outer(part, levels - 1) if isinstance(part, exp.Expression) else part

    return type(tree)(**{name: outer(part) for name, part in tree.args.items()})


def _syntax(text: str, step: str, found: list[dict[str, Any]]) -> InvalidExpression:
    first = found[0] if found else {}
    before, here = first.get("start_context") or "", first.get("highlight") or ""
    at = len(before) + 1 if text.startswith(before) else int(first.get("col") or 1)
    why = str(first.get("description") or "")
    if why.startswith("Required keyword") or not here.strip():
        why = f'something is missing after "{here.strip()}"' if here.strip() else "it ends too early"
    elif why.startswith("Invalid expression"):
        why = f'"{here}" was not expected'
    else:
        why = f'{why[:1].lower()}{why[1:]}, but found "{here}"'
    return InvalidExpression(
        f'step "{step}": cannot read {text!r}: {why} at character {at}',
        detail=f"{text}\n{' ' * (len('Detail: ') + at - 1)}^" if "\n" not in text else "",
    )


def _first_line(error: Exception) -> str:
    lines = str(error).splitlines()
    return lines[0] if lines else type(error).__name__
