"""The simulation is not blind: bugs that are patched in are noticed. All of them: `scripts/planted_bugs.py`."""

from __future__ import annotations

import pytest
from scripts.planted_bugs import BUGS, hunt

FAST = ("publish before commit", "cache stamp ignored", "withdrawn row stays in a view")


@pytest.mark.parametrize(
    "bug", [bug if bug.name in FAST else pytest.param(bug, marks=pytest.mark.prove) for bug in BUGS], ids=str
)
def test_a_planted_bug_is_noticed_and_its_case_passes_without_it(bug):
    most = 40 if bug.name in FAST else 400
    assert hunt(bug, bug.seed, most).seed is not None
