"""A checker of deltas: whatever a step gives out, epoch by epoch, must be possible and must happen once."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from headrace.base.errors import WrongDelta

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from headrace.dsl.handle import Handle

Row = dict[str, Any]


def check_deltas(step: Handle, *, key: Sequence[str] | None = None, net: bool = True) -> Deltas:
    """Let a step's output pass through a checker, and return it; say it beside the step's other sinks.

    It fails the epoch (`WRONG_DELTA`) in which the step withdraws a row that it had not given out, gives out a second
    row of a key, withdraws anything of a stream, or withdraws and gives out the same row at once. `key`: the columns
    that tell rows apart; of a table its own. Rows without a key may be equal, as many as there are. `net=False` for
    tables of records (`app.table`, `latest`), whose deltas have each record's own change, and for what `select` and
    `where` make of a table.

        checked = check_deltas(orders.join(users, on={"buyer": "id"}))
        with Driver(app) as driver: ...
        assert checked.rows == [...]

    """
    table = step.node.is_table
    told = tuple(key) if key is not None else step.node.key if table else None
    made = Deltas(step.name, told, table=table and not step.node.append_only, net=net)
    step.to(made)
    return made


class Deltas:
    """A sink that takes a step's deltas and knows their sum. Made by `check_deltas`."""

    def __init__(self, step: str, key: tuple[str, ...] | None, *, table: bool, net: bool) -> None:
        self.name = f"check of {step}"
        self._step, self._key, self._withdraws, self._net = step, key, table, net
        self._there: dict[str, list[Row]] = {}
        self._keys: Counter[str] = Counter()
        self._epochs: dict[int, list[Row]] = {}
        self._read = 0

    @property
    def rows(self) -> list[Row]:
        """The sum of all deltas: the rows that are there, sorted as text."""
        return [row for told in sorted(self._there) for row in self._there[told]]

    @property
    def epochs(self) -> dict[int, list[Row]]:
        """By epoch the delta as it was handed over, each row with `_weight` and `_time`."""
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
        given: list[Row] = rows.to_pylist(maps_as_pydicts="strict")
        if epoch in self._epochs:
            if Counter(map(_text, given)) != Counter(map(_text, self._epochs[epoch])):
                raise WrongDelta(self._step, epoch, "is handed over again, and is another one")
            return
        if self._epochs and epoch < max(self._epochs):
            raise WrongDelta(self._step, epoch, f"comes after that of epoch {max(self._epochs)}")
        self._check(epoch, given)
        self._epochs[epoch] = given
        for row in given:
            self._apply(epoch, _bare(row), row["_weight"])
        self._check_keys(epoch, given)

    def _check(self, epoch: int, given: list[Row]) -> None:
        weights: dict[str, set[int]] = {}
        for row in given:
            if row["_weight"] not in (1, -1) or row["_time"] is None:
                raise WrongDelta(self._step, epoch, "has a row of another weight than 1 or -1, or without a time", row)
            if row["_weight"] < 0 and not self._withdraws:
                raise WrongDelta(self._step, epoch, "withdraws a row, and what is given out here stays", row)
            both = weights.setdefault(_text(_bare(row)), set())
            both.add(row["_weight"])
            if self._net and len(both) > 1:
                raise WrongDelta(self._step, epoch, "withdraws a row and gives it out", row)

    def _apply(self, epoch: int, row: Row, weight: int) -> None:
        there = self._there.setdefault(_text(row), [])
        if weight > 0:
            there.append(row)
        elif there:
            there.pop()
        else:
            raise WrongDelta(self._step, epoch, "withdraws a row that is not there", row)
        if not there:
            del self._there[_text(row)]
        if self._key is not None:
            self._keys[self._told(row, self._key)] += weight

    def _check_keys(self, epoch: int, given: list[Row]) -> None:
        """Refuse two rows of a key at the epoch's end, in whatever order they were handed over."""
        if self._key is None:
            return
        for row in given:
            if self._keys[self._told(row, self._key)] > 1:
                raise WrongDelta(self._step, epoch, f"leaves a second row of {', '.join(self._key) or 'all'}", row)

    @staticmethod
    def _told(row: Row, key: tuple[str, ...]) -> str:
        return _text({name: row[name] for name in key})


def _bare(row: Row) -> Row:
    return {name: value for name, value in row.items() if name not in ("_weight", "_time")}


def _text(row: Row) -> str:
    return repr(list(row.items()))
