"""A log in a temporary folder, on a clock that stands still; and the scripts that prove things, importable."""

import sys
from pathlib import Path

import pytest

from headrace.base.time import ManualClock
from headrace.log import Log

sys.path.append(str(Path(__file__).parents[2]))


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def log(tmp_path, clock):
    with Log(tmp_path / "log", clock=clock, fsync=False) as made:
        yield made


@pytest.fixture
def again(tmp_path, clock):
    """Open the same log once more, as another process would."""
    opened = []

    def make(**options):
        made = Log(tmp_path / "log", **{"clock": clock, "fsync": False, **options})
        opened.append(made)
        return made

    yield make
    for made in opened:
        made.close()
