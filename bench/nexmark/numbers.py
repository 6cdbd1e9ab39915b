"""Numbers as people write them: `500k`, `5M`."""

from __future__ import annotations


def number(text: str) -> int:
    """Return the whole number that a text such as `500k` means."""
    scale = {"k": 1_000, "M": 1_000_000}.get(text[-1:], 1)
    return round(float(text.rstrip("kM")) * scale)
