"""Real input as Arrow tables, in the order in which it arrived, and as Spark's temporary views for the batch."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pandas as pd
import pyarrow as pa
import pytest

from headrace.testing import Driver

TIME = pa.timestamp("us", tz="UTC")


def _csv(path):
    return pd.read_csv(path, keep_default_na=False, dtype=str)


def _times(column):
    return pa.array(pd.to_datetime(column, utc=True, format="ISO8601"), TIME)


def _arrow(frame, **kinds):
    return pa.table({name: pa.array(frame[name].astype(kind)) for name, kind in kinds.items()})


@pytest.fixture(scope="session")
def commits(data):
    """All commits; `at` is when the author wrote them, their order that in which they entered the history."""
    frame = _csv(data / "git_history" / "commits.csv.gz")
    made = _arrow(frame, seq="int64", author="str", n_changes="int64")
    return made.append_column("at", pa.array(frame["author_time"].astype("int64") * 1_000_000).cast(TIME))


@pytest.fixture(scope="session")
def changes(data, commits):
    """All changes of files, with the author and the time of their commits."""
    frame = _csv(data / "git_history" / "file_changes.csv.gz")
    frame["seq"] = frame["seq"].astype("int64")
    frame["folder"] = frame["path"].str.split("/").str[0].where(frame["path"].str.contains("/"), "(root)")
    of = commits.take(pa.array(frame["seq"] - 1))  # commits are numbered from 1
    assert of.column("seq").to_pylist() == list(frame["seq"])
    frame["nr"] = range(len(frame))
    made = _arrow(frame, nr="int64", seq="int64", op="str", path="str", folder="str", new_blob="str")
    return made.append_column("author", of.column("author")).append_column("at", of.column("at"))


@pytest.fixture(scope="session")
def final_state(data):
    """What `git ls-tree` says after the last commit: path → blob."""
    frame = _csv(data / "git_history" / "final_state.csv.gz")
    return dict(zip(frame["path"], frame["blob"], strict=True))


@pytest.fixture(scope="session")
def cars(data):
    """Pickups and dropoffs of drivers."""
    kept = json.loads((data / "cars" / "arroyo_cars_dataset.json").read_text())
    start = int(datetime(2023, 9, 18, tzinfo=UTC).timestamp())
    rows = [
        {"nr": nr, "driver": driver, "event": event, "place": kept["locations"][place], "at": (start + at) * 1_000_000}
        for nr, (at, driver, event, place) in enumerate(kept["rows"])
    ]
    kinds = {"nr": pa.int64(), "driver": pa.int32(), "event": pa.string(), "place": pa.string(), "at": TIME}
    return pa.Table.from_pylist(rows, schema=pa.schema(list(kinds.items())))


@pytest.fixture(scope="session")
def quakes(data):
    """Earthquakes in the order in which they were last revised."""
    frame = _csv(data / "quakes" / "all_month.csv.gz").sort_values(["updated", "id"], kind="stable")
    frame["nr"] = range(len(frame))
    made = _arrow(frame, nr="int64", id="str", net="str")
    made = made.append_column("mag", pa.array(pd.to_numeric(frame["mag"], errors="coerce"), from_pandas=True))
    return made.append_column("at", _times(frame["time"]))


@pytest.fixture(params=["in process", "spark"])
def drive(request):
    """Return a driver of an app; on the Spark carrier too."""
    if request.param == "spark":
        request.getfixturevalue("spark")
    opened = []

    def make(app, **options):
        driver = Driver(app, carrier=request.param, shards=2, **options)
        opened.append(driver)
        return driver

    yield make
    for driver in opened:
        driver.close()
