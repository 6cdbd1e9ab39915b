"""Redis for tests: a fixture for every folder of tests. It skips, with the reason, where there can be none."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from brokers import run_folder

sys.path.append(str(Path(__file__).parents[1]))

SERVERS = {"redis_of_the_run"}
"""The fixtures of a whole run: which tests need a server shows by them."""


@pytest.fixture(scope="session")
def redis_of_the_run(tmp_path_factory):
    """A Redis that all tests of the run share; a test may kill it, and starts it again."""
    from scripts.broker.servers import shared
    from scripts.servers.packages import Unavailable
    from scripts.servers.redis import Redis

    server = Redis(shared(run_folder(tmp_path_factory), "redis"))
    try:
        server.start()
    except Unavailable as reason:
        pytest.skip(f"no Redis: {reason}")
    yield server
    server.servers.leave()
