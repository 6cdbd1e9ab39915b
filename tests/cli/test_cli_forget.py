"""Private columns from the command line."""

import json

import pytest

import headrace as hr
from headrace.testing import Driver

LOG = ".headrace/log"
ROWS = '{"id": 1, "user": 7, "email": "ann@secret.example"}\n{"id": 2, "user": 8, "email": "bob@secret.example"}\n'


@pytest.fixture
def orders(headrace):
    result = headrace(
        "topics", "create", "orders", "--schema", "id bigint, user int, email string", "--private", "email=user"
    )
    assert result.code == 0, result.err
    assert headrace("topics", "produce", "orders", stdin=ROWS).code == 0
    return "orders"


def consumed(headrace, topic):
    return [json.loads(line)["email"] for line in headrace("topics", "consume", topic).out.splitlines()]


def test_a_subject_is_forgotten_once(headrace, orders, folder):
    assert consumed(headrace, orders) == ["ann@secret.example", "bob@secret.example"]
    assert not [path for path in folder.rglob("*") if path.is_file() and b"secret.example" in path.read_bytes()]
    assert headrace("topics", "forget", orders, "--subject", "7").out == "topic orders: 1 key of 7 destroyed\n"
    assert consumed(headrace, orders) == [None, "bob@secret.example"]
    again = headrace("topics", "forget", orders, "--subject", "7")
    assert (again.code, again.out) == (0, "topic orders: 7 was forgotten before; no key is left\n")
    result = headrace("topics", "forget", orders, "--subject", "8", "--column", "user", "--json")
    assert json.loads(result.out) == {"topic": "orders", "subject": "8", "destroyed": 1}
    assert consumed(headrace, orders) == [None, None]


def test_describe_shows_what_is_private(headrace, orders):
    assert "private     email of user" in headrace("topics", "describe", orders).out
    assert json.loads(headrace("topics", "describe", orders, "--json").out)["private"] == {"email": "user"}


def test_a_private_column_alone_belongs_to_the_key(headrace):
    result = headrace(
        "topics",
        "create",
        "a",
        "--schema",
        "user string, email string",
        "--key",
        "user",
        "--private",
        "email",
        "--json",
    )
    assert json.loads(result.out)["private"] == {"email": "user"}


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (["forget", "orders", "--subject", "9"], '[UNKNOWN_SUBJECT] the topic "orders" never had a private value of'),
        (["forget", "orders", "--subject", "x"], "--subject 'x' cannot be a subject of the topic orders"),
        (["forget", "orders", "--subject", ""], "None is not a subject of the topic orders"),
        (["forget", "orders", "--subject", "7", "--column", "id"], 'of the topic "orders" is not a subject column'),
        (["forget", "orders", "--subject", "7", "--column", "usr"], 'Hint: Did you mean "user"?'),
        (["forget", "order", "--subject", "7"], 'has no topic "order"'),
        (["create", "b", "--schema", "id int, email string", "--private", "email"], "does not name the subject column"),
        (["create", "b", "--schema", "id int, email string", "--private", "mail=id"], '"mail" is not in the schema'),
        (["create", "b", "--schema", "id int, n int", "--private", "n=id"], "binary columns can be private."),
    ],
)  # fmt: skip
def test_what_cannot_be_forgotten_or_sealed_is_an_error(headrace, orders, command, why):
    result = headrace("topics", *command)
    assert result.code == 1
    assert why in result.err
    assert consumed(headrace, orders) == ["ann@secret.example", "bob@secret.example"]


def test_forgetting_in_a_topic_without_private_columns_says_so(headrace):
    headrace("topics", "create", "plain", "--schema", "id int")
    result = headrace("topics", "forget", "plain", "--subject", "7")
    assert result.code == 1
    assert "has no private columns, so it has no keys to destroy" in result.err


def test_views_show_values_until_they_are_forgotten(headrace):
    app = hr.App("shop", storage="shop")
    orders = app.stream("orders", "id bigint, user int, email string", private={"email": "user"})
    orders.to_view("orders")
    orders.to_topic("passed")
    with Driver(app, storage="shop") as driver:
        driver.send("orders", *map(json.loads, ROWS.splitlines()))
        driver.run()
    assert "sealed      email: by orders" in headrace("topics", "describe", "passed", "--log", "shop/log").out
    show = ("views", "show", "orders", "--storage", "shop")
    assert [row["email"] for row in json.loads(headrace(*show, "--json").out)["rows"]] == [
        "ann@secret.example",
        "bob@secret.example",
    ]
    assert headrace("topics", "forget", "orders", "--log", "shop/log", "--subject", "7").code == 0
    assert headrace(*show, "--csv").out == "id,user,email\n1,7,\n2,8,bob@secret.example\n"
    assert "ann" not in headrace(*show).out


def test_forget_needs_a_subject(headrace, orders):
    assert headrace("topics", "forget", orders).code == 2
