"""A query's text becomes a tree of Spark's grammar; a part that is not known is refused."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError
from sqlglot.tokens import TokenType

from headrace.base.errors import InvalidQuery, UnsupportedQuery
from headrace.base.names import IDENTIFIER, is_unicode
from headrace.expressions.grammar import Grammar
from headrace.expressions.guarded import brackets_too_deep, nests_too_deeply, too_deep

if TYPE_CHECKING:
    from collections.abc import Collection

_PARTS = {
    "hint": "A hint says how Spark should compute, and Spark does not compute it.",
    "offset": "Each new row before the page would move all rows of it.",
    "sort": "Rows of a table have no order.",
    "cluster": "Rows of a table have no order.",
    "distribute": "Rows of a table have no order.",
    "windows": "Write the window where it is used.",
    "sample": "A sample would be another one each time.",
}
_SET_OPERATION = {"this", "expression", "distinct", "order", "limit", "with_"}
_KNOWN = {
    exp.Select: {
        "expressions",
        "distinct",
        "from_",
        "joins",
        "laterals",
        "where",
        "group",
        "having",
        "order",
        "limit",
        "with_",
        "match",
    },
    exp.Union: _SET_OPERATION,
    exp.Intersect: _SET_OPERATION,
    exp.Except: _SET_OPERATION,
    exp.Subquery: {"this", "alias", "order", "limit", "with_"},
    exp.Table: {"this", "db", "catalog", "alias", "version"},
    exp.Values: {"expressions", "alias"},
    exp.Join: {"this", "on", "using", "side", "kind", "method"},
    exp.Lateral: {"this", "alias", "view", "outer"},
    exp.Group: {"expressions", "all", "rollup", "cube", "grouping_sets"},
}
_Generator: Any = Grammar.generator_class
_Tokenizer: Any = Grammar.tokenizer_class
_Parser: Any = Grammar.parser_class
_NEGATED = (exp.Is, exp.In, exp.Like, exp.ILike, exp.RegexpLike, exp.Between)
_WORDS = {f"{unit}{s}" for unit in ("YEAR", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND") for s in ("", "S")}
_WORDS |= {"CAST", "TRY_CAST", "EXTRACT", "TRIM", "SUBSTRING", "POSITION", "LOCATE", "SHIFTLEFT", "SHIFTRIGHT"}
"""What sqlglot writes in upper case, and does not mark as a keyword in its tokens."""
_AS_WRITTEN = (TokenType.STRING, TokenType.IDENTIFIER, TokenType.VAR, TokenType.RAW_STRING)


class _Queries(Grammar):
    """The grammar of expressions, where `window(…)` is a call and `x is not null` is written that way."""

    class Tokenizer(_Tokenizer):  # type: ignore[misc]
        """`window` is a name here and no keyword: named windows are not supported. `match_recognize` is one."""

        KEYWORDS: ClassVar[dict[str, Any]] = {word: t for word, t in _Tokenizer.KEYWORDS.items() if word != "WINDOW"}
        KEYWORDS["MATCH_RECOGNIZE"] = TokenType.MATCH_RECOGNIZE

    class Parser(_Parser):  # type: ignore[misc]
        """An alias may be before `for system_time as of` too."""

        def _parse_table(self, *args: Any, **kwargs: Any) -> exp.Expression | None:
            """Return a relation of `from`."""
            table: exp.Expression | None = super()._parse_table(*args, **kwargs)
            if isinstance(table, exp.Table) and table.args.get("version") is None:
                table.set("version", self._parse_version())
            return table

        _within: exp.Expression | None = None

        def _parse_match_recognize(self) -> exp.Expression | None:
            """Return a pattern of rows, with `within`, which is not SQL's but Flink's."""
            self._within = None
            match: exp.Expression | None = super()._parse_match_recognize()
            if match is not None:
                match.set("within", self._within)
            return match

        def _match_text_seq(self, *texts: Any, **how: Any) -> bool | None:
            """Take words; before `define` there may be `within`."""
            if texts == ("DEFINE",) and super()._match_text_seq("WITHIN"):
                self._within = self._parse_disjunction()
            found: bool | None = super()._match_text_seq(*texts, **how)
            return found

    class Generator(_Generator):  # type: ignore[misc]
        """Writes negations where people write them."""

        def not_sql(self, expression: exp.Not) -> str:
            """Return a negation as text."""
            inner = expression.this
            if not isinstance(inner, _NEGATED):
                return str(super().not_sql(expression))
            text, left = self.sql(inner), self.sql(inner.this)
            word = text.removeprefix(left).strip()
            return f"{left} IS NOT {word.removeprefix('IS ')}" if isinstance(inner, exp.Is) else f"{left} NOT {word}"


def parse_query(text: str) -> exp.Query:
    """Return the tree of one query.

    Raises:
        InvalidQuery: the text is no query; the error shows the place.
        UnsupportedQuery: it is another statement than a query.

    """
    if not isinstance(text, str) or not text.strip():
        raise InvalidQuery(
            f"{text!r} is no query", hint='For example "select user, count(*) as n from clicks group by user".'
        )
    if not is_unicode(text):
        raise InvalidQuery(f"{text!r} has half a character of Unicode, a surrogate")
    if brackets_too_deep(text):
        raise too_deep("", text, InvalidQuery)
    try:
        trees = [tree for tree in sqlglot.parse(text, dialect=_Queries) if tree is not None]
    except ParseError as error:
        raise _syntax(text, error) from None
    except SqlglotError as error:
        lines = str(error).splitlines() or [type(error).__name__]
        raise InvalidQuery(f"cannot read the query: {lines[0]}") from None
    if len(trees) != 1:
        raise InvalidQuery(f"one query is expected, not {len(trees)}", hint="Call app.sql once for each.")
    tree = trees[0]
    if nests_too_deeply(tree):
        raise too_deep("", text, InvalidQuery)
    tree = exp.select("*").from_(tree) if isinstance(tree, exp.Values) else tree
    if not isinstance(tree, exp.Query):
        raise UnsupportedQuery(
            sql_text(tree),
            "only queries are supported: select … from …",
            hint="Send the rows somewhere with .to_view(name) or .to_topic(name).",
        )
    return tree


def without_parentheses(tree: exp.Query) -> exp.Query:
    """Return a query without the parentheses around it.

    Raises:
        UnsupportedQuery: a part of it is not supported.

    """
    check_parts(tree)
    while isinstance(tree, exp.Subquery) and not present_parts(tree) - {"this", "alias"}:
        tree = tree.this
        check_parts(tree)
    return tree


def present_parts(tree: exp.Expression) -> set[str]:
    """Return the names of the parts that a query or a table has."""
    return {name for name, part in tree.args.items() if part}


def check_parts(tree: exp.Expression) -> None:
    """Refuse a part that is not known: nothing is left out in silence.

    Raises:
        UnsupportedQuery: there is one.

    """
    known: Collection[str] = next((parts for kind, parts in _KNOWN.items() if type(tree) is kind), ())
    if not known:
        raise UnsupportedQuery(sql_text(tree), "this is not supported")
    for name in sorted(present_parts(tree) - set(known)):
        part = tree.args[name]
        first = part[0] if isinstance(part, list) else part
        text = sql_text(first) if isinstance(first, exp.Expression) else f"{name} in {sql_text(tree)}"
        raise UnsupportedQuery(text, _PARTS.get(name, "this is not supported"))


def sql_text(tree: exp.Expression) -> str:
    """Return a part of a query as text: keywords in lower case, everything else as it was written."""
    text: str = tree.sql(dialect=_Queries, normalize_functions=False, comments=False)
    pieces, at = [], 0
    for token in _Queries().tokenize(text):
        pieces.append(text[at : token.start])
        word = text[token.start : token.end + 1]
        pieces.append(word if token.token_type in _AS_WRITTEN and word not in _WORDS else word.lower())
        at = token.end + 1
    return "".join(pieces) + text[at:]


def identifier(name: str) -> exp.Identifier:
    """Return a name as SQL: in backquotes where it would be read as something else."""
    return exp.to_identifier(name, quoted=not _is_plain(name))


@cache
def _is_plain(name: str) -> bool:
    if not IDENTIFIER.fullmatch(name):
        return False
    try:
        tree = sqlglot.parse_one(f"f({name}, 1) + {name} + {name}.{name}", dialect=Grammar)
    except SqlglotError:
        return False
    columns = [column for column in tree.find_all(exp.Column) if column.parts[0].name == name]
    return len(columns) == 3 and sql_text(tree) == f"f({name}, 1) + {name} + {name}.{name}"  # noqa: PLR2004 -- as written


def _syntax(text: str, error: ParseError) -> InvalidQuery:
    first = error.errors[0] if error.errors else {}
    line, column, here = first.get("line") or 1, first.get("col") or 1, first.get("highlight") or ""
    column = max(1, column - len(here) + 1)
    lines = text.splitlines()
    row = lines[line - 1] if line <= len(lines) else ""
    why = str(first.get("description") or "it cannot be read").rstrip(".")
    if why.startswith(("Invalid expression", "Required keyword")) and here:
        why = f'"{here}" was not expected'
    return InvalidQuery(
        f"cannot read the query: {why[:1].lower()}{why[1:]} at line {line}, character {column}",
        detail=f"{row}\n{' ' * (len('Detail: ') + column - 1)}^",
    )
