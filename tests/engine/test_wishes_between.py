"""Somebody pauses a connector at any moment, and its file may be unreadable: no feed runs on, and no thread ends."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from awaiting import until

import headrace as hr
from headrace.base.log_errors import DiskFailed
from headrace.connect.feed import Feed
from headrace.engine.connectors import control, units
from headrace.engine.connectors.control import FILE, FOLDER, Control, Wish, Wishes
from headrace.engine.feeds import Feeds


class Turned:
    """Wishes that somebody changes just after the first look at them: a pause."""

    def __init__(self, storage=None):  # noqa: ARG002 -- of the protocol
        self.looks = 0

    def of(self, names):
        self.looks += 1
        return tuple(Wish(paused=self.looks > 1) for _ in names)

    def paused(self, name):
        return self.of([name])[0].paused


class Waits(Feed):
    """Lands nothing until it is stopped."""

    identity = "waits"

    def run(self, landing, stop):  # noqa: ARG002 -- of the protocol
        stop.wait()


class Topics:
    """A store of topics for feeds that land nothing."""

    def landing(self, spec, **options):  # noqa: ARG002 -- of the protocol
        return SimpleNamespace(close=lambda: None)


def feeds_of(wishes):
    return Feeds([("t", Waits(), SimpleNamespace(name="t"))], Topics(), lambda step: 0, wishes=wishes)  # noqa: ARG005


def test_a_pause_that_comes_while_a_feed_begins_holds():
    feeds = feeds_of(Turned())
    try:
        assert until(lambda: feeds.status()["t"]["state"] == "paused")
    finally:
        feeds.stop()


@pytest.fixture
def idle_apps(monkeypatch):
    """Apps do nothing until they are to stop."""

    @contextmanager
    def start(app, spark, *, carrier):  # noqa: ARG001 -- of the protocol
        yield SimpleNamespace(wait=lambda stop: until(stop.is_set), status=lambda: {"sinks": {}, "sources": {}})

    monkeypatch.setattr(units, "start", start)


@pytest.mark.usefixtures("idle_apps")
def test_a_pause_that_comes_while_an_app_begins_holds(tmp_path, monkeypatch):
    monkeypatch.setattr(units, "Wishes", Turned)
    unit = units.AppUnit(hr.App("in", storage=tmp_path / "in"), until_caught_up=False)
    unit.start()
    try:
        assert until(lambda: unit.states()["in"]["state"] == "paused")
    finally:
        unit.stop()


def damaged(storage):
    """Let the file be none of SQLite's; return how it is mended."""
    path = storage / FOLDER / FILE
    path.parent.mkdir(parents=True)
    path.write_bytes(b"no database " * 1_000)
    return path.unlink


def test_a_feed_whose_wishes_cannot_be_read_says_so_and_begins_later(tmp_path):
    mend = damaged(tmp_path)
    feeds = feeds_of(Wishes(tmp_path))
    try:
        assert until(lambda: feeds.status()["t"]["state"] == "retrying")
        assert "connectors.db" in feeds.status()["t"]["error"]
        mend()
        assert until(lambda: feeds.status()["t"]["state"] == "running")
    finally:
        feeds.stop()


@pytest.mark.usefixtures("idle_apps")
def test_an_app_whose_wishes_cannot_be_read_says_so_and_begins_later(tmp_path):
    unit = units.AppUnit(hr.App("in", storage=tmp_path), until_caught_up=False)
    mend = damaged(tmp_path)
    unit.start()
    try:
        assert until(lambda: unit.states()["in"]["state"] == "retrying")
        assert "connectors.db" in unit.states()["in"]["error"]
        mend()
        assert until(lambda: unit.states()["in"]["state"] == "running")
    finally:
        unit.stop()


def test_what_was_wanted_holds_while_the_file_cannot_be_read(tmp_path, monkeypatch):
    made = Control(tmp_path)
    made.pause(["t"], paused=True)
    wishes = Wishes(tmp_path)
    assert wishes.paused("t")

    def read_only(path, query):  # noqa: ARG001 -- of the protocol
        raise control.sqlite3.OperationalError("database is locked")

    monkeypatch.setattr(control, "read_only", read_only)
    monkeypatch.setattr(control, "LOOK_SECONDS", 0.0)
    assert wishes.paused("t")
    with pytest.raises(DiskFailed, match="database is locked"):
        Wishes(tmp_path).paused("t")
    made.close()
