"""Plays a case against the engine and compares every output with the batch query."""

from __future__ import annotations

import tempfile
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from headrace.base.errors import HeadraceError
from headrace.testing.simulation.case import COLUMNS, Case, Output
from headrace.testing.simulation.machine import Machine
from headrace.testing.simulation.oracle import DuckOracle, Oracle, Rows, Sent, as_rows, queries
from headrace.testing.simulation.vocabulary import DELAY, SECOND

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.dsl.handle import Handle
    from headrace.testing.files import FaultKind

_DUCK = DuckOracle()
DELAYS = {"l": DELAY * SECOND}


@dataclass(frozen=True)
class Failure:
    """What was wrong: `kind` is the same for cases that fail in the same way."""

    kind: str
    detail: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.detail}"


class Wrong(Exception):
    """An output is not what it must be."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(str(failure))
        self.failure = failure


def check(case: Case, *, carrier: Literal["in process", "spark"] = "in process", oracle: Oracle | None = None
          ) -> Failure | None:  # fmt: skip
    """Play a case; return how it failed, or None.

    Any error that the app raises is a failure, and so is an output with other rows than the batch query gives.
    """
    with tempfile.TemporaryDirectory(prefix="headrace-simulated-") as folder:
        play = Play(case, Path(folder), carrier, oracle or _DUCK)
        try:
            with play.machine.files.watched():
                play.run()
        except Wrong as wrong:
            return wrong.failure
        except Exception as error:  # noqa: BLE001 -- whatever it is, it is a finding
            where = traceback.extract_tb(error.__traceback__)[-1]
            condition = getattr(error, "condition", type(error).__name__)
            detail = "".join(traceback.format_exception(error)) if not isinstance(error, HeadraceError) else str(error)
            return Failure(f"{condition} in {Path(where.filename).name}", detail)
        finally:
            play.machine.stop()
    return None


class Play:
    """A case that runs."""

    def __init__(self, case: Case, folder: Path, carrier: Literal["in process", "spark"], oracle: Oracle) -> None:
        self.case, self.oracle = case, oracle
        durable = any(action[0] == "power" for action in case.actions)
        self.machine = Machine(folder / "disk", carrier=carrier, shards=case.shards, durable=durable)
        self.sent = Sent()
        self.sources = [step.name for step in case.steps if not step.inputs]
        self.handles: dict[str, Handle] = {}

    def run(self) -> None:
        """Do all that happens, then end the input and compare."""
        self.handles = self.case.handles()[1]
        self.do_restart()
        for action in self.case.actions:
            getattr(self, f"do_{action[0]}")(*action[1:])
        self.do_check()
        self.machine.step(ended=True)
        self.machine.run()
        self.compare(self.case.outputs, "at the end of the input")

    # ---- what happens ----

    def do_send(self, source: str, rows: Sequence[Sequence[Any]]) -> None:
        """Append records to the topic of a source."""
        if source not in self.sources:
            return
        topic = self.machine.log.topic(source)
        for row in rows:
            self.sent.add(source, row)
        topic.append([_record(row) for row in rows])

    def do_step(self) -> None:
        """Run an epoch."""
        self.machine.step()
        self.sent.committed(DELAYS)

    def do_twice(self) -> None:
        """Run an epoch whose tasks are all run a second time, as if nobody knew how the first attempts ended."""
        self.machine.twice()
        self.sent.committed(DELAYS)

    def do_crash(self, point: str) -> None:
        """Run an epoch that dies at a point, if it comes by it, and start again."""
        before = self.machine.epoch
        if self.machine.crash(point):
            self.do_restart()
        if self.machine.epoch != before:
            self.sent.committed(DELAYS)

    def do_fault(self, call: int, kind: FaultKind, when: str) -> None:
        """Let a call of the file system fail, in an epoch or while the app starts; then start it again."""
        before = self.machine.epoch
        do = self.machine.step if when == "epoch" else self.do_restart
        if self.machine.fault(call, kind, do):
            self.do_restart()
        if self.machine.epoch != before:
            self.sent.committed(DELAYS)

    def do_power(self, call: int, seed: int) -> None:
        """Cut the power in an epoch, and start again on what is left of the disk."""
        before = self.machine.epoch
        if self.machine.cut(call, seed):
            self.do_restart()
        if self.machine.epoch != before:
            self.sent.committed(DELAYS)

    def do_restart(self) -> None:
        """Start again."""
        self.machine.start(self.case.app())

    def do_check(self) -> None:
        """Run until nothing moves, and compare what is complete by then."""
        self.do_step()
        self.machine.run()
        self.compare([output for output in self.case.outputs if not output.waits], "with all read")

    # ---- what is compared ----

    def compare(self, outputs: Sequence[Output], when: str) -> None:
        """Compare outputs with the batch query.

        Raises:
            Wrong: one of them has other rows.

        """
        found, columns = {}, {}
        for output in outputs:
            rows, columns[output.name] = self.rows(output)
            found[output.name] = as_rows(rows, columns[output.name])
        tables = {f"{name}_records": self.sent.table(name) for name in self.sources}
        answers = self.oracle.answer(tables, queries(self.case, columns, outputs))
        for output, answer in zip(outputs, answers, strict=True):
            expected = as_rows(self._there(output, answer.to_pylist()), columns[output.name])
            if found[output.name] != expected:
                raise Wrong(Failure(f"wrong {output.kind}", _difference(output, expected, found[output.name], when)))

    def rows(self, output: Output) -> tuple[list[dict[str, Any]], list[str]]:
        """Return the rows of an output, and its columns."""
        if output.kind != "topic":
            view = self.machine.running.views.read(output.name)
            return view.to_pylist(), view.column_names
        topic = self.machine.log.topic(output.name)
        columns, key = topic.schema.names, topic.key
        rows: list[dict[str, Any]] = []
        for partition, end in topic.end_offsets().items():
            for batch in topic.batches(partition, 0, end, columns=[*columns, "_deleted"]):
                rows += batch.to_pylist()
        if not self.handles[output.step].node.is_table:
            return rows, columns
        last: dict[tuple[Any, ...], dict[str, Any]] = {}
        for row in rows:
            last[tuple(row[name] for name in key)] = row
        return [row for row in last.values() if not row["_deleted"]], columns

    def _there(self, output: Output, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the rows that an output can have: a row whose whole key is null is no record of a compacted topic."""
        node = self.handles[output.step].node
        if output.kind != "topic" or not node.is_table:
            return rows
        return [row for row in rows if any(row[name] is not None for name in node.key or ())]


def _record(row: Sequence[Any]) -> dict[str, Any]:
    if len(row) == 2:
        return {"id": row[0], "ts": row[1], "_deleted": True}
    return dict(zip(COLUMNS, row, strict=True))


def _difference(output: Output, expected: Rows, found: Rows, when: str) -> str:
    missing, more = expected - found, found - expected
    lines = [
        f"{output.name} {when}: {sum(missing.values())} rows are missing, {sum(more.values())} should not be there"
    ]
    lines += [f"  missing {row}" for row in list(missing.elements())[:5]]
    lines += [f"  wrong   {row}" for row in list(more.elements())[:5]]
    return "\n".join(lines)
