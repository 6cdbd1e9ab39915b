"""Arguments that a template uses more than once are computed once, so that nested calls stay short and cheap."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.expressions.values import Value

LONG = 120  # characters of SQL: shorter parts are columns and small sums, cheaper to repeat than to bind

_NUMBERS = count()  # a template may hold the body of a function, with tokens of its own


class Binding:
    """Replaces long arguments by tokens while a template is filled, then puts them back.

    `values` are the arguments to fill the template with. `finish` returns the filled SQL; a long argument that
    is in it more than once is bound to a name by a lambda over a list of one. `outside` binds arguments that raise,
    however often they are used, so that they are outside of a TRY.
    """

    def __init__(self, values: Sequence[Value], mark: str = "\x01", *, outside: bool = False) -> None:
        self._least = 0 if outside else 1
        wanted = _raises if outside else _is_long
        own = f"{mark}{next(_NUMBERS) % 10**9:09d}"  # of one width: names follow from lengths, and must not vary
        self._long = {f"{own}_{i}\x02": value for i, value in enumerate(values) if wanted(value)}
        tokens = {id(value): token for token, value in self._long.items()}
        self.values = [replace(value, sql=tokens[id(value)]) if id(value) in tokens else value for value in values]

    def finish(self, sql: str) -> str:
        """Return the filled template with the long arguments back in it."""
        repeated = {token: value for token, value in self._long.items() if sql.count(token) > self._least}
        name = f"__v{len(sql) + sum(len(value.sql) for value in self._long.values())}"
        for token, value in self._long.items():
            sql = sql.replace(token, f"{name}.p{_place(token)}" if token in repeated else value.sql)
        if not repeated:
            return sql
        packed = ", ".join(f"p{_place(token)} := {value.sql}" for token, value in repeated.items())
        return bound(name, f"struct_pack({packed})", sql)


def bound(name: str, sql: str, body: str) -> str:
    """Return SQL of a body in which a name stands for a value: it is computed, and planned, once.

    Trap: from the fourth on, each lambda within lambdas doubles what planning them costs.
    """
    return f"list_transform([{sql}], lambda {name}: {body})[1]"


def _place(token: str) -> str:
    return token.rpartition("_")[2].removesuffix("\x02")


def _raises(value: Value) -> bool:
    return value.raises


def _is_long(value: Value) -> bool:
    return len(value.sql) > LONG and not value.is_constant
