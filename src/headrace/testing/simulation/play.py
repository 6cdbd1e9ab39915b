"""Plays a case against the engine and compares every output with the batch query."""

from __future__ import annotations

import tempfile
import traceback
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.base.errors import HeadraceError, InternalError, PlanChanged, PlanError, ViewOutOfStep
from headrace.base.outside import OutputsNotKept
from headrace.engine.program.reset import reset
from headrace.engine.recovery.verify import verify
from headrace.testing.simulation import accidents, programs
from headrace.testing.simulation.case import COLUMNS, Case, Output
from headrace.testing.simulation.machine import Machine
from headrace.testing.simulation.oracle import DuckOracle, Oracle, Rows, Sent, as_rows, queries
from headrace.testing.simulation.shapes import DELAY, SECOND

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.dsl.app import App
    from headrace.dsl.handle import Handle
    from headrace.engine.program.reset import Outputs
    from headrace.testing.files import FaultKind
    from headrace.testing.simulation.accidents import Part
    from headrace.testing.simulation.machine import Carrier

_DUCK = DuckOracle()
DELAYS = {"l": DELAY * SECOND}
MOST_STARTS = 5
"""How often something is tried on Spark."""
RIGHT, RIGHT_IN_PART, FOUND = "right", "right, in part", "found by verify"


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


@dataclass(frozen=True)
class Outcome:
    """How a case ended.

    `failure`: what was wrong, None if nothing was. `accidents`: what happened to the files. `ended`: "right"; "right,
    in part": the app itself says that an output lacks rows, which was not compared; "found by verify"; or the
    conditions of the errors with which the app refused to go on.
    """

    failure: Failure | None = None
    accidents: tuple[str, ...] = ()
    ended: str = RIGHT


def check(case: Case, *, carrier: Carrier = "in process", oracle: Oracle | None = None
          ) -> Failure | None:  # fmt: skip
    """Play a case; return how it failed, or None.

    An output with other rows than the batch query gives is a failure. So is any error that the app raises, unless there
    was an accident: then an error of ours, which is not a bug of ours, is a right answer.
    """
    return outcome_of(case, carrier=carrier, oracle=oracle).failure


def outcome_of(case: Case, *, carrier: Carrier = "in process", oracle: Oracle | None = None
               ) -> Outcome:  # fmt: skip
    """Play a case; return how it ended."""
    with tempfile.TemporaryDirectory(prefix="headrace-simulated-") as folder:
        play = Play(case, Path(folder), carrier, oracle or _DUCK)
        failure = None
        try:
            with play.machine.watched():
                play.run()
        except Wrong as wrong:
            failure = None if play.damage_is_found() else wrong.failure
        except Exception as error:  # noqa: BLE001 -- whatever it is, it is a finding
            where = traceback.extract_tb(error.__traceback__)[-1]
            condition = getattr(error, "condition", type(error).__name__)
            detail = "".join(traceback.format_exception(error)) if not isinstance(error, HeadraceError) else str(error)
            failure = Failure(f"{condition} in {Path(where.filename).name}", detail + play.damage())
        finally:
            play.machine.stop()
        ended = ", ".join(play.refusals) or (RIGHT_IN_PART if play.incomplete else RIGHT)
        return Outcome(failure, tuple(play.accidents), ended)


class Play:
    """A case that runs."""

    def __init__(self, case: Case, folder: Path, carrier: Carrier, oracle: Oracle) -> None:
        self.case = self.last_case = case
        self.oracle = oracle
        durable = any(action[0] == "power" for action in case.actions)
        self.machine = Machine(folder / "disk", carrier=carrier, shards=case.shards, durable=durable, seed=case.seed)
        self.sent = Sent()
        self.built: tuple[Case, App, dict[str, Handle]] | None = None
        self.handles: dict[str, Handle] = {}
        self.copy = folder / "copy"
        self.kept: Sent | None = None
        self.accidents: list[str] = []
        self.flipped: list[Path] = []
        self.refusals: list[str] = []
        self.incomplete: set[str] = set()

    @property
    def sources(self) -> list[str]:
        """The sources of the program that runs."""
        return [step.name for step in self.case.steps if not step.inputs]

    def run(self) -> None:
        """Do all that happens, then end the input and compare; or until the app refuses to go on after an accident."""
        changed = next((action for action in self.case.actions if action[0] == "program"), None)
        if changed is not None:
            self.last_case = programs.after(self.case, *changed[1:3])
            self.case = programs.before(self.case, *changed[1:3])
        try:
            self.do_restart()
            for action in (*self.last_case.actions, ("check",), ("end",)):
                self.act(*action)
        except HeadraceError as error:
            expected = not isinstance(error, InternalError) or (self.flipped and isinstance(error, ViewOutOfStep))
            if not self.accidents or not expected:
                raise
            self.refusals.append(error.condition)

    def act(self, name: str, *arguments: Any) -> None:
        """Let one thing happen; what Spark cannot do on a busy machine is done again, as supervision does."""
        for left in reversed(range(MOST_STARTS)):
            before = self.machine.read
            try:
                getattr(self, f"do_{name}")(*arguments)
            except HeadraceError as error:
                if not left or not error.may_pass or self.machine.carrier_name != "spark":
                    raise
                self.do_restart()
                if self.machine.read != before:
                    self.sent.committed(DELAYS)
            else:
                return

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
        before = self.machine.read
        if self.machine.crash(point):
            self.do_restart()
        if self.machine.read != before:
            self.sent.committed(DELAYS)

    def do_fault(self, call: int, kind: FaultKind, when: str) -> None:
        """Let a call of the file system fail, in an epoch or while the app starts; then start it again."""
        before = self.machine.read
        do = self.machine.step if when == "epoch" else self.do_restart
        if self.machine.fault(call, kind, do):
            self.do_restart()
        if self.machine.read != before:
            self.sent.committed(DELAYS)

    def do_power(self, call: int, seed: int) -> None:
        """Cut the power in an epoch, and start again on what is left of the disk. Not on Spark: it syncs nothing."""
        if self.machine.carrier_name == "spark":
            self.do_step()
            return
        before = self.machine.read
        if self.machine.cut(call, seed):
            self.do_restart()
        if self.machine.read != before:
            self.sent.committed(DELAYS)

    def do_restart(self) -> None:
        """Start again."""
        if self.built is None or self.built[0] is not self.case:
            self.built = self.case, *self.case.handles()
        _, app, self.handles = self.built
        self.machine.start(app)

    def do_check(self) -> None:
        """Run until nothing moves, and compare what is complete by then."""
        self.do_step()
        self.machine.run()
        self.compare([output for output in self.case.outputs if not output.waits], "with all read")

    def do_end(self) -> None:
        """End the input, and compare everything."""
        self.machine.step(ended=True)
        self.machine.run()
        self.compare(self.case.outputs, "at the end of the input")

    # ---- accidents ----

    def do_lose(self) -> None:
        """Start again without the newest commit."""
        self.accidents.append("lost commit")
        self.machine.stop()
        accidents.lose_newest_commit(self.machine.storage)
        self.do_restart()

    def do_keep(self) -> None:
        """Copy the app and its log, as they are between two epochs."""
        accidents.keep(self.machine.storage, self.copy)
        self.kept = deepcopy(self.sent)

    def do_restore(self, part: Part) -> None:
        """Put the copy back, or a part of it, and start again."""
        if self.kept is None:
            return
        self.accidents.append(f"restored {part}")
        self.machine.stop()
        accidents.put_back(self.machine.storage, self.copy, part)
        if part == "both":
            self.sent = deepcopy(self.kept)
        elif part == "log":
            self.sent.lose_unread(self.kept.count)
        self.do_restart()

    def do_flip(self, seed: int, *aim: str) -> None:
        """Flip a bit of a file, and start again; `aim`: where."""
        self.accidents.append("flipped bit")
        self.machine.stop()
        flipped = accidents.flip_a_bit(self.machine.storage, seed, *aim)
        self.flipped += [flipped] if flipped is not None else []
        self.do_restart()

    def do_reset(self, step: str | None, outputs: Outputs = "again") -> None:
        """Reset the app or a step, and start again. What is late then, and rows appended again, are not compared."""
        self.accidents.append("reset of a step" if step is not None else f"reset of all, outputs {outputs}")
        plan = self.machine.running.plan
        self.machine.stop()
        try:
            reset(plan, self.machine.storage, step, outputs=outputs, sync=False)
        except OutputsNotKept as error:
            self.refusals.append(error.condition)
        except PlanError:  # a step that another program had
            pass
        self.do_restart()
        self.incomplete |= programs.below(self.case, "l")
        self.incomplete |= {*programs.partial(plan, plan.sinks, self.machine.running.last)}
        if step is None and outputs == "again":
            self.incomplete |= {output.name for output in self.case.outputs if self._has_rows_twice(output)}

    def _has_rows_twice(self, output: Output) -> bool:
        """Whether an output is a topic of rows, which keeps what was there and gets all of it again."""
        return output.kind == "topic" and not self.handles[output.step].node.is_table

    def do_program(self, kind: str, what: Any, point: str | None) -> None:
        """Start the changed program; it may die on its way. Where it is refused, the old one goes on."""
        self.accidents.append(f"program: {kind}")
        old, last = self.case, self.machine.running.last
        self.case = self.last_case
        try:
            if point is None or self.machine.crash(point, self.do_restart):
                self.do_restart()
        except PlanChanged as error:
            self.refusals.append(error.condition)
            self.case = old
            self.do_restart()
            return
        running = self.machine.running
        self.incomplete |= programs.incomplete(running.plan, last, running.last)
        if kind == "condition" and what[0] in self.handles and self.handles[what[0]].node.append_only:
            self.incomplete |= programs.below(self.case, what[0])

    def damage(self) -> str:
        """Return which files have a flipped bit, for a message."""
        return "".join(f"\n  a bit of {path.relative_to(self.machine.storage)} was flipped" for path in self.flipped)

    def damage_is_found(self) -> bool:
        """Whether `headrace verify` names a file with a flipped bit."""
        if not self.flipped:
            return False
        storage = self.machine.storage
        self.machine.stop()
        try:
            files = {Path(damage.file).name for damage in verify(storage, storage / "log")}
        except HeadraceError as error:
            self.refusals.append(error.condition)
            return True
        if not any(path.name.startswith(name) for path in self.flipped for name in files if name):
            return False
        self.refusals.append(FOUND)
        return True

    # ---- what is compared ----

    def compare(self, outputs: Sequence[Output], when: str) -> None:
        """Compare outputs with the batch query.

        Raises:
            Wrong: one of them has other rows.

        """
        outputs = [output for output in outputs if output.name not in self.incomplete]
        found, columns = {}, {}
        for output in outputs:
            rows, columns[output.name] = self.rows(output)
            found[output.name] = as_rows(rows, columns[output.name])
        tables = {f"{name}_records": self.sent.table(name) for name in self.sources}
        answers = self.oracle.answer(tables, queries(self.case, columns, outputs))
        for output, answer in zip(outputs, answers, strict=True):
            expected = as_rows(self._there(output, answer.to_pylist()), columns[output.name])
            if found[output.name] != expected:
                raise Wrong(
                    Failure(
                        f"wrong {output.kind}", _difference(output, expected, found[output.name], when) + self.damage()
                    )
                )

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
