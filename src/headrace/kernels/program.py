"""What tasks run: the levels of an app, as frozen values of plain text and Arrow types.

The engine lowers the plan to them; they travel to executors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.kernels.op import StatefulOp

if TYPE_CHECKING:
    from headrace.kernels.op import Op


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """All operations of one level, in order. `receives`: edge number to delta number.

    `reads_clock`: its SQL has the time of the epoch.
    """

    number: int
    ops: tuple[Op, ...]
    receives: tuple[tuple[int, int], ...]
    reads_clock: bool = False

    @property
    def stateful(self) -> tuple[StatefulOp, ...]:
        """The operators that keep state."""
        return tuple(op for op in self.ops if isinstance(op, StatefulOp))

    @property
    def calls_users(self) -> bool:
        """Whether functions of the user's run in it."""
        return any(op.calls_users for op in self.ops)


@dataclass(frozen=True, slots=True, kw_only=True)
class Intake:
    """Where a source's rows enter level 0: the delta that they become, and the columns that are read of them."""

    source: str
    output: int
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """All levels of an app. `begins`: the steps that begin anew, without the state that the last commit has."""

    app: str
    shards: int
    intakes: tuple[Intake, ...]
    levels: tuple[Level, ...]
    begins: frozenset[str] = frozenset()
