"""Windows as values: how they print, how long they hold results back, and which lengths make none."""

from __future__ import annotations

import pytest

import headrace as hr
from headrace.plan.windows import InvalidWindow

MINUTE = 60_000_000
PRINTED = {
    "tumbling 1 minute, grace 5 seconds": hr.tumbling("60 seconds", grace="5 s"),
    "tumbling 1 hour, grace 0 seconds, offset 10 minutes": hr.tumbling("1 hour", grace="0 s", offset="10 minutes"),
    "hopping 10 minutes every 4 minutes, grace 1 minute": hr.hopping("10 minutes", "4 minutes", grace="1 minute"),
    "cumulating 1 hour by 10 minutes, grace 1 minute": hr.cumulating("1 hour", "10 minutes", grace="1 minute"),
    "tumbling 1 month in Europe/Paris, grace 1 day": hr.tumbling("1 month", grace="1 day", timezone="Europe/Paris"),
    "sliding 5 minutes, grace 1 minute": hr.sliding("5 minutes", grace="1 minute"),
    "session, gap 30 minutes, grace 1 minute": hr.session("30 minutes", grace="1 minute"),
}


@pytest.mark.parametrize(("text", "window"), PRINTED.items(), ids=PRINTED)
def test_a_window_prints_in_words(text, window):
    assert str(window) == text


STATE = {
    "a row per (k, pane of 2 minutes), dropped when its last window closes": hr.hopping(
        "10 minutes", "4 minutes", grace="0 s"
    ),
    "a row per (k, pane of 1 month), dropped when its last window closes": hr.hopping("1 year", "1 month", grace="0 s"),
    "a row per (k, session), dropped when it closes": hr.session("1 minute", grace="0 s"),
    "a row per (k, event time), dropped when no open window reaches it": hr.sliding("1 minute", grace="0 s"),
}


@pytest.mark.parametrize(("text", "window"), STATE.items(), ids=STATE)
def test_a_window_says_what_a_row_of_its_state_is(text, window):
    assert window.state_row("k") == text


def test_a_result_is_held_back_by_the_grace():
    assert hr.tumbling("1 hour", grace="1 minute").hold == MINUTE
    assert hr.sliding("1 hour", grace="1 minute").hold == MINUTE


def test_the_last_moment_of_a_session_is_inside_it():
    """So its result lies a microsecond further behind the watermark."""
    assert hr.session("1 hour", grace="1 minute").hold == MINUTE + 1


@pytest.mark.parametrize("window", PRINTED.values(), ids=PRINTED)
def test_only_a_session_needs_its_state_to_tell_late_rows(window):
    assert window.late_before_exchange != str(window).startswith("session")


REFUSED = {
    "no length": (lambda: hr.tumbling("0 seconds", grace="0 s"), "above zero"),
    "a hop longer than the window": (lambda: hr.hopping("1 minute", "2 minutes", grace="0 s"), "cannot start every 2"),
    "months that hop too far": (lambda: hr.hopping("1 month", "1 year", grace="0 s"), "Rows between two windows"),
    "a hop below zero": (lambda: hr.hopping("1 hour", "-1 minute", grace="0 s"), "above zero"),
    "grace below zero": (lambda: hr.tumbling("1 hour", grace="-1 s"), "grace"),
    "no gap": (lambda: hr.session("0 seconds", grace="0 s"), "gap"),
    "no size": (lambda: hr.sliding("0 seconds", grace="0 s"), "size"),
    "a step that ends after the window": (lambda: hr.cumulating("1 hour", "25 minutes", grace="0 s"), "25 minutes"),
    "months and days": (lambda: hr.hopping("1 month", "1 day", grace="0 s"), "Months have no fixed number of days"),
    "90 minutes of a calendar": (lambda: hr.tumbling("90 minutes", grace="0 s", timezone="UTC"), "period"),
}


@pytest.mark.parametrize(("make", "part"), REFUSED.values(), ids=REFUSED)
def test_lengths_that_make_no_window_are_refused(make, part):
    with pytest.raises(InvalidWindow) as error:
        make()
    assert part in str(error.value)
