"""Private columns in apps: sealed in all that an app keeps, readable at its ends, null there once forgotten."""

import pyarrow as pa
import pytest

import headrace as hr
from headrace.base.errors import SealedColumn, TopicDiffers, UnknownColumn, WrongColumnType
from headrace.log import Log
from headrace.testing import Driver

COLUMNS = "id bigint, user bigint, email string, amount double, at timestamp"
PRIVATE = {"email": "user"}


def order(n, user, **more):
    return {"id": n, "user": user, "email": f"{user}@secret.example", "amount": 1.0, "at": 1000 * n} | more


class Written:
    """A sink that keeps what it is handed."""

    def __init__(self):
        self.rows = []

    def write(self, epoch, rows):
        """Keep them."""
        self.rows += [(epoch, row["email"]) for row in rows.to_pylist()]


def shop(storage="unused", **options):
    app = hr.App("shop", storage=storage, **options)
    orders = app.stream("orders", COLUMNS, event_time="at", private=PRIVATE)
    last = orders.group_by("user").agg(n="count(email)", email="max_by(email, at)", all="collect_list(email)")
    last.named("last").to_view("users")
    last.select("user", "email").to_topic("by_user")
    orders.rename(mail="email").where("mail is not null").drop("amount").to_topic("passed")
    orders.select("id", contact="email").dedupe("id", within="1 hour").to_view("contacts")
    return app


def clear_bytes(folder):
    return [path for path in folder.rglob("*") if path.is_file() and b"secret.example" in path.read_bytes()]


def users(driver):
    """Return n, email and all of each user; in what order a list is collected, nobody promises."""
    return {row["user"]: (row["n"], row["email"], sorted(row["all"], key=str)) for row in driver.view("users")}


@pytest.fixture
def driver(tmp_path):
    with Driver(shop(), storage=tmp_path / "storage") as made:
        yield made


def send(driver):
    driver.send("orders", order(1, 7), order(2, 8), order(3, 7, email="new@secret.example"), order(4, 9, email=None))
    driver.run()


def test_values_are_read_at_every_end_and_stand_in_no_file(driver):
    send(driver)
    assert users(driver) == {
        7: (2, "new@secret.example", ["7@secret.example", "new@secret.example"]),
        8: (1, "8@secret.example", ["8@secret.example"]),
        9: (0, None, []),
    }
    assert [row["mail"] for row in driver.read("passed")] == [
        "7@secret.example",
        "8@secret.example",
        "new@secret.example",
    ]
    assert {row["user"]: row["email"] for row in driver.read("by_user")}[8] == "8@secret.example"
    assert {row["id"]: row["contact"] for row in driver.view("contacts")}[2] == "8@secret.example"
    assert any(b"sealed:v1:" in path.read_bytes() for path in driver.storage.rglob("views.db*"))
    assert not clear_bytes(driver.storage)


def test_a_forgotten_subject_is_null_in_views_topics_and_state(driver):
    send(driver)
    assert driver.log.topic("orders").forget(7) == 1
    assert users(driver)[7] == (2, None, [None, None])
    assert users(driver)[8] == (1, "8@secret.example", ["8@secret.example"])
    assert [row["mail"] for row in driver.read("passed")] == [None, "8@secret.example", None]
    assert {row["user"]: row["email"] for row in driver.read("by_user")} == {7: None, 8: "8@secret.example", 9: None}
    assert {row["id"]: row["contact"] for row in driver.view("contacts")} == {
        1: None, 2: "8@secret.example", 3: None, 4: None,
    }  # fmt: skip
    assert not clear_bytes(driver.storage)


def test_state_goes_on_after_forgetting_and_a_restart(driver):
    """What is withdrawn is found by its token: a forgotten value neither fails nor comes back."""
    send(driver)
    driver.log.topic("orders").forget(7)
    driver.restart()
    driver.send("orders", order(5, 7, email="late@secret.example", at=10), order(6, 8, email="other@secret.example"))
    driver.run()
    assert users(driver)[7] == (3, None, [None, None, "late@secret.example"])
    assert users(driver)[8] == (2, "other@secret.example", ["8@secret.example", "other@secret.example"])
    driver.send("orders", order(7, 7, email="latest@secret.example"))
    driver.crash(at="after_commit")
    driver.restart()
    driver.run()
    assert users(driver)[7][:2] == (4, "latest@secret.example")
    assert not clear_bytes(driver.storage)
    driver.log.topic("orders").forget(7)
    assert users(driver)[7] == (4, None, [None] * 4)


@pytest.mark.on_spark
def test_both_carriers_keep_tokens_alone(drive, tmp_path):
    driver = drive(shop(), storage=tmp_path / "storage", shards=2)
    send(driver)
    assert users(driver)[7] == (2, "new@secret.example", ["7@secret.example", "new@secret.example"])
    assert not clear_bytes(driver.storage)
    driver.log.topic("orders").forget(7)
    driver.send("orders", order(5, 8, email="other@secret.example"), order(6, 7, email=None))
    driver.run()
    assert users(driver)[7] == (2, None, [None, None])
    assert users(driver)[8] == (2, "other@secret.example", ["8@secret.example", "other@secret.example"])
    assert {row["user"]: row["email"] for row in driver.read("by_user")}[7] is None
    assert not clear_bytes(driver.storage)


def test_a_sink_of_the_users_is_handed_values_as_long_as_they_are_there(tmp_path):
    app, written = hr.App("a"), Written()
    app.stream("orders", COLUMNS, event_time="at", private=PRIVATE).to(written)
    with Driver(app, storage=tmp_path) as driver:
        driver.send("orders", order(1, 7), order(2, 8))
        driver.log.topic("orders").forget(7)
        driver.run()
    assert [email for _, email in written.rows] == [None, "8@secret.example"]


def test_bytes_are_private_as_text_is(tmp_path):
    app = hr.App("a")
    scans = app.stream("scans", "id bigint, face binary, at timestamp", event_time="at", private={"face": "id"})
    scans.group_by("id").agg(face="max_by(face, at)", faces="collect_list(face)").to_view("faces")
    with Driver(app, storage=tmp_path) as driver:
        driver.send("scans", {"id": 1, "face": b"\x00secret.example\xff", "at": 1}, {"id": 2, "face": b"", "at": 2})
        driver.run()
        assert driver.view("faces") == [
            {"id": 1, "face": b"\x00secret.example\xff", "faces": [b"\x00secret.example\xff"]},
            {"id": 2, "face": b"", "faces": [b""]},
        ]
        assert not clear_bytes(tmp_path)
        driver.log.topic("scans").forget(2)
        assert driver.view("faces")[1] == {"id": 2, "face": None, "faces": [None]}


def test_late_rows_and_changes_stay_sealed(tmp_path):
    app = hr.App("a")
    orders = app.stream("orders", COLUMNS, event_time="at", private=PRIVATE)
    windows = orders.group_by("user").window(hr.tumbling("1 second", grace="0 seconds")).agg(e="min_by(email, id)")
    windows.late.to_topic("late")
    windows.changes().to_topic("changes")
    with Driver(app, storage=tmp_path) as driver:
        for n, at in ((1, 0), (2, 60_000), (3, 10)):
            driver.send("orders", order(n, 7, at=at))
            driver.run()
        assert [row["email"] for row in driver.read("late")] == ["7@secret.example"]
        assert [row["e"] for row in driver.read("changes")] == ["7@secret.example"] * 2
        assert not clear_bytes(tmp_path)
        driver.log.topic("orders").forget(7)
        driver.restart()
        assert {row["e"] for batch in driver.log.topic("changes").batches(0, 0, 2) for row in batch.to_pylist()} == {
            None
        }


def test_dead_letters_hold_tokens(tmp_path):
    with Driver(shop(), storage=tmp_path) as driver:
        driver.send("orders", order(1, 7, at=None))
        driver.run()
        assert "sealed:v1:" in driver.read("orders.dead")[0]["record"]
        assert not clear_bytes(tmp_path)


def test_a_second_app_reads_what_the_first_passed_on(tmp_path):
    """Keys are asked for where the values came from, however often they were passed on."""
    with Driver(shop(), storage=tmp_path / "one") as driver:
        send(driver)
    second = hr.App("second")
    passed = second.stream("passed", "id bigint, mail string", private=["mail"])
    passed.to_topic("again")
    passed.to_view("mails")
    with Log(tmp_path / "one" / "log") as log:
        topic = log.topic("passed")
        sealed = topic.read(0, 0, 9, sealed=True)["mail"].to_pylist()
        assert all(token.startswith(f"sealed:v1:{log.topic('orders').opened.meta().id}") for token in sealed)
    (tmp_path / "two").mkdir()
    (tmp_path / "one" / "log").rename(tmp_path / "two" / "log")
    with Driver(second, storage=tmp_path / "two") as driver:
        driver.run()
        assert driver.read("again")[1]["mail"] == "8@secret.example"
        assert not clear_bytes(tmp_path)
        driver.log.topic("orders").forget(8)
        assert [row["mail"] for row in driver.view("mails")].count(None) == 1
        driver.log.delete_topic("orders")
        assert {row["mail"] for row in driver.view("mails")} == {None}


def test_a_view_is_read_from_anywhere(tmp_path):
    app = shop(storage=tmp_path / "s")
    with Driver(app, storage=tmp_path / "s") as driver:
        send(driver)
    assert app.view("contacts")["contact"].to_pylist().count(None) == 1
    with Log(tmp_path / "s" / "log") as log:
        log.topic("orders").forget(7)
    assert app.view("contacts")["contact"].to_pylist() == [None, "8@secret.example", None, None]


# ---- what a private column cannot be used for ----------------------------------------------------------


@pytest.mark.parametrize(
    ("verb", "why"),
    [
        (lambda s: s.select(x="upper(email)"), '"UPPER(email)" computes with the private column "email"'),
        (lambda s: s.select("concat(email, 'x') AS x"), 'private column "email"'),
        (lambda s: s.with_columns(x="EMAIL || 'x'"), 'private column "email"'),
        (lambda s: s.with_columns(x="coalesce(email, 'x')"), 'private column "email"'),
        (lambda s: s.where("email = 'ann@example.org'"), 'private column "email"'),
        (lambda s: s.where("email like '%org' and user = 3"), 'private column "email"'),
        (lambda s: s.branch(a="length(email) > 3"), 'private column "email"'),
        (lambda s: s.rename(mail="email").where("mail > 'a'"), 'private column "mail"'),
        (lambda s: s.group_by("email"), 'the column "email" is private and cannot be a key'),
        (lambda s: s.group_by(e="email"), 'the column "e" is private and cannot be a key'),
        (lambda s: s.dedupe("email", within="1 hour"), 'the column "email" is private and cannot be a key'),
        (lambda s: s.group_by("user").top(1, "at, email"), '"email" is private and cannot be what rows are ordered by'),
        (lambda s: s.group_by(e="lower(email)"), 'private column "email"'),
        (lambda s: s.group_by("user").agg(x="count(distinct email)"), 'private column "email"'),
        (lambda s: s.group_by("user").agg(x="max(email)"), 'private column "email"'),
        (lambda s: s.group_by("user").agg(x="collect_set(email)"), 'private column "email"'),
        (lambda s: s.group_by("user").agg(x="max_by(at, email)"), 'private column "email"'),
        (lambda s: s.group_by("user").agg(x="upper(max_by(email, at))"), 'private column "email"'),
        (lambda s: s.group_by("user").agg(x="max_by(lower(email), at)"), 'private column "email"'),
        (lambda s: s.group_by("user").agg(x="count(*) filter (where email > 'a')"), 'private column "email"'),
        (lambda s: s.group_by("user").agg(x="max_by(email, at)").where("x > 'a'"), 'private column "x"'),
        (lambda s: s.map_batches(lambda rows: rows, "id bigint"), "the function would see the private columns sealed"),
        (lambda s: s.to_topic("t", key="email"), 'the column "email" is private and cannot be the key of a topic'),
        (lambda s: s.union(s.with_columns(email="'clear'")), "email is private in one of them, and clear"),
    ],
)  # fmt: skip
def test_computing_with_a_private_column_is_refused(verb, why):
    orders = hr.App("a").stream("orders", COLUMNS, event_time="at", private=PRIVATE)
    with pytest.raises(SealedColumn) as caught:
        verb(orders)
    assert why in str(caught.value)
    assert caught.value.hint


def test_a_function_of_the_users_is_given_no_private_column():
    app = hr.App("a")
    app.function("domain", lambda column: column, returns="string")
    orders = app.stream("orders", COLUMNS, private=PRIVATE)
    with pytest.raises(SealedColumn, match="private column"):
        orders.select(x="domain(email)")


def test_what_is_passed_on_is_known_to_be_private():
    orders = hr.App("a").stream("orders", COLUMNS, event_time="at", private=PRIVATE)
    renamed = orders.rename(mail="email").where("mail is null or isnotnull(mail)")
    assert renamed.node.sealed == {"mail"}
    assert orders.drop("email").node.sealed == frozenset()
    assert renamed.union(renamed).node.sealed == {"mail"}
    kept = renamed.group_by("user").agg(
        a="max_by(mail, at) filter (where amount > 1)", b="max_by(amount, at) filter (where mail is null)",
        c="array_agg(mail)", d="count(mail)",
    )  # fmt: skip
    assert kept.node.sealed == {"a", "c"}
    assert kept.select("user", x="a").node.sealed == {"x"}
    assert kept.changes().explode("c", "one").node.sealed == {"a", "c", "one"}


@pytest.mark.parametrize(
    ("private", "error", "why"),
    [
        ({"mail": "user"}, UnknownColumn, 'has no column "mail"'),
        ({"email": "usr"}, UnknownColumn, 'has no column "usr"'),
        ({"amount": "user"}, WrongColumnType, "cannot be private"),
        (["id"], WrongColumnType, "cannot be private"),
    ],
)
def test_a_source_with_wrong_private_columns_is_refused(private, error, why):
    with pytest.raises(error, match=why):
        hr.App("a").stream("orders", COLUMNS, private=private)
    with pytest.raises(SealedColumn, match="cannot be key or event time"):
        hr.App("a").stream("orders", COLUMNS, key="email", private=["email"])


def test_the_plan_shows_what_is_private():
    assert "topic orders, private: email" in str(shop().explain())


# ---- apps and topics that do not agree -----------------------------------------------------------------


@pytest.mark.parametrize(("made", "declared"), [(PRIVATE, None), (None, PRIVATE)])
def test_a_source_says_which_columns_are_private(tmp_path, made, declared):
    with Log(tmp_path / "log", fsync=False) as log:
        log.create_topic("orders", COLUMNS, event_time="at", private=made)
    app = hr.App("a")
    app.stream("orders", COLUMNS, event_time="at", private=declared).drop("email").to_view("v")
    with pytest.raises(TopicDiffers, match='private columns of the topic "orders" are not those') as caught:
        Driver(app, storage=tmp_path)
    assert ('private=["email"]' if made else "Leave private= out") in caught.value.hint


def test_a_source_does_not_give_private_values_to_another_subject(tmp_path):
    with Log(tmp_path / "log", fsync=False) as log:
        log.create_topic("orders", COLUMNS, event_time="at", private=PRIVATE)
    app = hr.App("a")
    app.stream("orders", COLUMNS, event_time="at", private={"email": "id"}).to_view("v")
    with pytest.raises(TopicDiffers, match='"email" in the topic "orders" belong to "user", not to "id"'):
        Driver(app, storage=tmp_path)


def test_sealed_and_clear_values_do_not_meet_in_a_topic(tmp_path):
    def app(name, **columns):
        made = hr.App("a")
        made.stream("orders", COLUMNS, event_time="at", private=PRIVATE).select("user", **columns).to_topic(name)
        return made

    with Log(tmp_path / "log", fsync=False) as log:
        log.create_topic("own", "user bigint, email string", private={"email": "user"})
        log.create_topic("full", "user bigint, email string").append([{"user": 1, "email": "clear"}])
        log.create_topic("empty", "user bigint, email string")
    with Driver(app("empty", email="email"), storage=tmp_path) as driver:
        driver.send("orders", order(1, 7))
        driver.run()
        assert driver.read("empty") == [{"user": 7, "email": "7@secret.example"}]
    for name, text, why in (
        ("own", "email", 'seals its column "email" itself'),
        ("full", "email", 'would have sealed values and clear ones in its column "email"'),
        ("empty", "'clear'", 'would have sealed values and clear ones in its column "email"'),
    ):
        with pytest.raises(TopicDiffers, match=why):
            Driver(app(name, email=text), storage=tmp_path)
    with Log(tmp_path / "log", fsync=False) as log, pytest.raises(hr.HeadraceError, match="takes sealed values only"):
        log.topic("empty").append(pa.table({"user": [1], "email": ["clear"]}))
