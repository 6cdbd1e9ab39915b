"""The laws are played on states of a few rows, which would be given whole: here every row is looked up by its hash."""

import sys
from pathlib import Path

import pytest

from batch_spark import quick_session
from headrace.kernels.state import keyed

sys.path.append(str(Path(__file__).parents[2]))  # the scripts that prove things, importable


@pytest.fixture(scope="session", autouse=True)
def by_hash():
    """Whatever is asked of a table in state, however much of it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keyed, "FEWER", 0)
        yield


@pytest.fixture(scope="session")
def spark(spark):
    """Of few rows: a session beside the shared one."""
    return quick_session(spark)
