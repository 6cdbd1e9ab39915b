"""A checker of deltas: what a step emits, epoch by epoch, must be possible and must happen once."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from headrace.base.errors import InvalidArgument, WrongDelta
from headrace.dsl.handle import Handle
from headrace.plan import check

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa


Row = dict[str, Any]


def check_deltas(step: Handle, *, key: Sequence[str] | None = None, net: bool = True) -> Deltas:
    """Add a sink to a step that checks its deltas, and return it; the step's other sinks stay.

    An epoch fails (`WRONG_DELTA`) in which the step withdraws a row that it had not emitted, emits a second row of a
    key, withdraws anything from a stream, or withdraws and emits the same row.

        checked = check_deltas(orders.join(users, on={"buyer": "id"}))
        with Driver(app) as driver: ...
        assert checked.rows == [...]

    Args:
        step: the handle of the step.
        key: the columns that identify a row; by default the table's key. Without a key, equal rows are counted.
        net: whether no epoch may withdraw and emit the same row. False for tables of records (`app.table`, `latest`),
            whose deltas have each record's own change, and for `select` and `where` of a table.

    """
    if not isinstance(step, Handle):
        raise InvalidArgument(f"step={step!r} is no stream and no table", hint="Give the handle of a step.")
    table = step.node.is_table
    identity = (
        check.columns(key, step.node.schema, step=step.name) if key is not None else step.node.key if table else None
    )
    deltas = Deltas(step.name, identity, table=table and not step.node.append_only, net=net)
    step.to(deltas)
    return deltas


class Deltas:
    """A sink that checks a step's deltas and sums them up. `check_deltas` returns one."""

    def __init__(self, step: str, key: tuple[str, ...] | None, *, table: bool, net: bool) -> None:
        self.name = f"check of {step}"
        self._step, self._key, self._withdraws, self._net = step, key, table, net
        self._present: dict[str, list[Row]] = {}
        self._keys: Counter[str] = Counter()
        self._epochs: dict[int, list[Row]] = {}
        self._read = 0

    @property
    def rows(self) -> list[Row]:
        """The sum of all deltas: the rows that are present, sorted as text."""
        return [row for text in sorted(self._present) for row in self._present[text]]

    @property
    def epochs(self) -> dict[int, list[Row]]:
        """The deltas by epoch, as they were handed over: each row with `_weight` and `_time`."""
        return self._epochs

    def read(self) -> list[Row]:
        """Return the rows handed over since the last read, each with `_weight` and `_time`."""
        every = [row for rows in self._epochs.values() for row in rows]
        new, self._read = every[self._read :], len(every)
        return new

    def write(self, epoch: int, rows: pa.Table) -> None:
        """Take an epoch's delta; the same one again, as after a crash, changes nothing.

        Raises:
            WrongDelta: what was wrong with it, in which epoch, and the row.

        """
        delta: list[Row] = rows.to_pylist(maps_as_pydicts="strict")
        if epoch in self._epochs:
            if Counter(map(_text, delta)) != Counter(map(_text, self._epochs[epoch])):
                raise WrongDelta(self._step, epoch, "is handed over again, and is another one")
            return
        if self._epochs and epoch < max(self._epochs):
            raise WrongDelta(self._step, epoch, f"comes after that of epoch {max(self._epochs)}")
        self._check(epoch, delta)
        self._epochs[epoch] = delta
        for row in delta:
            self._apply(epoch, _bare(row), row["_weight"])
        self._check_keys(epoch, delta)

    def _check(self, epoch: int, delta: list[Row]) -> None:
        weights: dict[str, set[int]] = {}
        for row in delta:
            if row["_weight"] not in (1, -1) or row["_time"] is None:
                raise WrongDelta(self._step, epoch, "has a row of another weight than 1 or -1, or without a time", row)
            if row["_weight"] < 0 and not self._withdraws:
                raise WrongDelta(self._step, epoch, "withdraws a row, and what is given out here stays", row)
            of_row = weights.setdefault(_text(_bare(row)), set())
            of_row.add(row["_weight"])
            if self._net and len(of_row) > 1:
                raise WrongDelta(self._step, epoch, "withdraws a row and gives it out", row)

    def _apply(self, epoch: int, row: Row, weight: int) -> None:
        present = self._present.setdefault(_text(row), [])
        if weight > 0:
            present.append(row)
        elif present:
            present.pop()
        else:
            raise WrongDelta(self._step, epoch, "withdraws a row that is not there", row)
        if not present:
            del self._present[_text(row)]
        if self._key is not None:
            self._keys[_identity(row, self._key)] += weight

    def _check_keys(self, epoch: int, delta: list[Row]) -> None:
        """Refuse two rows of a key at the epoch's end, in whatever order they were handed over."""
        if self._key is None:
            return
        for row in delta:
            if self._keys[_identity(row, self._key)] > 1:
                raise WrongDelta(self._step, epoch, f"leaves a second row of {', '.join(self._key) or 'all'}", row)


def _identity(row: Row, key: tuple[str, ...]) -> str:
    return _text({name: row[name] for name in key})


def _bare(row: Row) -> Row:
    return {name: value for name, value in row.items() if name not in ("_weight", "_time")}


def _text(row: Row) -> str:
    return repr(list(row.items()))
