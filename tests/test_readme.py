"""What the README shows is run."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path

import headrace as hr
from headrace.testing import Driver

HOUSE = Path(__file__).parent.parent
README = (HOUSE / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", README, re.DOTALL)


def blocks(kind):
    return [text for found, text in BLOCKS if found == kind]


def test_the_program_is_the_example():
    program = (HOUSE / "examples" / "clicks.py").read_text(encoding="utf-8")
    assert program.split('"""\n\n', 1)[1] == blocks("python")[0]


def test_the_program_says_what_the_readme_shows():
    app = runpy.run_path(str(HOUSE / "examples" / "clicks.py"))["app"]
    rows = [json.loads(line) for line in (HOUSE / "examples" / "clicks.jsonl").read_text().splitlines()]
    with Driver(app) as driver:
        driver.send("clicks", *rows)
        driver.run()
        for row in driver.view("clicks_by_user"):
            window = f"{row['window_start']:%F %T}  {row['window_end']:%F %T}"
            assert f"{row['user']:<4}  {window}  {row['clicks']:>6}  {row['last']}" in README
        for row in driver.read("minutes"):
            times = {name: f"{row[name]:%FT%TZ}" for name in ("window_start", "window_end")}
            assert json.dumps({**row, **times}) in README


def test_the_test_of_the_readme_passes():
    names = runpy.run_path(str(HOUSE / "examples" / "clicks.py"))
    exec(compile(blocks("python")[2], "README.md", "exec"), names)  # noqa: S102 -- our own text


def test_the_views_of_verbs_and_of_sql_hold_the_same_rows():
    names = {"hr": hr}
    exec(compile(blocks("python")[1], "README.md", "exec"), names)  # noqa: S102 -- our own text
    with Driver(names["shop"]) as driver:
        driver.send("users", {"id": 1, "city": "Oslo"}, {"id": 2, "city": "Rome"})
        driver.send("orders", {"id": 1, "buyer": 1, "price": 5}, {"id": 2, "buyer": 2, "price": 7})
        driver.run()
        driver.send("users", {"id": 1, "city": "Rome"})
        driver.delete("orders", id=2)
        driver.run()
        assert driver.view("by_verbs") == driver.view("by_sql") == [{"city": "Rome", "sold": 5}]
