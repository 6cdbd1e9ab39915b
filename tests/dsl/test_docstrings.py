"""The examples in the docstrings of what users write are true."""

from __future__ import annotations

import doctest

import pytest

import headrace as hr
from headrace.dsl import app, grouped, handle, stream_table

EXAMPLES = {
    example.name: example
    for module in (app, grouped, handle, stream_table)
    for example in doctest.DocTestFinder(exclude_empty=True).find(module, globs={})
    if example.examples
}
WITHOUT = {"App.plan", "App.explain", "Handle.schema", "Handle.columns", "Handle.name", "Table.key"}


def names():
    """Give what examples may use without saying so: an app with two streams and a table."""
    shop = hr.App("shop")
    schema = "id string, user string, price double, quantity int, tags array<string>, at timestamp"
    return {
        "hr": hr,
        "app": shop,
        "orders": shop.stream("orders", schema, event_time="at"),
        "clicks": shop.stream("clicks", "user string, url string, at timestamp", event_time="at"),
        "users": shop.table("users", "name string, city string", key="name"),
    }


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_examples_of_a_docstring_are_true(name):
    example = EXAMPLES[name]
    example.globs = names()
    report: list[str] = []
    result = doctest.DocTestRunner(verbose=False).run(example, out=report.append)
    assert not result.failed, "".join(report)


@pytest.mark.parametrize("kind", [app.App, handle.Handle, stream_table.Stream, stream_table.Table, grouped.Grouped])
def test_every_verb_has_an_example(kind):
    verbs = {f"{kind.__name__}.{name}" for name in vars(kind) if not name.startswith("_")} - WITHOUT
    shown = {name.removeprefix(f"{kind.__module__}.") for name in EXAMPLES}
    assert not verbs - shown
