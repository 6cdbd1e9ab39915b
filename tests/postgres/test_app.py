"""An app follows a table: `source=postgres.table(…)`, with a view over it, crashes and restarts included."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from capturing import until

from headrace.base.errors import InvalidPlan, NotRunning
from headrace.connect import postgres

PAGE = Path(__file__).parents[2] / "docs" / "postgres.md"


def test_an_address_shows_no_password():
    source = postgres.table("postgresql://ada:lovelace@db/shop?sslmode=require", "customers")
    assert "lovelace" not in repr(source)
    assert "lovelace" not in str(source.address)
    assert source.identity == "postgresql://db/shop#headrace/public.customers"


@pytest.mark.parametrize("url", ["mysql://db/shop", "postgresql://db", 3, "postgresql://ada:lovelace@db"])
def test_what_is_no_address_is_refused_without_its_password(url):
    with pytest.raises(InvalidPlan) as refused:
        postgres.table(url, "t")
    assert "lovelace" not in str(refused.value)


def test_the_program_of_the_page_runs(database, tmp_path, monkeypatch):
    """The program in docs/postgres.md, on a real database."""
    program = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)[1]
    database.execute("CREATE TABLE customers (id int PRIMARY KEY, city text)")
    database.execute("CREATE TABLE orders (id int PRIMARY KEY, customer int, price int)")
    database.execute("INSERT INTO customers VALUES (1, 'Rome'), (2, 'Oslo')")
    database.execute("INSERT INTO orders VALUES (1, 1, 5), (2, 2, 7), (3, 1, 1)")
    monkeypatch.setenv("SHOP", database.url)
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(compile(program, str(PAGE), "exec"), names)  # noqa: S102 - our own text
    with names["app"].start(carrier="in-process") as running:
        until(lambda: shown(names["app"]) == {"Rome": 6, "Oslo": 7})
        database.execute("UPDATE orders SET price = 2 WHERE id = 1", "DELETE FROM orders WHERE id = 2")
        until(lambda: shown(names["app"]) == {"Rome": 3})
        feed = running.status()["feeds"]["orders"]
    assert feed["phase"] == "streaming"
    names["postgres"].drop(names["postgres"].table(database.url, "orders"))
    assert database.query("SELECT count(*) FROM pg_replication_slots WHERE database = current_database()") == [(0,)]


def shown(app):
    try:
        return {row["city"]: row["sold"] for row in app.view("cities").to_pylist()}
    except NotRunning:
        return None
