"""Pub/Sub for tests: a fixture for every folder of tests. It skips, with the reason, where there can be none."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from brokers import run_folder

sys.path.append(str(Path(__file__).parents[1]))

SERVERS = {"pubsub_of_the_run"}
"""The fixtures of a whole run: which tests need a server shows by them."""


@pytest.fixture(scope="session")
def pubsub_of_the_run(tmp_path_factory):
    """A server that plays Pub/Sub, which all tests of the run share; a test may kill it, and starts it again."""
    from scripts.broker.servers import shared
    from scripts.servers.packages import Unavailable
    from scripts.servers.pubsub import PubSub

    server = PubSub(shared(run_folder(tmp_path_factory), "pubsub"))
    try:
        server.start()
    except Unavailable as reason:
        server.servers.leave()
        pytest.skip(f"no Pub/Sub: {reason}")
    yield server
    server.servers.leave()
