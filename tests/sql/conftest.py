"""An app to ask."""

from __future__ import annotations

import pytest
from sql_sources import declare

import headrace as hr


@pytest.fixture
def app(tmp_path):
    """An app with the sources of `declare`."""
    shop = hr.App("shop", storage=tmp_path / "storage")
    declare(shop)
    return shop
