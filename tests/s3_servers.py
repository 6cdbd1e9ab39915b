"""S3 for tests, as Moto plays it in a thread of this process; it keeps nothing."""

from __future__ import annotations

import os

import pytest

SERVERS = {"s3_of_the_run"}
"""The fixtures of a whole run: which tests need a server shows by them."""


@pytest.fixture(scope="session")
def s3_of_the_run():
    """The port of a server that plays S3; credentials of tests are in the environment."""
    server = pytest.importorskip("moto.server").ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    named = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test-s3cret", "AWS_DEFAULT_REGION": "us-east-1"}
    before = {name: os.environ.get(name) for name in named}
    os.environ |= named
    yield server.get_host_and_port()[1]
    server.stop()
    for name, value in before.items():
        if value is None:
            del os.environ[name]
        else:
            os.environ[name] = value
