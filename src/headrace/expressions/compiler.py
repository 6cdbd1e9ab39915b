"""The compiler: a tree of Spark's grammar becomes a typed `Value` with DuckDB's SQL."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from headrace.base.errors import InvalidExpression, PlanError, UnknownColumn, UnsupportedFunction, WrongType
from headrace.base.names import quote
from headrace.expressions import conditionals, literals, operators
from headrace.expressions import kinds as k
from headrace.expressions.calls import Calls
from headrace.expressions.casts import cast
from headrace.expressions.grammar import shown
from headrace.expressions.mismatch import Mismatch
from headrace.expressions.resolve import call
from headrace.expressions.values import Closure, Value

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa

    from headrace.expressions.user import UserFunction


class Compiler:
    """Compiles the parts of one expression over one schema.

    A column is found by its exact name, else by its name in any case if only one fits, as in Spark. `calls` are parts
    that are already computed: aggregates inside a larger expression. `user_calls` collects the calls of the user's
    functions. `column_sql` is the SQL of columns that are called otherwise where the expression is computed.
    """

    def __init__(
        self,
        schema: pa.Schema,
        *,
        step: str,
        functions: Mapping[str, UserFunction],
        calls: Mapping[int, Value] | None = None,
        missing: Callable[[str], PlanError] | None = None,
        column_sql: Mapping[str, str] | None = None,
    ) -> None:
        self.schema = schema
        self.step = step
        self.functions = functions
        self.calls = calls or {}
        self.user_calls = Calls()
        self.missing = missing
        self.column_sql = column_sql or {}
        self._scopes: list[dict[str, Value]] = []

    @property
    def inside_lambda(self) -> bool:
        """Whether the part that is compiled is inside `x -> …`: it is computed for elements, not for rows."""
        return bool(self._scopes)

    def closure(self, tree: exp.Expression) -> Value:
        """Return a function `x -> …`, which is compiled when it is known what it is applied to."""
        names = [name.name for name in tree.expressions]
        depth = len(self._scopes)

        def body(values: Sequence[Value]) -> Value:
            given = {name.lower(): replace(value, text=name) for name, value in zip(names, values, strict=True)}
            self._scopes.append(given)
            try:
                return self.compile(tree.this)
            finally:
                self._scopes.pop()

        free = tuple(f"__x{depth}_{place}" for place in range(len(names)))
        return Value(shown(tree), "NULL", k.NULL, constant=Closure(free, body))

    def compile(self, tree: exp.Expression) -> Value:
        """Return the value of one part.

        Raises:
            PlanError: it cannot be computed; the error names the step and the part.

        """
        if id(tree) in self.calls:
            return self.calls[id(tree)]
        handler = HANDLERS.get(type(tree))
        if handler is None:
            raise self.unsupported(tree)
        try:
            return handler(self, tree)
        except Mismatch as no:
            raise no.condition(
                f'step "{self.step}": in "{shown(tree)}": {no.what}', detail=no.detail, hint=no.hint
            ) from None

    def all(self, trees: Sequence[exp.Expression]) -> list[Value]:
        """Return the values of several parts."""
        return [self.compile(tree) for tree in trees]

    def unsupported(self, tree: exp.Expression) -> PlanError:
        """Return the error for a syntax that is Spark's but not ours."""
        if isinstance(tree, exp.Star):
            return InvalidExpression(f'step "{self.step}": "*" stands for all columns only in count(*)')
        if isinstance(tree, exp.Query | exp.Subquery | exp.Exists):
            return UnsupportedFunction(f'step "{self.step}": "{shown(tree)}" is a subquery', hint="Use a join instead.")
        if isinstance(tree, exp.Window):
            return UnsupportedFunction(
                f'step "{self.step}": "{shown(tree)}" is a window function, which is not supported',
                hint="Use .group_by(…).window(…), or .top(…) for ranks.",
            )
        return UnsupportedFunction(f'step "{self.step}": "{shown(tree)}" is not supported ({type(tree).__name__})')

    # ---- columns ---------------------------------------------------------------------------------------

    def column(self, tree: exp.Expression) -> Value:
        """Return a column `a`, or a field `a.b.c` of one."""
        names = [part.name for part in tree.parts]
        if any(isinstance(part, exp.Star) for part in tree.parts):
            raise self.unsupported(exp.Star())
        moment = (
            len(names) == 1
            and self._variable(names[0]) is None
            and not tree.this.args.get("quoted")
            and names[0].lower() in literals.MOMENTS
        )
        if moment and names[0].lower() not in map(str.lower, self.schema.names):  # in Spark too, a column comes first
            return call(self, names[0], [], shown(tree))
        value = self._variable(names[0]) or self._find(names[0])
        for name in names[1:]:
            value = self.field(value, name, shown(tree))
        return value

    def _variable(self, name: str) -> Value | None:
        found = (scope[name.lower()] for scope in reversed(self._scopes) if name.lower() in scope)
        return next(found, None)

    def _find(self, name: str) -> Value:
        names = self.schema.names
        found = [name] if name in names else [column for column in names if column.lower() == name.lower()]
        if len(found) == 1:
            sql = self.column_sql.get(found[0]) or quote(found[0])
            return Value(found[0], sql, self.schema.field(found[0]).type, frozenset(found))
        if found:
            raise InvalidExpression(
                f'step "{self.step}": "{name}" may be any of the columns {", ".join(found)}',
                hint="Write it exactly as it is named.",
            )
        if self.missing is not None:
            raise self.missing(name)
        raise UnknownColumn(name, step=self.step, columns=names)

    def field(self, value: Value, name: str, text: str) -> Value:
        """Return a field of a struct, of every struct in an array, or a map's value."""
        if k.is_map(value.type):
            key = Value(name, literals.quoted(name), k.STRING)
            return operators.element(value, key, text)
        if not k.is_struct(value.type):
            raise Mismatch(f'{k.shown(value.type)} has no field "{name}"', hint="Only a struct has fields.")
        fields = [field.name for field in value.type]
        found = (
            [name] if name in fields else [known_field for known_field in fields if known_field.lower() == name.lower()]
        )
        if len(found) != 1:
            raise UnknownColumn(f"{value.text}.{name}", step=self.step, columns=[f"{value.text}.{f}" for f in fields])
        kind = value.type.field(found[0]).type
        return Value(
            text, f"struct_extract({value.sql}, {literals.quoted(found[0])})", kind, value.columns, value.raises
        )


def _column(compiler: Compiler, tree: exp.Expression) -> Value:
    return compiler.column(tree)


def _dot(compiler: Compiler, tree: exp.Expression) -> Value:
    if isinstance(tree.expression, exp.Anonymous):
        raise Mismatch("functions in schemas are not supported", condition=UnsupportedFunction)
    return compiler.field(compiler.compile(tree.this), tree.expression.name, shown(tree))


def _identifier(compiler: Compiler, tree: exp.Expression) -> Value:
    return compiler.column(exp.column(tree.copy()))


def _paren(compiler: Compiler, tree: exp.Expression) -> Value:
    return compiler.compile(tree.this)


def _function(compiler: Compiler, tree: exp.Expression) -> Value:
    return call(compiler, tree.name, tree.expressions, shown(tree))


def _cast(compiler: Compiler, tree: exp.Expression) -> Value:
    lenient = bool(tree.args.get("safe"))
    value, kind = compiler.compile(tree.this), literals.type_of(tree.args["to"])
    literal = literals.typed(value, kind, shown(tree)) if not lenient else None
    if literal is not None:
        return literal
    result = cast(value, kind, lenient=lenient)
    return Value(shown(tree), result.sql, result.type, result.columns, result.raises)


def _as_call(name: str, *parts: str) -> Callable[[Compiler, exp.Expression], Value]:
    """Return the handler of a syntax that means a function call: its parts are the arguments."""

    def handler(compiler: Compiler, tree: exp.Expression) -> Value:
        given = [tree.args.get(part) for part in parts]
        return call(compiler, name, [part for part in given if part is not None], shown(tree))

    return handler


def _trim(compiler: Compiler, tree: exp.Expression) -> Value:
    side = str(tree.args.get("position") or "BOTH").lower()
    if tree.expression is None:
        return call(compiler, {"leading": "ltrim", "trailing": "rtrim"}.get(side, "trim"), [tree.this], shown(tree))
    name = {"leading": "ltrim-from", "trailing": "rtrim-from"}.get(side, "btrim")
    return call(compiler, name, [tree.this, tree.expression], shown(tree))


def _extract(compiler: Compiler, tree: exp.Expression) -> Value:
    return call(compiler, "date_part", [exp.Literal.string(tree.name), tree.expression], shown(tree))


HANDLERS: dict[type[exp.Expression], Callable[[Compiler, exp.Expression], Value]] = {
    exp.Column: _column,
    exp.Dot: _dot,
    exp.Identifier: _identifier,
    exp.Paren: _paren,
    exp.Anonymous: _function,
    exp.Cast: _cast,
    exp.TryCast: _cast,
    exp.Trim: _trim,
    exp.Extract: _extract,
    exp.Substring: _as_call("substring", "this", "start", "length"),
    exp.StrPosition: _as_call("position", "substr", "this", "position"),
    exp.RegexpLike: _as_call("rlike", "this", "expression"),
    **literals.HANDLERS,
    **operators.HANDLERS,
    **conditionals.HANDLERS,
}


def check(value: Value, *, step: str) -> Value:
    """Return `value` if a column may have its type.

    Raises:
        WrongType: it is null or an interval.

    """
    if k.contains(value.type, lambda kind: kind == k.NULL or k.is_interval(kind)):
        is_null = k.contains(value.type, lambda kind: kind == k.NULL)
        raise WrongType(
            f'step "{step}": "{value.text}" has the type {k.shown(value.type)}, which no column can have',
            hint="Give it one: cast(null as string)." if is_null else "Add it to a timestamp, or compare it.",
        )
    return value
