"""A new operator with state touches four places: its node, its verb, its kernel, its test."""

from __future__ import annotations

import ast
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import ClassVar

import pyarrow as pa

import headrace
import headrace as hr
from headrace.dsl.stream_table import Stream
from headrace.kernels.op import StatefulOp, StepResult
from headrace.kernels.state.tables import COUNT, Column, TableSpec
from headrace.plan.nodes import Description, Keyed
from headrace.testing import Driver

PACKAGE = Path(headrace.__file__).parent
PLACES = {
    "plan/nodes/dedupe.py": "the node",
    "plan/nodes/__init__.py": "the node among the others",
    "dsl/rows.py": "what the verb checks",
    "dsl/stream_table.py": "the verb",
    "dsl/app.py": "a use of the verb: a repeated request is answered once",
    "kernels/dedupe.py": "the kernel",
    "testing/simulation/vocabulary.py": "the words of random programs",
}
"""The files of the source that name `dedupe`; its tests are the fourth place."""


def identifiers(path):
    """Return every name in a file: what it defines, imports and uses."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        found |= {
            getattr(node, part) for part in ("id", "attr", "name", "arg") if isinstance(getattr(node, part, 0), str)
        }
        if isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
    return found


def test_one_operator_is_named_in_its_own_places_only():
    found = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if any("dedupe" in n.lower() for n in identifiers(path))
    }
    assert found == set(PLACES)


# ---- a new one: a node and a kernel, and nothing else ----


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepHighest(StatefulOp):
    """The kernel: of each key the rows that are higher than all before them, by `factor` at least."""

    timed: ClassVar[bool] = False

    columns: tuple[Column, ...]
    keys: tuple[str, ...]
    factor: int

    def tables(self):
        """Return the highest row of each key."""
        return (TableSpec(name="highest", keys=(("k", "VARCHAR"),), values=(("x", "BIGINT"),), by=(("k",),)),)

    def run(self, inputs, context):
        """Return the rows that are higher."""
        rows = inputs[0].relation
        if rows is None:
            return StepResult()
        kept = context.state.lookup("highest", ["k"], rows)
        best = f"(SELECT k, max(x) AS x, max(_time) AS _time FROM {rows} GROUP BY k)"
        delta = context.duck.arrow(
            f"SELECT d.k, d.x, 1::INTEGER AS _weight, d._time, 1::BIGINT AS {COUNT}, s.rowid AS o_row "
            f"FROM {best} d LEFT JOIN {kept} s ON d.k = s.k WHERE s.x IS NULL OR d.x >= {self.factor} * s.x"
        )
        context.state.replace("highest", delta.select(["k", COUNT, "x", "o_row"]), at="o_row")
        return StepResult([delta.select(["k", "x", "_weight", "_time"])])


@dataclass(frozen=True, eq=False, kw_only=True)
class Highest(Keyed):
    """The node."""

    verb = "highest"
    kernel = "highest.KeepHighest"

    factor: int

    def parameters(self):
        """Return the factor."""
        return {"factor": self.factor}

    def identity(self):
        """Return the factor."""
        return {"factor": self.factor}

    def describe(self):
        """Return the keys."""
        return Description(detail=f"highest per {self.keys}")


def test_a_node_and_a_kernel_are_enough_to_run_a_new_operator(monkeypatch):
    """No lowering, no registry, no level knows of it; its rows go through an exchange, and its state is kept."""
    place = ModuleType("headrace.kernels.highest")
    place.KeepHighest = KeepHighest
    monkeypatch.setitem(sys.modules, place.__name__, place)
    app = hr.App("new")
    above = app.stream("t", "k string, x bigint")
    node = Highest(up=above.node, schema=above.node.schema, keys=("k",), factor=2)
    assert pa.types.is_string(node.schema.field("k").type)
    Stream(above.registry, node).to_topic("out")
    with Driver(app, shards=3) as driver:
        driver.send("t", {"k": "a", "x": 1}, {"k": "b", "x": 5})
        driver.run()
        driver.send("t", {"k": "a", "x": 2}, {"k": "b", "x": 6})
        driver.run()
        rows = sorted((row["k"], row["x"]) for row in driver.read("out"))
    assert rows == [("a", 1), ("a", 2), ("b", 5)]
