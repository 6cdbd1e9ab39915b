"""The time of the epoch in expressions: `current_timestamp()`, wherever in a value it is."""

from __future__ import annotations

from dataclasses import fields, is_dataclass

from headrace.expressions.scalars import EPOCH_TIME


def reads_clock(value: object) -> bool:
    """Return whether SQL in a frozen value, or in what it is made of, has the time of the epoch."""
    if isinstance(value, str):
        return EPOCH_TIME in value
    if isinstance(value, tuple | list | frozenset):
        return any(map(reads_clock, value))
    if is_dataclass(value) and not isinstance(value, type):
        return any(reads_clock(getattr(value, field.name)) for field in fields(value))
    return False
