"""An app to ask."""

from __future__ import annotations

import pytest
from sql_sources import declare

import headrace as hr


@pytest.fixture
def app(tmp_path):
    """An app with the sources of `declare`."""
    made = hr.App("shop", storage=tmp_path / "storage")
    declare(made)
    return made
