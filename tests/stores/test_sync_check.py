"""`headrace sync check` finds what somebody else has changed in a store, and repairs it."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from headrace.cli.main import root
from headrace.testing import Driver

PROGRAM = """
import headrace as hr
from headrace.connect import postgres

app = hr.App("shop", storage="shop")
orders = app.table("orders", "id int, part int, price decimal(10,2), tags array<string>, more struct<a:int>", key="id")
orders.to(postgres.upsert("{url}", "orders"))
orders.group_by("part").agg(n="count(*)", sold="sum(price)").to(postgres.upsert("{url}", "parts"))
{more}
"""


def orders(ids, price=2):
    return [{"id": i, "part": i % 7, "price": price, "tags": ["a", None], "more": {"a": i}} for i in ids]


@pytest.fixture
def shop(database, tmp_path, monkeypatch):
    """Give a function that runs the program over some orders."""
    monkeypatch.chdir(tmp_path)

    def ran(*rows, more=""):
        (tmp_path / "app.py").write_text(PROGRAM.format(url=database.url, more=more))
        space: dict = {}
        exec((tmp_path / "app.py").read_text(), space)  # noqa: S102 -- the program of this test
        with Driver(space["app"], storage=tmp_path / "shop") as driver:
            if rows:
                driver.send("orders", *rows)
            driver.run()

    return ran


def check(*options):
    result = CliRunner().invoke(root, ["sync", "check", "app.py", "--json", *options])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, json.loads(result.output)


def differences(answer):
    return {
        each["sink"].rpartition(".")[2]: tuple(each["difference"][name] for name in ("missing", "other", "extra"))
        for each in answer["sinks"]
    }


def test_what_differs_is_found_and_repaired(database, shop):
    """Rows that somebody deleted, changed and added, null keys among them; a level store is left alone."""
    shop(*orders(range(5000)), {"id": 9999, "part": None})
    before = database.query("SELECT * FROM orders ORDER BY id"), database.query("SELECT * FROM parts ORDER BY part")
    code, answer = check()
    assert (code, answer["level"]) == (0, True)
    database.execute(
        "DELETE FROM orders WHERE id IN (3, 4, 9999)",
        "UPDATE orders SET tags = '{}' WHERE id BETWEEN 10 AND 14",
        "INSERT INTO orders (id) VALUES (-1)",
        "UPDATE parts SET sold = NULL WHERE part = 2",
        "DELETE FROM parts WHERE part IS NULL",
    )
    code, answer = check()
    assert (code, answer["level"]) == (1, False)
    assert differences(answer) == {"orders": (3, 5, 1), "parts": (1, 1, 0)}
    assert len(answer["sinks"][0]["difference"]["keys"]) > 3
    said = CliRunner().invoke(root, ["sync", "check", "app.py"])
    assert said.exit_code == 1
    assert "orders: 3 rows missing, 5 rows with other values, 1 row too many (keys: " in said.output
    assert check("--repair")[0] == 0
    after = database.query("SELECT * FROM orders ORDER BY id"), database.query("SELECT * FROM parts ORDER BY part")
    assert after == before
    code, answer = check()
    assert (code, set(differences(answer).values())) == (0, {(0, 0, 0)})
    shop(*orders(range(3), price=9))  # the app goes on
    assert database.query("SELECT sum(price) FROM orders") == [(5000 * 2 + 3 * 7,)]
    assert check()[0] == 0


def test_a_new_store_is_filled_while_the_table_goes_on_changing(database, shop):
    """The first start with the sink writes all rows once; later changes follow."""
    more = f'orders.where("part = 1").to(postgres.upsert("{database.url}", "ones"))'
    shop(*orders(range(100)))
    shop(*orders(range(50, 150), price=3), more=more)  # fills, then the change
    shop(*orders(range(140, 200), price=4), more=more)
    expected = database.query("SELECT * FROM orders WHERE part = 1 ORDER BY id")
    assert len(expected) == 29
    assert database.query("SELECT * FROM ones ORDER BY id") == expected
    assert check()[0] == 0
