"""What the tests of crashes in one process share: how an epoch is run, disturbed or not, which must make no difference.

A scenario sends an epoch's input and runs the epoch with `step(driver, number)`, one of these.
"""

from __future__ import annotations

import pytest

from headrace.testing import POINTS, Driver

TOPICS = ("between_topics", "before_mark")
"""The points of an app that writes to topics."""

AROUND_THE_COMMIT = ("after_staging", "during_commit", "after_commit", "before_views")
"""What a start has to tell apart: nothing is committed, it may be, it is, and it is not seen everywhere."""


def points(*fast, without=()):
    """Return the crash points as cases: those named are fast ones, the others are long ones.

    An app without topics is `without` their points. The app of `crashing` crashes at every point in a fast case.
    Each kind of state crashes at two, so that every point meets two kinds or more.
    """
    assert set(fast) <= set(POINTS)
    reached = [point for point in POINTS if point not in without]
    return [point if point in fast else pytest.param(point, marks=pytest.mark.prove) for point in reached]


def windowed_points(changes, final, *, without=()):
    """Return where steps with windows crash: corrected results everywhere, final ones around the commit.

    One of each is a fast case.
    """
    reached = [point for point in POINTS if point not in without]
    cases = [*(("changes", point) for point in reached), ("final", "after_staging"), ("final", "after_commit")]
    fast = [("changes", changes), ("final", final)]
    assert set(fast) <= set(cases)
    return [case if case in fast else pytest.param(*case, marks=pytest.mark.prove) for case in cases]


def quietly(driver, number):  # noqa: ARG001 -- an epoch like all
    """Run an epoch."""
    driver.step()


def restarting(driver, number):  # noqa: ARG001 -- an epoch like all
    """Run an epoch and start again: nothing in memory is needed."""
    driver.step()
    driver.restart()


def crashing(point, epochs):
    """Return how to run epochs of which these crash at a point; a snapshot of the state is made in the first alone."""
    crash_in = (0,) if point == "during_snapshot" else epochs

    def step(driver, number):
        if number not in crash_in:
            driver.step()
            return
        driver.crash(at=point)
        driver.restart()
        if driver.status()["lag"]:
            driver.step()  # the epoch had not happened

    return step


def disorder(row):
    """Return epochs of rows out of order that correct windows, make them meet and close, and come late.

    `row(key, time, value)` makes one; the times are of the size of a window.
    """
    return [
        [row("abc"[(i * 7) % 3], epoch * 9 + i * 11 % 14 - (epoch % 3) * 6, i % 4) for i in range(12)]
        for epoch in range(7)
    ]


def played(app, epochs, step, see):
    """Send rows of `t` epoch by epoch, run all to the end, and return what `see` sees."""
    with Driver(app, shards=2) as driver:
        for number, rows in enumerate(epochs):
            driver.send("t", *rows)
            step(driver, number)
        driver.run()
        driver.finish()
        return see(driver)
