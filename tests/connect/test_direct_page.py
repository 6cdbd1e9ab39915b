"""What docs/direct.md and docs/buffers.md show is run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import headrace as hr

DOCS = Path(__file__).parents[2] / "docs"


def programs(page):
    return re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("program", programs("direct.md"), ids=lambda text: text.split("App(")[-1][1:12])
def test_the_programs_of_the_page_are_apps(program, tmp_path, monkeypatch):
    """Each connector's own tests run it; here the words of the page are those that exist."""
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(compile(program, "direct.md", "exec"), names)  # noqa: S102 -- our own text
    assert names["app"].explain()


def test_the_program_of_full_buffers_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (program,) = programs("buffers.md")
    names = {"hr": hr}
    exec(compile(program, "buffers.md", "exec"), names)  # noqa: S102 -- our own text
    with names["log"] as log:
        stored = log.topic("readings").end_offsets()[0]
    assert capsys.readouterr().out == f"{100_000 - stored} readings were dropped\n"
