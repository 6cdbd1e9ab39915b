"""Somebody asks for the status while an app fails, stops or is closed: no error, and nothing is left open."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

import headrace as hr
from headrace.base.errors import NotRunning
from headrace.base.time import ManualClock
from headrace.connect.source import Bounds
from headrace.engine.inputs import Inputs
from headrace.engine.operation.supervision import Supervised


class App:
    """A started app that does something while it is asked for its status."""

    epoch = -1

    def __init__(self, meanwhile=lambda: None):
        self.stopped, self.meanwhile = False, meanwhile

    def status(self):
        now = {"running": not self.stopped}
        act, self.meanwhile = self.meanwhile, lambda: None
        act()
        return now

    def stop(self):
        self.stopped = True

    abandon = stop


class Torn(Supervised):
    """Does something just after somebody has looked which app runs."""

    held = meanwhile = None

    def is_abandoned(self):
        self._abandon()

    @property
    def _running(self):
        found, act = self.held, self.meanwhile
        if found is not None and act is not None:
            self.meanwhile = None
            act()
        return found

    @_running.setter
    def _running(self, app):
        self.held = app


def supervised(app, kind=Supervised):
    storage = SimpleNamespace(release=lambda: None)
    state = SimpleNamespace(storage=storage, failed=False, set=lambda *_, **__: None, shown=dict)
    return kind(None, lambda: app, state, restart=hr.Restart(), stop=threading.Event())


def test_the_status_of_an_app_that_is_just_abandoned_is_its_last_one():
    with supervised(App(), Torn) as running:
        running.status()
        running.meanwhile = running.is_abandoned
        assert "running" in running.status()
        assert "running" in running.status()


def test_the_status_after_a_stop_is_the_last_one_though_another_was_on_its_way():
    app = App()
    with supervised(app) as running:
        app.meanwhile = running.stop
        assert running.status() == {"running": True}
        assert running.status() == {"running": False}


def made(tmp_path):
    app = hr.App("counted", storage=tmp_path / "app")
    app.stream("t", "v int", partitions=1).to_view("all")
    return app


class Source:
    """A source that counts what is open of it, as connections to a cluster are."""

    is_open = 0
    poll_seconds = 0.0

    def open(self, *, clock):  # noqa: ARG002 -- of the protocol
        self.is_open += 1
        return self

    def bounds(self):
        return Bounds({}, {})

    def close(self):
        self.is_open -= 1


def test_who_asks_for_the_lag_after_the_end_opens_no_reader():
    source = Source()
    inputs = Inputs({"t": SimpleNamespace(source=source, in_order=None)}, clock=ManualClock())
    assert inputs.bounds_of("t") == Bounds({}, {})
    inputs.close()
    with pytest.raises(NotRunning):
        inputs.bounds_of("t")
    assert source.is_open == 0


def test_a_status_from_the_storage_leaves_no_reader_open(tmp_path, monkeypatch):
    app, opened, closed = made(tmp_path), [], []
    open_one, close = Inputs.reader, Inputs.close
    monkeypatch.setattr(Inputs, "reader", lambda self, step: opened.append(self) or open_one(self, step))
    monkeypatch.setattr(Inputs, "close", lambda self: closed.append(self) or close(self))
    app.status()
    assert opened
    assert set(opened) == set(closed)
