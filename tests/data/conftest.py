"""Real input as Arrow tables, in the order in which it arrived, and as Spark's temporary views for the batch."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal

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


@pytest.fixture(scope="session")
def reports(data):
    """The same earthquakes as records of a table: reported when they happen, and again, measured, when revised."""
    frame = _csv(data / "quakes" / "all_month.csv.gz")
    first = frame.assign(mag="", came=frame["time"], revised=False)
    second = frame.assign(came=frame["updated"], revised=True)
    both = pd.concat([first, second]).sort_values(["came", "id", "revised"], kind="stable")
    made = _arrow(both, id="str", net="str", revised="bool")
    made = made.append_column("mag", pa.array(pd.to_numeric(both["mag"], errors="coerce"), from_pandas=True))
    return made.append_column("at", _times(both["time"]))


@pytest.fixture(scope="session")
def bars(data):
    """Minute bars of stocks in the order in which they were published: up to 28 minutes of disorder."""
    files = sorted((data / "minute_bars").glob("batch_*.json"))
    rows = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    kinds = {
        "key": pa.string(),
        "symbol": pa.string(),
        "open": pa.float64(),
        "close": pa.float64(),
        "volume": pa.int64(),
    }
    made = pa.Table.from_pylist(rows, schema=pa.schema(list(kinds.items())))
    return made.append_column("at", _times([row["ts"] for row in rows]))


@pytest.fixture(scope="session")
def orders(data):
    """Changes of an orders table, from its database's log: the row after each, or the key of a row that is gone."""
    kept = json.loads((data / "orders_cdc" / "arroyo_orders_cdc_dataset.json").read_text())
    rows = [
        {**dict(zip(kept["columns"], after or before, strict=True)), "_deleted": after is None, "lsn": lsn}
        for _, before, after, lsn, _ in kept["changes"]
    ]
    for row in rows:
        row["price"] = Decimal(str(row["price"]))
    names = {"id": pa.int64(), "customer_name": pa.string(), "product_name": pa.string(), "quantity": pa.int32(),
             "price": pa.decimal128(10, 2), "order_date": TIME, "status": pa.string(), "lsn": pa.int64(),
             "_deleted": pa.bool_()}  # fmt: skip
    return pa.Table.from_pylist(rows, schema=pa.schema(list(names.items())))


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
