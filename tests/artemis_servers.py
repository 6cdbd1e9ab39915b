"""ActiveMQ Artemis for tests: a fixture for every folder of tests. It skips, with the reason, where there is none."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from brokers import run_folder

sys.path.append(str(Path(__file__).parents[1]))

SERVERS = {"artemis_of_the_run"}
"""The fixtures of a whole run: which tests need a server shows by them."""


@pytest.fixture(scope="session")
def artemis_of_the_run(tmp_path_factory):
    from scripts.broker.jars import Unavailable
    from scripts.broker.servers import shared
    from scripts.servers.artemis import Artemis

    server = Artemis(shared(run_folder(tmp_path_factory), "artemis"))
    try:
        server.start()
    except Unavailable as reason:
        server.servers.leave()
        pytest.skip(f"no Artemis: {reason}")
    yield server
    server.servers.leave()


@pytest.fixture
def artemis(artemis_of_the_run):
    """A broker that all tests of the run share, one after the other: a test may stop, kill and restart it."""
    artemis_of_the_run.start()
    return artemis_of_the_run
