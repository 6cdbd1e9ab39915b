"""How many examples random tests draw: few in `make test`, many in `make prove`."""

from __future__ import annotations

from hypothesis import settings


def examples(fast: int, *, times: int = 20) -> int:
    """Return how many examples to draw: `fast`, or so many times as many with `--prove`."""
    return fast * times if settings.get_current_profile_name() == "prove" else fast
