"""A worker that is stopped does not wait for its apps to catch up."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from types import SimpleNamespace

import headrace as hr
from headrace.engine.connectors import units

NOTHING = {"sinks": {}, "sources": {}}


def test_a_worker_that_is_stopped_does_not_wait_until_an_app_has_caught_up(tmp_path, monkeypatch):
    waits, goes_on = threading.Event(), threading.Event()

    class Behind:
        """An app that never catches up."""

        def await_caught_up(self, timeout=None):
            waits.set()
            if timeout is None:
                goes_on.wait(10)  # without end
            raise TimeoutError

        def status(self):
            return NOTHING

    @contextmanager
    def start(app, spark, *, carrier):  # noqa: ARG001 -- of the protocol
        yield Behind()

    monkeypatch.setattr(units, "start", start)
    unit = units.AppUnit(hr.App("in", storage=tmp_path), until_caught_up=True)
    unit.start()
    assert waits.wait(10)
    stopper = threading.Thread(target=unit.stop)
    stopper.start()
    stopper.join(5)
    ended = not stopper.is_alive()
    goes_on.set()
    stopper.join()
    assert ended
    assert unit.states()["in"]["state"] == "running"


def test_an_app_that_has_caught_up_has_ended(tmp_path, monkeypatch):
    @contextmanager
    def start(app, spark, *, carrier):  # noqa: ARG001 -- of the protocol
        yield SimpleNamespace(await_caught_up=lambda timeout=None: None, status=lambda: NOTHING)  # noqa: ARG005 -- of the protocol

    monkeypatch.setattr(units, "start", start)
    unit = units.AppUnit(hr.App("in", storage=tmp_path), until_caught_up=True)
    unit.start()
    waiting = threading.Event()
    while unit.states()["in"]["state"] != "ended":
        assert not waiting.wait(0.01)
    unit.stop()
