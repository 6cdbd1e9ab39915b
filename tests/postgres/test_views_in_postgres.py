"""Views served from PostgreSQL, on a real server."""

from __future__ import annotations

import random
import threading

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.base.errors import InvalidPlan, ViewOutOfStep
from headrace.base.outside import Unavailable
from headrace.base.schema import parse, parse_type
from headrace.connect.postgres.address import PostgresAddress
from headrace.connect.postgres.serving.store import PostgresViews, ViewTaken
from headrace.connect.store import StoreDiffers, StoreRefused, WriterFenced
from headrace.testing import Crash
from view_contract import *  # noqa: F403 -- tests of what every store keeps
from view_contract import COUNTS, delta, rows
from view_values import *  # noqa: F403 -- tests of what every store keeps of values
from view_values import TYPES, bits


def store(database, **options):
    return PostgresViews(PostgresAddress.parse(database.url), "shop/1", **options)


@pytest.fixture
def views(database):
    opened = store(database)
    yield opened
    opened.close()


def fits(value):
    """Whether PostgreSQL has the value: no NUL in a text."""
    if isinstance(value, str):
        return "\0" not in value
    if isinstance(value, dict):
        return all(map(fits, [*value, *value.values()]))
    return not isinstance(value, list | tuple) or all(map(fits, value))


def shown(value, *, nested=False):
    """Return a value by its bits; inside of jsonb -0.0 is 0.0, and the entries of a map have another order."""
    if isinstance(value, float) and nested:
        return bits(value + 0.0)
    if isinstance(value, dict):
        return {name: shown(part, nested=True) for name, part in value.items()}
    if isinstance(value, tuple):
        return tuple(shown(part, nested=True) for part in value)
    if isinstance(value, list):
        pairs = value and all(isinstance(part, tuple) for part in value)
        return [shown(part, nested=True) for part in (sorted(value, key=repr) if pairs else value)]
    return bits(value)


@settings(deadline=None, max_examples=25, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_every_value_of_every_type_comes_back(views, data):
    ddl, strategy = data.draw(TYPES, label="type")
    values = data.draw(st.lists((strategy | st.none()).filter(fits), max_size=6), label="values")
    column = pa.array(values, parse_type(ddl))
    schema = pa.schema([("n", pa.int64()), ("v", column.type)])
    delta = pa.table({"n": list(range(len(values))), "v": column, "_weight": [1] * len(values)})
    views.reset()
    views.declare("v", schema, ("n",))
    views.declare("bag", schema, None)
    views.apply(0, {"v": delta, "bag": delta})
    read = views.read("v")
    assert read.schema == schema
    assert shown(read["v"].to_pylist()) == shown(column.to_pylist())
    assert views.damage() == {}
    gone = delta.set_column(2, "_weight", pa.array([-1] * len(values)))
    views.apply(1, {"v": gone, "bag": gone})
    assert (views.read("v").num_rows, views.read("bag").num_rows, views.damage()) == (0, 0, {})


class CrashAt:
    """Dies at the call with a number."""

    def __init__(self, number):
        self.left, self.points = number, []

    def __call__(self, point):
        self.points.append(point)
        self.left -= 1
        if self.left == 0:
            raise Crash(point)


EPOCHS = [
    {"k": delta(("a", 1, 1), (None, 1, 1)), "bag": delta(("a", 1, 2))},
    {"k": delta(("a", 1, -1), ("a", 2, 1), ("b", 1, 1)), "bag": delta(("a", 1, -1), ("b", 1, 1))},
    {"bag": delta(("a", 1, -1))},
    {"k": delta((None, 1, -1), ("b", 1, -1)), "bag": delta(("b", 1, 1))},
]
KEPT = [
    ([(None, 1), ("a", 1)], [("a", 1), ("a", 1)]),
    ([(None, 1), ("a", 2), ("b", 1)], [("a", 1), ("b", 1)]),
    ([(None, 1), ("a", 2), ("b", 1)], [("b", 1)]),
    ([("a", 2)], [("b", 1), ("b", 1)]),
]


def declared(views):
    views.declare("k", COUNTS, ("word",))
    views.declare("bag", COUNTS, None)
    return views


def test_a_crash_at_any_step_leaves_each_epoch_once(database):
    """Each epoch is begun again until no step of it is left to crash at, by a new process each time."""
    passed = set()
    for epoch, deltas in enumerate(EPOCHS):
        for number in range(1, 99):
            fault = CrashAt(number)
            views = declared(store(database, fault=fault))
            fault.left, fault.points = number, []
            before = views.applied()
            try:
                views.apply(epoch, deltas)
            except Crash:
                passed.add(fault.points[-1])
            finally:
                views.close()
            seen = store(database)
            whole = KEPT[seen.applied()] if seen.applied() >= 0 else ([], [])
            assert (rows(seen.read("k")), rows(seen.read("bag"))) == whole
            assert epoch - 1 <= seen.applied() <= epoch
            assert seen.damage() == {}
            if before == epoch:
                break
        assert seen.applied() == epoch
    assert passed == {"before_transaction", "in_transaction", "before_transaction_ends", "after_transaction"}


def test_an_older_process_is_fenced(database):
    old, new = declared(store(database)), declared(store(database))
    new.apply(0, EPOCHS[0])
    with pytest.raises(WriterFenced):
        old.apply(0, EPOCHS[0])
    with pytest.raises(WriterFenced):
        old.drop("k")
    new.apply(1, EPOCHS[1])
    assert rows(new.read("k")) == KEPT[1][0]
    old.close()
    new.close()


def test_a_process_that_hangs_in_its_transaction_is_ended_by_the_next_one(database):
    reached, goes_on, heard = threading.Event(), threading.Event(), []

    def hang(point):
        if point == "before_transaction_ends":
            reached.set()
            goes_on.wait(60)

    old = declared(store(database, fault=hang))

    def apply():
        try:
            old.apply(0, EPOCHS[0])
        except Unavailable as error:
            heard.append(error)

    thread = threading.Thread(target=apply)
    thread.start()
    assert reached.wait(60)
    new = declared(store(database))
    goes_on.set()
    thread.join(60)
    assert heard
    assert new.applied() == -1
    new.apply(0, EPOCHS[0])
    assert rows(new.read("bag")) == KEPT[0][1]
    old.close()
    new.close()


def test_a_server_that_is_killed_in_mid_epoch_has_it_once(breakable_database):
    database, kill_at = breakable_database, {"in_transaction", "before_transaction_ends", "after_transaction"}

    def kill(point):
        if point in kill_at:
            kill_at.remove(point)
            database.server.kill()
            if point == "after_transaction":
                raise InterruptedError("the answer was lost")

    views = declared(store(database, fault=kill))
    for epoch, deltas in enumerate(EPOCHS):
        for _ in range(9):
            try:
                views.apply(epoch, deltas)
            except (Unavailable, InterruptedError):
                database.server.start()
            else:
                break
    assert not kill_at
    assert [rows(views.read("k")), rows(views.read("bag"))] == [*KEPT[-1]]
    assert views.damage() == {}
    views.close()


def test_a_reader_sees_whole_epochs_while_they_are_applied(database):
    """Both views are of one epoch, whatever the moment; and no reader blocks the writer."""
    views, ids = store(database), list(range(500))
    for name in ("first", "last"):
        views.declare(name, parse("id int, n bigint"), ("id",))
    ended = threading.Event()

    def write():
        for epoch in range(25):
            some = pa.table({"id": ids, "n": [epoch] * len(ids), "_weight": [1] * len(ids)})
            views.apply(epoch, {"first": some, "last": some})
        ended.set()

    thread = threading.Thread(target=write)
    thread.start()
    reader, seen = store(database), set()
    while not ended.is_set():
        with reader.snapshot() as now:
            if now.applied() >= 0:
                assert {*now.read("first")["n"].to_pylist(), *now.read("last")["n"].to_pylist()} == {now.applied()}
                seen.add(now.applied())
    thread.join(60)
    assert len(seen) > 1
    views.close()


def test_a_replaced_view_is_never_seen_empty(database):
    views = declared(store(database))
    views.apply(0, EPOCHS[0])
    with store(database).snapshot() as then:
        views.apply(1, {"k": delta(("z", 1, 1))}, replaced=["k"])
        assert rows(then.read("k")) == KEPT[0][0]
    assert (rows(views.read("k")), views.damage()) == ([("z", 1)], {})
    views.close()


def test_a_table_that_is_not_ours_is_left_alone(database):
    database.execute("CREATE TABLE k (word text)", "INSERT INTO k VALUES ('theirs')")
    views = store(database)
    with pytest.raises(ViewTaken) as refused:
        declared(views)
    assert str(refused.value).splitlines()[0].startswith('[VIEW_TAKEN] the view "k" cannot be served: postgresql://')
    assert database.query("SELECT * FROM k") == [("theirs",)]
    views.reset()
    assert database.query("SELECT * FROM k") == [("theirs",)]
    views.close()


def test_two_apps_serve_from_one_database_but_not_one_view(database):
    ours = declared(store(database))
    theirs = PostgresViews(PostgresAddress.parse(database.url), "bank/2")
    theirs.declare("accounts", COUNTS, ("word",))
    ours.apply(0, EPOCHS[0])
    theirs.apply(5, {"accounts": delta(("a", 9, 1))})
    assert (ours.applied(), theirs.applied(), ours.names(), theirs.names()) == (0, 5, ["bag", "k"], ["accounts"])
    with pytest.raises(ViewTaken, match='serves one of this name for the app "shop"'):
        theirs.declare("k", COUNTS, ("word",))
    theirs.reset()
    assert rows(ours.read("k")) == KEPT[0][0]
    ours.close()
    theirs.close()


def test_a_row_that_the_server_refuses_is_named_and_nothing_of_the_epoch_is_kept(database):
    views = declared(store(database))
    views.apply(0, EPOCHS[0])
    with pytest.raises(StoreRefused, match="the row with word = a"):
        views.apply(1, {"bag": delta(("b", 1, 1)), "k": delta(("b", 1, 1), ("a\0", 1, 1))})
    assert (views.applied(), rows(views.read("bag"))) == (0, KEPT[0][1])
    views.close()


@pytest.mark.parametrize("name", ["", "a\0b", "x" * 64, "ä" * 32])
def test_a_column_that_postgres_cannot_name_is_refused(views, name):
    with pytest.raises(InvalidPlan, match="PostgreSQL cannot have a column named"):
        views.declare("v", pa.schema([(name, pa.int64())]), None)
    assert views.names() == []


def test_columns_may_have_any_other_name(views):
    names = ["a", "A", "_row_hash", "_row_hash_", 'quo"ted', "two words", "é", "select", "?", "{x}", "%s"]
    schema = pa.schema([(name, pa.string()) for name in names])
    for key in (None, tuple(names)):
        views.reset()
        views.declare("v", schema, key)
        views.apply(0, {"v": delta((*names, 1), schema=schema)})
        assert views.read("v").to_pylist() == [{name: name for name in names}]
        backwards = pa.schema(list(schema)[::-1])
        views.declare("v", backwards, key)
        assert views.damage() == {}
        views.apply(1, {"v": delta((*names[::-1], -1), schema=backwards)})
        assert views.read("v").num_rows == 0


def test_an_integer_becomes_wider_in_place(views):
    for name, key in [("v", ("n",)), ("bag", None)]:
        views.declare(name, parse("n int"), key)
    views.apply(0, {name: delta((7, 1), schema=parse("n int")) for name in ("v", "bag")})
    wide = parse("n bigint")
    for name, key in [("v", ("n",)), ("bag", None)]:
        views.declare(name, wide, key)
    views.apply(1, {name: delta((7, -1), (2**40, 1), schema=wide) for name in ("v", "bag")})
    assert [rows(views.read(name)) for name in ("v", "bag")] == [[(2**40,)], [(2**40,)]]
    assert views.damage() == {}


def test_rows_that_somebody_else_changed_are_damage(database):
    views = declared(store(database))
    views.apply(0, EPOCHS[0])
    database.execute("UPDATE k SET n = 7 WHERE word = 'a'")
    assert views.damage() == {"k": "its rows are not those of epoch 0"}
    with pytest.raises(ViewOutOfStep):
        views.apply(1, {"k": delta(("x", 1, -1))})
    views.close()


def test_a_role_that_may_not_create_is_told_what_to_grant(database):
    database.execute("CREATE ROLE tom LOGIN PASSWORD 'moneypenny'")
    url = database.server.url(database.name, user="tom", password="moneypenny")  # noqa: S106 -- of this test
    views = PostgresViews(PostgresAddress.parse(url), "shop/1")
    try:
        for wanted in ("CREATE SCHEMA headrace AUTHORIZATION tom", "GRANT CREATE ON SCHEMA public TO tom"):
            with pytest.raises(StoreDiffers) as refused:
                views.declare("v", COUNTS, ("word",))
            assert refused.value.hint.endswith(f": {wanted}")
            assert "moneypenny" not in str(refused.value)
            database.execute(wanted)
        views.declare("v", COUNTS, ("word",))
        views.apply(0, {"v": delta(("a", 1, 1))})
        assert rows(views.read("v")) == [("a", 1)]
    finally:
        views.close()
        database.execute("DROP OWNED BY tom", "DROP ROLE tom")


def test_a_key_that_no_index_can_have_is_refused_with_its_row(database):
    views = declared(store(database))
    words = random.Random(7).randbytes(6_000).hex()  # noqa: S311 -- what no compression makes short
    with pytest.raises(StoreRefused, match="the row with word = "):
        views.apply(0, {"k": delta(("a", 1, 1), (words, 1, 1))})
    assert views.applied() == -1
    views.close()
