"""Plans print, and are compared with kept state, as they always were."""

from __future__ import annotations

import pytest
from plan_apps import APPS, SNAPSHOTS, snapshot

import headrace as hr

SUFFIXES = ("txt", "mmd", "json", "facts", "identity.json")


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("name", APPS)
def test_a_plan_prints_what_its_snapshot_says(name, suffix):
    kept = (SNAPSHOTS / f"{name}.{suffix}").read_text(encoding="utf-8")
    assert snapshot(APPS[name]())[suffix] == kept


def test_what_meets_no_condition_of_a_branch_may_be_joined_in_full():
    """Such rows have no condition that says which of their columns are not null."""
    app = hr.App("shop")
    rows = app.stream("orders", "id int, user string").branch(small="id < 3")[None]
    users = app.table("users", "id int, city string", key="id")
    joined = rows.latest("id").join(users, on="id", how="full")
    assert joined.key == ("id",)
