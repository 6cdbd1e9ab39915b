"""The examples of docs/CONNECTORS.md are connectors: they pass the contract kits, and apps run on them."""

from __future__ import annotations

import json
import pickle
import re
import sys
import types
from pathlib import Path

import pytest

import headrace as hr
from headrace.base.errors import PlanChanged
from headrace.base.outside import SourceChanged
from headrace.base.schema import as_schema
from headrace.testing import POINTS, Driver, check_feed, check_sink, check_source
from headrace.testing.connectors import COLUMNS

PAGE = Path(__file__).parents[2] / "docs" / "CONNECTORS.md"
USING, SOURCE, SINK, FEED, KITS = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


@pytest.fixture(scope="module")
def shown():
    """The page's examples as one module, so that they can travel to tasks."""
    module = types.ModuleType("shown_connectors")
    sys.modules[module.__name__] = module
    for text in (SOURCE, SINK, FEED):
        exec(compile(text, "CONNECTORS.md", "exec"), vars(module))  # noqa: S102 -- our own text
    yield module
    del sys.modules[module.__name__]


class Folder:
    """CSV files to read."""

    columns = ("id", "text")

    def __init__(self, shown, path):
        self.path, self.count = path, 0
        self.source = shown.CsvFolder(str(path), COLUMNS)
        for name in "ab":
            (path / f"{name}.csv").write_text("id,text\n")

    def add(self, count):
        for at in range(self.count, self.count + count):
            with (self.path / f"{'ab'[at % 2]}.csv").open("a") as file:
                file.write(f"{at},t{at}\n")
        self.count += count


def test_the_source_passes_its_kit(shown, tmp_path):
    check_source(lambda: Folder(shown, tmp_path))


class Written:
    """A file of JSON lines."""

    def __init__(self, shown, path):
        self.path, self.sink = path, shown.JsonLines(str(path))

    def read(self):
        return [row for line in self.path.read_text().splitlines() if "epoch" not in (row := json.loads(line))]


def test_the_sink_passes_its_kit(shown, tmp_path):
    check_sink(lambda: Written(shown, tmp_path / "out.jsonl"))


class Filled:
    """A folder that others fill."""

    exactly_once = True

    def __init__(self, shown, path):
        self.path, self.feed, self.files = path, shown.Inbox(str(path)), 0

    def add(self, ids):
        self.files += 1
        aside = self.path / "aside"
        aside.write_text("".join(json.dumps({"id": i, "text": f"t{i}"}) + "\n" for i in ids))
        aside.rename(self.path / f"{self.files:06d}.jsonl")


def test_the_feed_passes_its_kit(shown, tmp_path):
    check_feed(lambda: Filled(shown, tmp_path))


def test_what_the_page_imports_is_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(USING, names)  # noqa: S102 -- our own text
    exec(KITS, names)  # noqa: S102 -- the same
    assert "feed of" not in str(names["app"].explain())


SHOP = "id int, text string, at timestamp"


def folder_of(path, *rows):
    path.mkdir(exist_ok=True)
    file = path / "a.csv"
    if not file.exists():
        file.write_text("id,text,at\n")
    with file.open("a") as lines:
        lines.writelines(f"{i},t{i},2026-01-01 00:00:{i:02d}+00:00\n" for i in rows)


def shop(shown, tmp_path, name="shop", path="in"):
    app = hr.App(name, storage=tmp_path / "app", shards=2)
    source = shown.CsvFolder(str(tmp_path / path), as_schema(SHOP))
    rows = app.stream("lines", SHOP, event_time="at", source=source)
    rows.with_columns(double="id * 2").drop("at").to(shown.JsonLines(str(tmp_path / "out.jsonl")))
    rows.group_by().agg(n="count(*)", total="sum(id)").named("sums").to_view("sums")
    return app


def seen(tmp_path):
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    return [line for line in lines if "epoch" not in line]


def test_an_app_reads_a_source_and_writes_to_a_sink(shown, tmp_path):
    folder_of(tmp_path / "in", 1, 2)
    with Driver(shop(shown, tmp_path), storage=tmp_path / "app") as driver:
        driver.run()
        folder_of(tmp_path / "in", 3)
        driver.advance(1)
        driver.run()
        assert driver.view("sums") == [{"n": 3, "total": 6}]
        assert seen(tmp_path) == [{"id": i, "text": f"t{i}", "double": 2 * i} for i in (1, 2, 3)]


NOT_MET = ("between_topics", "before_mark", "during_snapshot")
"""There is no topic to append to, and the state is too small to be written whole."""


@pytest.mark.parametrize("point", [point for point in POINTS if point not in NOT_MET])
def test_a_crash_at_any_point_leaves_each_row_once(shown, tmp_path, point):
    """Connectors too: before and after every call outside."""
    folder_of(tmp_path / "in", 1, 2)
    with Driver(shop(shown, tmp_path), storage=tmp_path / "app") as driver:
        driver.crash(at=point)
        driver.restart()
        folder_of(tmp_path / "in", 3)
        driver.advance(1)
        driver.run()
        assert driver.view("sums") == [{"n": 3, "total": 6}]
        assert sorted(row["id"] for row in seen(tmp_path)) == [1, 2, 3]


def test_an_app_runs_on_connectors_on_spark(shown, spark, tmp_path):
    spark.sparkContext.addPyFile(_as_file(tmp_path))
    folder_of(tmp_path / "in", 1, 2)
    app = shop(shown, tmp_path)
    with app.start(spark) as running:
        running.await_caught_up(timeout=300)
        folder_of(tmp_path / "in", 3)
        while app.view("sums").to_pylist() != [{"n": 3, "total": 6}]:
            running.await_caught_up(timeout=300)
        status = running.status()
    assert sorted(row["id"] for row in seen(tmp_path)) == [1, 2, 3]
    assert status["sinks"]["call:JsonLines"]["guarantee"] == "exactly_once"
    assert status["lag"] == 0


def _as_file(tmp_path):
    file = tmp_path / "shown_connectors.py"
    file.write_text(f"{SOURCE}\n{SINK}\n{FEED}")
    return str(file)


def test_another_source_under_the_same_step_is_refused(shown, tmp_path):
    folder_of(tmp_path / "in", 1)
    with Driver(shop(shown, tmp_path), storage=tmp_path / "app") as driver:
        driver.run()
    folder_of(tmp_path / "other", 1)
    with pytest.raises((SourceChanged, PlanChanged)) as error:
        Driver(shop(shown, tmp_path, path="other"), storage=tmp_path / "app")
    assert 'the source "lines"' in str(error.value)


def test_connectors_travel(shown):
    for made in (shown.CsvFolder("x", COLUMNS), shown.JsonLines("x"), shown.Inbox("x")):
        assert pickle.loads(pickle.dumps(made)) == made  # noqa: S301 -- what was just pickled
