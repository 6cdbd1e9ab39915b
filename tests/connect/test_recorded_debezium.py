"""Messages that Debezium itself wrote, read as tables: these are what the other database had (`recorded_debezium`)."""

from __future__ import annotations

import json
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

import pytest

import headrace as hr
from headrace.base.log_errors import UnknownTopic
from headrace.connect.formats import debezium
from headrace.testing import Driver

RECORDED = Path(__file__).parent / "recorded_debezium"
THINGS = (
    "id bigint, small smallint, whole int, real4 float, real8 double, price decimal(12,3), free decimal(38,3), "
    "yes boolean, name string, short string, code string, raw binary, day date, at timestamp, local timestamp_ntz, "
    "of_day bigint, doc string, id16 string, feeling string, years int, tags array<string>, numbers array<int>, "
    "big string, raw_big binary, many_tags array<string>, many array<int>"
)
TABLES = {
    "things": (THINGS, ["id"]),
    "orders": ("shop int, number int, total decimal(10,2)", ["shop", "number"]),
    "big_full": ("id int, note string, big string", ["id"]),
    "emptied": ("id int", ["id"]),
    "ends": ("id int, word string", ["id"]),
}
FORMS = {
    "plain": debezium(),
    "schemas": debezium(decimals="string", times="nanos"),  # the schema of each message says what is right
    "options": debezium(times="millis", decimals="string"),
}
NOT_CARRIED = {6: "big", 7: "raw_big", 8: "many_tags", 9: "many"}
"""Things that were changed without the long value that they have, and the column of it."""


def messages(file, table):
    lines = (RECORDED / f"{file}.tsv").read_text(encoding="utf-8").splitlines()
    return [(key, value) for topic, key, value in (line.split("\t") for line in lines) if topic.endswith(f".{table}")]


def sent(file, table):
    """Return the records of a table as the log has them: the key's columns beside the value."""
    found = []
    for key, value in messages(file, table):
        if key == r"\N":
            continue  # TRUNCATE: it has no key, so no row of a table is meant
        columns = json.loads(key)
        found.append(columns.get("payload", columns) | {"value": None if value == r"\N" else value})
    return found


CONVERSIONS = {
    "price": Decimal,
    "free": Decimal,
    "total": Decimal,
    "raw": lambda text: bytes.fromhex(text[2:]),
    "raw_big": lambda text: bytes.fromhex(text[2:]),
    "day": date.fromisoformat,
    "at": datetime.fromisoformat,
    "local": datetime.fromisoformat,
    "doc": json.dumps,
}


def truth(file, table):
    """Return what PostgreSQL said of a table, each value as Python has it."""
    said = json.loads((RECORDED / f"{file}.json").read_text(encoding="utf-8"), parse_float=str)[table]
    return [
        {name: value if value is None else CONVERSIONS.get(name, lambda it: it)(value) for name, value in row.items()}
        for row in said
    ]


def comparable(row):
    """Return a row without what has another form at Debezium: a time of day is a number, a JSON text has its blanks."""
    row = dict(row)
    if "doc" in row:
        row["doc"] = row["doc"] and json.loads(row["doc"])
        row["of_day"] = row["of_day"] is not None
        row["real4"], row["real8"] = (None if row[each] is None else float(row[each]) for each in ("real4", "real8"))
    return row


def read(file, table):
    """Return the rows of a table at the end, and why records of it are dead letters."""
    columns, key = TABLES[table]
    app = hr.App("reader", storage="unused", shards=1)
    app.table(table, columns, key=key, format=FORMS[file]).to_view("rows")
    with Driver(app) as driver:
        for each in sent(file, table):
            driver.send(table, each) if each["value"] else driver.delete(table, **{name: each[name] for name in key})
        driver.run()
        try:
            dead = [each["reason"] for each in driver.read(f"{table}.dead")]
        except UnknownTopic:  # it is created with the first dead letter
            dead = []
        return driver.view("rows"), dead


@pytest.mark.parametrize("table", ["orders", "big_full", "ends"])
@pytest.mark.parametrize("file", FORMS)
def test_a_table_that_follows_debezium_is_the_table_of_the_other_database(file, table):
    rows, dead = read(file, table)
    key = TABLES[table][1]
    assert not dead
    assert sorted(rows, key=lambda row: [row[name] for name in key]) == truth(file, table)


@pytest.mark.parametrize("file", FORMS)
def test_each_type_is_read_and_a_value_that_an_event_does_not_carry_is_never_its_placeholder(file):
    """A dead letter names the column and what to do; the row stays as it was."""
    rows, dead = read(file, "things")
    expected = [
        comparable(row | {"name": None}) if row["id"] in NOT_CARRIED else comparable(row)
        for row in truth(file, "things")
    ]
    assert sorted(map(comparable, rows), key=lambda row: row["id"]) == sorted(expected, key=lambda row: row["id"])
    assert len(dead) == len(NOT_CARRIED)
    for column, reason in zip(NOT_CARRIED.values(), dead, strict=True):
        assert reason.startswith(f"the field {column} "), reason
        assert "REPLICA IDENTITY FULL" in reason


@pytest.mark.parametrize("file", FORMS)
def test_an_emptied_table_is_a_dead_letter_in_a_stream(file):
    app = hr.App("reader", storage="unused", shards=1)
    app.stream("emptied", "id int, __op string", format=FORMS[file]).to_topic("out")
    with Driver(app) as driver:
        driver.send("emptied", *({"value": value} for _, value in messages(file, "emptied")))
        driver.run()
        assert [(each["id"], each["__op"]) for each in driver.read("out")] == [(1, "r"), (2, "r"), (3, "c")]
        (dead,) = driver.read("emptied.dead")
        assert "a table was emptied" in dead["reason"]
