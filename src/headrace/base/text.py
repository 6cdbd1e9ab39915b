"""Text for people: numbers with the thing that they count."""

from __future__ import annotations


def counted(number: int, what: str) -> str:
    """Return `1 row`, `2,000 rows`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"
