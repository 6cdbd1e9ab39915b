"""Compiled code of ours says why nothing happens while it is compiled."""

import logging

import pytest

from headrace.connect import compiled


def function(module):
    """A new function that seems to be of a module."""

    def added(one, other):
        return one + other

    added.__module__ = module
    return added


@pytest.fixture
def numba(monkeypatch):
    numba = pytest.importorskip("numba")
    monkeypatch.setattr(compiled, "PATIENCE", 0.0)
    compiled._watched.cache_clear()
    compiled._watched()
    return numba


def test_compiling_for_long_is_told_once(numba, caplog):
    with caplog.at_level(logging.WARNING):
        assert numba.njit(function("elsewhere"))(1, 2) == 3
        assert not caplog.messages, "what a user compiles is the user's"
        assert numba.njit(function("headrace.some"))(1, 2) == 3
        told = list(caplog.messages)
        assert set(told) == {"compiling the readers of records for this machine, once: this takes some 20 seconds"}
        assert numba.njit(function("headrace.some"))(1.5, 2.5) == 4.0
        assert caplog.messages == told


def test_compiling_for_a_moment_is_not_told(numba, monkeypatch, caplog):
    monkeypatch.setattr(compiled, "PATIENCE", 600.0)
    with caplog.at_level(logging.WARNING):
        assert numba.njit(function("headrace.some"))(1, 2) == 3
        assert not caplog.messages
