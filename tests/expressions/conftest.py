"""One Spark session for the expressions' tests: ANSI mode, UTC, two threads."""

import pytest


@pytest.fixture(scope="session")
def spark():
    from rivals import session

    started = session()
    yield started
    started.stop()


@pytest.fixture(scope="session")
def rivals(spark):
    from rivals import Duck, Spark

    return Spark(spark), Duck()
