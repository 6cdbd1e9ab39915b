"""What docs/functions.md and docs/privacy.md show is run."""

from __future__ import annotations

import re
from pathlib import Path

import headrace as hr
from headrace.testing import Driver

DOCS = Path(__file__).parent.parent / "docs"


def programs(page):
    return re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)


PROGRAM = programs("functions.md")[0]


def test_the_example_of_functions_runs():
    names = {}
    exec(compile(PROGRAM, "functions.md", "exec"), names)  # noqa: S102 -- our own text
    with Driver(names["app"]) as driver:
        for part in ((1.0, 4.0), (16.0, None)):
            driver.send("visits", *({"url": "https://example.org/a", "seconds": s, "at": 1} for s in part))
            driver.send("visits", {"url": "no address", "seconds": 1.0, "at": 2})
            driver.run()
        assert driver.view("sites") == [{"site": "example.org", "visits": 4, "typical": 4.0}]


def test_the_examples_of_privacy_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    topic, verbs = programs("privacy.md")
    names = {"hr": hr}
    exec(topic, names)  # noqa: S102 -- our own text
    with names["log"] as log:
        assert log.topic("orders").read(0, 0, 10)["email"].to_pylist() == [None]
    names["app"] = hr.App("shop", storage=".headrace")
    exec(verbs, names)  # noqa: S102 -- the same
    with Driver(names["app"], storage=".headrace") as driver:
        driver.send("orders", {"id": 2, "user_id": 8, "email": "bob@example.org", "total": 1.5})
        driver.run()
        assert driver.view("customers") == [
            {"user_id": 7, "spent": 12.5, "email": None},
            {"user_id": 8, "spent": 1.5, "email": "bob@example.org"},
        ]
