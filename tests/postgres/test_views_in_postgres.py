"""Views served from PostgreSQL, on a real server."""

from __future__ import annotations

import pytest
from view_contract import *  # noqa: F403 -- tests of what every store keeps
from view_contract import COUNTS, delta, rows

from headrace.connect.postgres.address import PostgresAddress
from headrace.connect.postgres.serving.store import PostgresViews


def store(database, **options):
    return PostgresViews(PostgresAddress.parse(database.url), "shop/1", **options)


@pytest.fixture
def views(database):
    opened = store(database)
    yield opened
    opened.close()
