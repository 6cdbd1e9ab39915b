"""A start that fails leaves no thread: of another app's start nobody would know what it does."""

from __future__ import annotations

import threading

import pytest

import headrace as hr
from headrace.base.errors import InvalidPlan
from headrace.connect import files


def test_a_start_that_fails_after_its_epochs_have_begun_ends_them(tmp_path):
    app = hr.App("twice", storage=tmp_path / "app")
    for name in ("a", "b"):
        source = files.lines(tmp_path / f"{name}.jsonl", follow=True)
        app.stream("t", "id int", source=source).named(name).to_view(f"v_{name}")
    before = set(threading.enumerate())
    with pytest.raises(InvalidPlan, match="two feeds fill the topic"):
        app.start(carrier="in-process")
    assert {each.name for each in set(threading.enumerate()) - before} == set()
