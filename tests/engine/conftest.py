"""Scenarios run on both carriers; and the scripts that prove things, importable."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from headrace.testing import Driver

sys.path.append(str(Path(__file__).parents[2]))


@pytest.fixture(params=["in process", pytest.param("spark", marks=pytest.mark.spark)])
def carrier(request):
    """The name of a carrier; on Spark the tests share one session."""
    if request.param == "spark":
        request.getfixturevalue("spark")
    return request.param


@pytest.fixture
def drive(carrier):
    """Return a driver of an app on the carrier of the test; closed at its end."""
    opened = []

    def make(app, **options):
        driver = Driver(app, carrier=carrier, **options)
        opened.append(driver)
        return driver

    yield make
    for driver in opened:
        driver.close()
