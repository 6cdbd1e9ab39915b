"""What the rows of a stateless step mean, as text that is stored and compared: equal meaning, equal text."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from headrace.base.names import quote
from headrace.expressions.identity import sql_identity, typed_identity

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from headrace.expressions import Scalar


@dataclass(frozen=True, slots=True)
class Meaning:
    """Rows as what they are computed from, whatever the steps between are called and however they are cut.

    `rows`: where they come from. `where`: the conditions that all of them meet. `columns`: what each column is. A
    column that is only passed on, or renamed, means what it meant above; so a column that nobody reads changes nothing.
    """

    rows: str
    columns: Mapping[str, str]
    where: frozenset[str] = frozenset()

    @staticmethod
    def of(rows: str, columns: Iterable[str]) -> Meaning:
        """Return the meaning of rows of which nothing more is known than where they come from."""
        return Meaning(rows, {name: f"{rows}.{name}" for name in columns})

    def text(self, columns: Iterable[str] | None = None) -> str:
        """Return the meaning of the rows as they are seen by a reader of these columns, or of all."""
        read = sorted(self.columns if columns is None else columns)
        return digest([self.rows, sorted(self.where), {name: self.columns.get(name, name) for name in read}])

    def value(self, scalar: Scalar) -> str:
        """Return the meaning of an expression over the rows."""
        bare = next((name for name in scalar.columns if scalar.sql == quote(name)), None)
        if bare is not None:
            return self.columns.get(bare, bare)
        read = {name: self.columns.get(name, name) for name in sorted(scalar.columns)}
        return digest([typed_identity(scalar), read])

    def met(self, condition: Scalar) -> Meaning:
        """Return the rows that meet a condition."""
        read = {name: self.columns.get(name, name) for name in sorted(condition.columns)}
        return replace(self, where=self.where | {digest([sql_identity(condition), read])})


def digest(value: Any) -> str:
    """Return a short text that is equal for equal JSON values, in every process and version."""
    return sha256(json.dumps(value, sort_keys=True, ensure_ascii=False).encode()).hexdigest()[:20]
