"""A simulated case as plain values: the program, its outputs, and what happens to it. Printing one gives Python."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field
from pprint import pformat
from typing import TYPE_CHECKING, Any, Literal

import headrace as hr

if TYPE_CHECKING:
    from headrace.dsl.handle import Handle

COLUMNS = ("id", "k", "g", "v", "ts")
SCHEMA = "id int, k string, g int, v bigint, ts timestamp"
FIRST = 1_767_225_600_000
"""The instant that events count from, in milliseconds; a whole day, so that windows begin there."""
BOUNDED = "b"
"""The source whose rows are in the program."""
EVER = "9 days"
"""A delay or grace that no event reaches, so that nothing is late."""

PRELUDE = f'SCHEMA = "{SCHEMA}"\n'


@dataclass(frozen=True)
class Step:
    """A step: `code` builds it, `sql` is the batch query that it must equal.

    In both `{0}`, `{1}` are the inputs and `{me}` is the step. `sql` may use `{0}_log`: the records of a source.
    """

    name: str
    inputs: tuple[str, ...]
    code: str
    sql: str

    def line(self) -> str:
        """Return the line of the program."""
        return f"{self.name} = {self.code.format(*self.inputs, me=self.name)}"

    def query(self) -> str:
        """Return the query over the queries of its inputs."""
        return self.sql.format(*self.inputs, me=self.name)


@dataclass(frozen=True)
class Output:
    """Where the rows of a step can be seen: a view, a topic, or a view of the rows that were late for it.

    `waits`: its rows are complete only once the input has ended. `sql`: a query instead of the step's, for late rows.
    """

    name: str
    step: str
    kind: Literal["view", "topic", "late"]
    waits: bool = False
    sql: str | None = None

    def line(self) -> str:
        """Return the line of the program."""
        if self.kind == "late":
            return f'{self.step}.late.to_view("{self.name}")'
        return f'{self.step}.to_{self.kind}("{self.name}")'


Action = tuple[Any, ...]
"""What happens: its name and its arguments, see `play`."""


@dataclass(frozen=True)
class Case:
    """A program and what happens to it; two equal ones give equal results."""

    steps: tuple[Step, ...]
    outputs: tuple[Output, ...] = ()
    actions: tuple[Action, ...] = ()
    shards: int = 1
    seed: int | None = field(default=None, compare=False)

    def app(self) -> hr.App:
        """Build the app. Equal cases build equal apps."""
        return self.handles()[0]

    def handles(self) -> tuple[hr.App, dict[str, Handle]]:
        """Build the app; return it and its steps by name."""
        names = self.names()
        return names["app"], {step.name: names[step.name] for step in self.steps}

    def names(self) -> dict[str, Any]:
        """Build the app; return the names of its program."""
        names: dict[str, Any] = {"hr": hr, "app": hr.App("simulated", shards=self.shards)}
        exec(self.program(), names)  # noqa: S102 -- our own text: what is printed is what runs
        return names

    def program(self) -> str:
        """Return the program as Python."""
        lines = [*(step.line() for step in self.steps), *(output.line() for output in self.outputs)]
        return PRELUDE + "\n".join(lines) + "\n"

    def text(self) -> str:
        """Return a test to paste: the case, which plays itself, with its program as a comment."""
        values = pformat(self, width=116, sort_dicts=False)
        played = f"failure = check(\n{textwrap.indent(values, '    ')}\n)\nassert failure is None, failure"
        body = textwrap.indent(played, "    ")
        shown = textwrap.indent(self.program(), "# ", lambda line: True)  # noqa: ARG005 -- every line
        return (
            "from headrace.testing.simulation import Case, Output, Step, check\n\n"
            f"{shown}\n\ndef test_the_simulated_case_of_seed_{self.seed}():\n{body}\n"
        )
