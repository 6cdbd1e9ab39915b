"""Whoever waits until an app has caught up hears of a feed that fails at the last moment."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import pytest

import headrace as hr
from headrace.base.errors import InvalidPlan
from headrace.base.outside import FeedFailed
from headrace.connect.feed import Feed
from headrace.engine.feeds import Feeds


@dataclass(frozen=True)
class FailsThen(Feed):
    """Lands nothing, and fails when it is told to."""

    @property
    def identity(self):
        return "fails"

    def run(self, landing, stop):  # noqa: ARG002 -- of the protocol
        while not stop.wait(0.01):
            if FAILS.is_set():
                raise InvalidPlan("it is broken")


FAILS = threading.Event()


def test_a_feed_that_fails_at_the_last_moment_is_not_caught_up(tmp_path, monkeypatch):
    quiet, waiting = Feeds.quiet.fget, threading.Event()

    def fails_first(self):
        FAILS.set()
        while not self.ended:
            waiting.wait(0.01)
        return quiet(self)

    monkeypatch.setattr(Feeds, "quiet", property(fails_first))
    FAILS.clear()
    app = hr.App("in", storage=tmp_path / "in")
    app.stream("t", "v int", source=FailsThen()).to_view("all")
    with app.start(carrier="in-process") as running, pytest.raises(FeedFailed, match="it is broken"):
        running.await_caught_up(60)
