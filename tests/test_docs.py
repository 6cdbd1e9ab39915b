"""What docs/functions.md shows is run."""

from __future__ import annotations

import re
from pathlib import Path

from headrace.testing import Driver

PAGE = (Path(__file__).parent.parent / "docs" / "functions.md").read_text(encoding="utf-8")
PROGRAM = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0]


def test_the_example_of_functions_runs():
    names = {}
    exec(compile(PROGRAM, "functions.md", "exec"), names)  # noqa: S102 -- our own text
    with Driver(names["app"]) as driver:
        for part in ((1.0, 4.0), (16.0, None)):
            driver.send("visits", *({"url": "https://example.org/a", "seconds": s, "at": 1} for s in part))
            driver.send("visits", {"url": "no address", "seconds": 1.0, "at": 2})
            driver.run()
        assert driver.view("sites") == [{"site": "example.org", "visits": 4, "typical": 4.0}]
