"""Bounded tables: values of the program, Parquet and CSV files; loaded first, and holding nothing back."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace.base.errors import InvalidPlan, PlanChanged
from headrace.connect.bounded import bounded
from headrace.connect.source import OffsetRange
from headrace.testing import Driver

CITIES = [{"id": n, "city": f"c{n}"} for n in range(1, 8)]
COLUMNS = "id int, city string"


def written(folder, kind):
    path = folder / f"cities.{kind}"
    if kind == "parquet":
        table = pa.table({"id": pa.array([n["id"] for n in CITIES], pa.int32()), "city": [n["city"] for n in CITIES]})
        pq.write_table(table, path)
    else:
        path.write_text("city,id\n" + "".join(f"{n['city']},{n['id']}\n" for n in CITIES))
    return path


def looked_up(**more):
    app = hr.App("side", shards=2)
    cities = app.table("cities", key="id", **({"schema": COLUMNS} | more))
    visits = app.stream("visits", "id int, at timestamp", event_time="at")
    visits.join(cities, on="id", how="left").named("joined").to_view("joined")
    window = hr.tumbling("10 seconds", grace="0 seconds")
    named = visits.join(cities, on="id").named("named")
    named.group_by("city").window(window, emit="final").agg(n="count(*)").named("n").to_view("n")
    visits.latest("id").join(cities, on="id").named("both").to_view("both")
    return app


@pytest.mark.parametrize("kind", ["values", "arrow", "parquet", "csv"])
def test_every_row_of_a_stream_finds_the_rows_of_a_bounded_table(kind, tmp_path):
    """Also those that were there before, however small the epochs; and windows close without it."""
    given = {
        "values": lambda: {"values": CITIES},
        "arrow": lambda: {"values": pa.Table.from_pylist(CITIES, pa.schema({"id": pa.int32(), "city": pa.string()}))},
        "parquet": lambda: {"path": written(tmp_path, "parquet"), "schema": None},
        "csv": lambda: {"path": str(written(tmp_path, "csv"))},
    }[kind]()
    with Driver(looked_up(**given), shards=2) as driver:
        driver.send("visits", *({"id": n, "at": n * 1000} for n in range(10)))
        for _ in range(6):
            driver.step(limit=3)
        driver.send("visits", {"id": 3, "at": 21_000})
        driver.run()
        assert {(row["id"], row["city"]) for row in driver.view("joined")} == {
            (n, f"c{n}" if 1 <= n <= 7 else None) for n in range(10)
        }
        assert sum(row["n"] for row in driver.view("n")) == 7
        assert len(driver.view("both")) == 7


def test_another_content_is_another_source(tmp_path):
    with Driver(looked_up(values=CITIES), storage=tmp_path) as driver:
        driver.run()
    with Driver(looked_up(values=CITIES[::1]), storage=tmp_path) as driver:
        driver.run()
    with pytest.raises(PlanChanged, match="cities"):
        Driver(looked_up(values=CITIES[1:]), storage=tmp_path).__enter__()


def test_a_row_without_a_key_is_a_dead_letter():
    app = hr.App("dead")
    app.table("cities", COLUMNS, key="id", values=[{"id": None, "city": "x"}, {"id": 1, "city": "y"}]).to_view("now")
    with Driver(app) as driver:
        driver.run()
        assert driver.view("now") == [{"id": 1, "city": "y"}]
        assert driver.status()["dead"]["cities"]["rows"] == 1


@pytest.mark.parametrize("kind", ["values", "parquet", "csv"])
def test_a_range_is_the_same_rows_in_any_process(kind, tmp_path):
    source = bounded(CITIES, None, COLUMNS) if kind == "values" else bounded(None, written(tmp_path, kind), COLUMNS)
    other = pickle.loads(pickle.dumps(source))  # noqa: S301 -- what was just pickled
    assert other.identity == source.identity
    part = OffsetRange(source="s", partition="0", start=2, end=5)
    columns = ["id", "_offset", "_deleted", "city"]
    one, two = (
        pa.Table.from_batches(list(each.open(clock=None).read(part, columns))).to_pylist() for each in (source, other)
    )
    assert one == two == [{**CITIES[n], "_offset": n, "_deleted": False} for n in (2, 3, 4)]
    reader = source.open(clock=None)
    assert reader.bounds().end == {"0": 7}
    assert (reader.append_time(part), reader.append_time(OffsetRange(source="s", partition="0", start=7, end=7))) == (
        0,
        None,
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"values": CITIES, "path": "x.csv"}, "either values or a path"),
        ({"values": CITIES, "schema": None}, "no types"),
        ({"path": "x.json"}, "Parquet or CSV"),
        ({"path": "missing.csv"}, "no such file"),
        ({"path": __file__.replace(".py", ".csv"), "schema": None}, "no such file"),
    ],
)
def test_what_makes_no_table_is_refused(options, message):
    with pytest.raises(InvalidPlan, match=message):
        hr.App("a").table("t", **({"schema": COLUMNS, "key": "id"} | options))


def test_a_file_that_does_not_fit_says_so(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("id,city\none,two\n")
    app = hr.App("a")
    app.table("t", COLUMNS, key="id", path=path).to_view("v")
    with pytest.raises(hr.HeadraceError, match="cannot be read as declared"), Driver(app) as driver:
        driver.run()


@pytest.mark.parametrize("at", ["2026-01-31 10:00:00", "2026-01-31T10:00", "2026-01-31 12:00:00+02:00"])
def test_times_of_csv_are_in_utc_and_only_an_empty_field_is_null(tmp_path, at):
    path = tmp_path / "x.csv"
    path.write_text(f"id,code,at,plain,share\nNA,null,{at},2026-01-31 10:00:00,nan\nSE,,,,\n")
    app = hr.App("csv")
    schema = "id string, code string, at timestamp, plain timestamp_ntz, share double"
    app.table("t", schema, key="id", path=str(path)).to_view("v")
    with Driver(app) as driver:
        driver.run()
        first, second = driver.view("v")
    assert (first["id"], first["code"], str(first["share"])) == ("NA", "null", "nan")
    assert first["at"].isoformat() == "2026-01-31T10:00:00+00:00"
    assert first["plain"].isoformat() == "2026-01-31T10:00:00"
    assert second == {"id": "SE", "code": None, "at": None, "plain": None, "share": None}


def test_times_of_csv_with_and_without_a_zone_are_in_one_file(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("id,at,seen\n1,2026-01-31,2026-01-31T11:00+01\n2,2026-01-31 10:00Z,\n3,,2026-01-31 10:00\n")
    app = hr.App("csv")
    app.table("t", "id int, at timestamp, seen timestamp", key="id", path=str(path)).to_view("v")
    with Driver(app) as driver:
        driver.run()
        rows = driver.view("v")
    assert [row["at"] and row["at"].hour for row in rows] == [0, 10, None]
    assert [row["seen"] and row["seen"].hour for row in rows] == [10, None, 10]


def test_a_time_of_csv_that_is_none_says_where(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("id,at\n1,31.01.2026\n")
    app = hr.App("csv")
    app.table("t", "id int, at timestamp", key="id", path=str(path)).to_view("v")
    with pytest.raises(InvalidPlan, match=r'in column "at".*31\.01\.2026'), Driver(app) as driver:
        driver.run()


def test_a_column_that_a_csv_has_twice_is_refused(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("id,city,city\n1,a,b\n")
    app = hr.App("csv")
    app.table("t", "id int, city string", key="id", path=str(path)).to_view("v")
    with pytest.raises(InvalidPlan, match='its header has the column "city" more than once'), Driver(app) as driver:
        driver.run()


def test_a_value_of_csv_may_have_line_ends_wherever_a_block_ends(tmp_path):
    path = tmp_path / "x.csv"
    address = "\n".join("abcdefg" for _ in range(100))
    path.write_text("id,address\n" + "".join(f'{number},"{address}"\n' for number in range(3_000)))
    app = hr.App("csv")
    app.table("t", "id int, address string", key="id", path=str(path)).where("id >= 2998").to_view("v")
    with Driver(app) as driver:
        driver.run()
        assert driver.view("v") == [{"id": number, "address": address} for number in (2998, 2999)]
