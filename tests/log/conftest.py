"""A log in a temporary folder, on a manual clock; the proof scripts are importable."""

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
    with Log(tmp_path / "log", clock=clock, fsync=False) as log:
        yield log


@pytest.fixture
def again(tmp_path, clock):
    """Open the same log once more, as another process would."""
    opened = []

    def make(**options):
        log = Log(tmp_path / "log", **{"clock": clock, "fsync": False, **options})
        opened.append(log)
        return log

    yield make
    for log in opened:
        log.close()
