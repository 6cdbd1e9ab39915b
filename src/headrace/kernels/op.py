"""What an operation is: a frozen value that the engine makes of the plan, and that runs itself inside a task.

An operator lives in one file of this room: its parameters as plain values (they travel to executors), `tables` for the
state that it keeps, and `run` for one epoch of one shard. It knows nothing of the level around it: the rows that it is
given, and its context, are all that its result depends on.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from headrace.kernels.counts import Counts
from headrace.kernels.state.keyed import KeyedState

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from headrace.kernels.delta import Delta, Rows
    from headrace.kernels.duck import Duck
    from headrace.kernels.state.state import State
    from headrace.kernels.state.tables import TableSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Where and when an operator runs.

    `watermark` is the one that its step works with in this epoch, `previous` that of the epoch before: microseconds, or
    None as long as there is none. `reached` is the one that the epoch's own input reaches, where it is known beforehand
    and later. `opened` is its state, `task` the number of the task (below an exchange: the shard).
    """

    duck: Duck
    epoch: int = 0
    task: int = 0
    watermark: int | None = None
    previous: int | None = None
    opened: State | None = None
    reached: int | None = None

    @property
    def state(self) -> State:
        """The state of an operator that keeps some."""
        assert self.opened is not None  # noqa: S101 -- the level opens that of every stateful operator
        return self.opened

    @property
    def keyed(self) -> KeyedState:
        """The state of an operator whose rows are looked up."""
        assert isinstance(self.opened, KeyedState)  # noqa: S101 -- its tables say so
        return self.opened

    @property
    def emitted_until(self) -> int:
        """The watermark that its last epoch worked with; where there is none, 1970."""
        return self.previous or 0

    @property
    def final(self) -> int | None:
        """The watermark by which results are final once the epoch's input is known."""
        return self.watermark if self.reached is None else self.reached

    @property
    def watermark_moved(self) -> int | None:
        """The watermark, where it is another than in the epoch before."""
        return None if self.watermark == self.previous else self.watermark


@dataclass(slots=True)
class StepResult:
    """What an operator makes of an epoch: its delta, its late rows (as they arrived), and what it counted.

    Rows given out are counted by the level. `more` are further deltas, in the order of the operator's `more`.
    """

    delta: Rows = ()
    late: Sequence[pa.Table] = ()
    counts: Counts = field(default_factory=Counts)
    more: Sequence[Rows] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """An expression over an operation's input that fails on some rows: its text, its SQL, the columns that it reads.

    `refuses`: it is no computation but a rule for rows, such as having a key: a record that breaks it is a dead letter
    as one that cannot be read is, unless its source has on_error="fail".
    """

    text: str
    sql: str
    columns: tuple[str, ...]
    refuses: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """One operation of a level; `step` is the plan's step that it works for, `inputs` are the numbers of deltas.

    `checks` are what may fail on a row of its input. `dead` is the topic for whose dead letters such rows are taken
    out; None: they stop the app.
    """

    step: str
    inputs: tuple[int, ...]
    checks: tuple[Check, ...] = ()
    dead: str | None = None

    @property
    def calls_users(self) -> bool:
        """Whether functions of the user's run in it."""
        return False

    def define(self, duck: Duck) -> None:
        """Make callable what its SQL calls; failures of a user's function are of the step that defined it last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator(Op, ABC):
    """An operation that makes of its inputs the delta with the number `output`.

    `late` is the number of its late rows, None where nobody reads them; `more` are those of further deltas.
    """

    output: int
    late: int | None = None
    more: tuple[int, ...] = ()

    @abstractmethod
    def run(self, inputs: Sequence[Delta], context: Context) -> StepResult:
        """Run one epoch of one shard.

        Args:
            inputs: The deltas of the inputs, in their order; one without rows is empty.
            context: Where and when it runs, with the state that is open. What `run` changes in the state is written
                to a file after all operations of the level; an error discards it.

        Returns:
            The delta with the step's columns, `_weight` (int32: 1 inserted, -1 withdrawn) and `_time` (int64:
            microseconds since 1970), the late rows, and what was counted.

        """


@dataclass(frozen=True, slots=True, kw_only=True)
class StatefulOp(Operator):
    """An operator that keeps state.

    `timed`: a new watermark gives it work though no row arrives. `begins`: it has rows of its own to begin with.
    """

    timed: ClassVar[bool] = True
    begins: ClassVar[bool] = False

    @abstractmethod
    def tables(self) -> tuple[TableSpec, ...]:
        """Return the tables that it keeps."""

    def snapshot(self, context: Context) -> Rows:
        """Return what it has emitted and not withdrawn, as far as its state has it: inserts. The state stays as it is.

        Of windows, these are the results of those that are open; a step that only passes rows on has nothing. The rows
        of a table without event times in its state have the time `context.emitted_until`.
        """
        del context
        return ()

    def before_exchange(self, side: int, rows: int, *, output: int, late: int | None) -> Operator | None:
        """Return the operator that prepares the rows of an input before an exchange spreads them; None: none does.

        It runs in the task of the step above, also where no exchange is needed.

        Args:
            side: 0 for the first input, 1 for the second one.
            rows: The number of the delta with the step's input.
            output: The number of the delta to compute.
            late: The number of the late rows where they are to be split off here, else None.

        """
        del side, rows, output, late
        return None

    def exchange_keys(self, keys: tuple[str, ...]) -> tuple[str, ...]:
        """Return the columns by which an exchange spreads rows: `keys`, as they are called after `before_exchange`."""
        return keys

    @property
    def in_columns(self) -> bool:
        """Whether its tables, where they are scanned, may be Arrow tables in an epoch of many rows."""
        return False

    @property
    def looks_up(self) -> bool:
        """Whether rows of its state are looked up by value, or by time, rather than found by scanning all."""
        return all(table.by or table.ages for table in self.tables())

    @property
    def emits_on_watermark(self) -> bool:
        """Whether rows of its state come out by time alone: an epoch without rows may have much to do."""
        return False
