"""What is known of a kind of node is in its own file: those that print, compare and name nodes ask none what it is."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest
from test_node_contract import KINDS

from headrace.engine.program import identity
from headrace.plan import explain

OF_THEIR_OWN = {"Select", "Where", "Union"}  # words of SQL too: a mention need not be the node


@pytest.mark.parametrize("module", [explain, identity], ids=lambda module: module.__name__)
def test_what_prints_and_compares_nodes_names_no_kind(module):
    tree = ast.parse(inspect.getsource(module))
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert names & (set(dict(KINDS)) - OF_THEIR_OWN) == set()
    assert "singledispatch" not in names


@pytest.mark.parametrize("kind", dict(KINDS).values(), ids=dict(KINDS))
def test_a_kind_is_described_in_the_file_that_defines_it(kind):
    described = next(base for base in kind.__mro__ if "describe" in vars(base))
    assert Path(inspect.getfile(described)) == Path(inspect.getfile(kind))
