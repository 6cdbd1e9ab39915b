"""The shard in which operators run alone."""

from __future__ import annotations

import pytest
from one_shard import OneShard


@pytest.fixture
def shard(tmp_path):
    """Return a shard that runs an operator."""
    opened = []

    def make(op):
        opened.append(OneShard(op, tmp_path))
        return opened[-1]

    yield make
    for shard_ in opened:
        shard_.duck.close()
