"""Operators that each have a test of their own, and one of them in a shard."""

from __future__ import annotations

SHOWN: set[type] = set()
HERE = {"step": "s", "inputs": (0,), "output": 1}


def shows(kind):
    """Mark a test as one of an operator."""

    def mark(test):
        SHOWN.add(kind)
        return test

    return mark
