"""The thread that cleans topics goes on, whatever fails."""

from __future__ import annotations

import logging
import threading

import pytest

from headrace.engine.operation.cleaning import Cleaning


@pytest.mark.parametrize("error", [OSError("the disk is gone"), ValueError("of no kind of ours")])
def test_whatever_fails_of_a_topic_the_others_are_cleaned_and_it_is_said(caplog, error):
    cleaned = threading.Event()

    class Store:
        def clean(self, names):
            if names == ["broken"]:
                raise error
            cleaned.set()

    with caplog.at_level(logging.WARNING, logger="headrace.engine"):
        cleaning = Cleaning(Store(), ["broken", "fine"], every=0.001)
        try:
            assert cleaned.wait(10)
        finally:
            cleaning.stop()
    assert [record.getMessage() for record in caplog.records] == [
        f'the topic "broken" is not cleaned: {type(error).__name__}: {error}'
    ]
