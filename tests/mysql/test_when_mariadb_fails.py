"""What can be wrong with a MariaDB: each says what, and the next move; nothing that was accepted is lost."""

from __future__ import annotations

import re
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from following import capture_of, followed, in_a_log, position_of, rows_of, running

from headrace.base.errors import InvalidPlan, NotRunning
from headrace.base.outside import Unavailable
from headrace.connect import mysql
from headrace.connect.capture.errors import NoPrimaryKey, NotCapturable, ValueDoesNotFit
from headrace.connect.mysql.address import MysqlAddress
from headrace.connect.mysql.errors import LoginRefused
from headrace.connect.mysql.server import check_server
from headrace.log import Log

PAGE = Path(__file__).parents[2] / "docs" / "mysql.md"
RIGHT, WRONG = "moneypenny", "dropper"
TABLE = "CREATE TABLE t (id int PRIMARY KEY, v text)"


@pytest.fixture
def log(tmp_path):
    with Log(tmp_path / "log", fsync=False) as opened:
        yield opened


def once(capture, log):
    """Run a capture whose failure is expected."""
    with in_a_log(log, capture) as landing:
        capture.run(landing, threading.Event())


@contextmanager
def setting(schema, name, value):
    """Set a global variable, and set it back."""
    (before,) = schema.query(f"SELECT @@global.{name}")[0]
    schema.execute(f"SET GLOBAL {name} = {value}")
    yield
    schema.execute(f"SET GLOBAL {name} = {before}")


def test_a_server_that_is_down_is_tried_again_and_a_killed_one_goes_on(breakable_schema, log):
    breakable_schema.execute(TABLE, "INSERT INTO t VALUES (1, 'one')")
    capture = capture_of(breakable_schema, "t")
    with running(capture, log) as wait:
        wait(followed(breakable_schema, log))
    breakable_schema.server.kill()
    with pytest.raises(Unavailable):
        once(capture, log)
    breakable_schema.server.start()
    with running(capture, log) as wait:
        breakable_schema.execute("INSERT INTO t VALUES (2, 'two')")
        wait(followed(breakable_schema, log))
    with pytest.raises(Unavailable), running(capture, log) as wait:  # noqa: PT012 - what fails is the thread
        breakable_schema.execute("INSERT INTO t VALUES (3, 'three')")
        wait(followed(breakable_schema, log))
        breakable_schema.server.kill()
        wait(lambda: False)
    breakable_schema.server.start()


def test_a_restarted_server_gives_numbers_of_tables_anew(breakable_schema, log):
    """After the restart, the table that is not captured has the number that the captured one had before."""
    schema = breakable_schema
    schema.execute(TABLE, "CREATE TABLE other (id int PRIMARY KEY, v text)", "CREATE TABLE wider (a int, b int, c int)")
    capture = capture_of(schema, "t")
    with running(capture, log) as wait:
        wait(followed(schema, log))
    statements = (
        "INSERT INTO t VALUES (%, 'mine')",
        "INSERT INTO other VALUES (%, 'x')",
        "INSERT INTO wider VALUES (%, 2, 3)",
    )
    for restart in range(3):
        schema.server.stop()
        schema.server.start()
        schema.execute(*(each.replace("%", str(restart)) for each in (*statements[restart:], *statements[:restart])))
    with running(capture, log) as wait:
        wait(followed(schema, log))
    assert rows_of(log, "t") == {(0, "mine"), (1, "mine"), (2, "mine")}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("binlog_format", "'STATEMENT'"),
        ("binlog_row_image", "'MINIMAL'"),
        ("binlog_row_metadata", "'NO_LOG'"),
        ("log_bin_compress", "1"),
    ],
)
def test_a_setting_that_logs_too_little_is_named(breakable_schema, log, name, value):
    breakable_schema.execute(TABLE)
    with setting(breakable_schema, name, value), pytest.raises(NotCapturable, match=f"SET GLOBAL {name} = "):
        once(capture_of(breakable_schema, "t"), log)


@pytest.mark.prove
def test_a_server_without_a_log_is_told_how(tmp_path):
    """It takes a server of its own: the log is switched on or off when a server starts."""
    from scripts.broker.servers import Servers
    from scripts.servers.mariadb import MariaDB
    from scripts.servers.packages import Unavailable as Missing

    server = MariaDB(Servers(tmp_path, shared=True), skip_log_bin="ON")
    try:
        server.start()
    except Missing as reason:
        pytest.skip(f"no MariaDB: {reason}")
    try:
        with (
            MysqlAddress.parse(server.url()).connected() as sql,
            pytest.raises(NotCapturable, match="--log-bin --binlog-format=ROW"),
        ):
            check_server(sql)
    finally:
        server.stop()
        server.servers.leave()


@pytest.mark.parametrize(
    "statement", ["SET SESSION binlog_row_image = MINIMAL", "SET GLOBAL binlog_row_metadata = NO_LOG"]
)
def test_a_session_that_logs_too_little_stops_the_capture_before_its_change(breakable_schema, log, statement):
    breakable_schema.execute(TABLE, "INSERT INTO t VALUES (1, 'one')")
    with pytest.raises(NotCapturable, match="SET GLOBAL"), running(capture_of(breakable_schema, "t"), log) as wait:  # noqa: PT012 - what fails is the thread
        wait(followed(breakable_schema, log))
        breakable_schema.execute(statement, "FLUSH TABLES", "UPDATE t SET v = 'x'")
        wait(lambda: False)
    breakable_schema.execute("SET GLOBAL binlog_row_metadata = FULL")


def test_a_wrong_login_or_database_is_refused_without_the_password(schema):
    name = f"ada_{schema.name}"
    schema.execute(f"CREATE USER {name} IDENTIFIED BY '{RIGHT}'")
    for url in (
        schema.server.url(schema.name, user=name, password=WRONG),
        schema.server.url(schema.name, user=name, password=RIGHT),
        schema.server.url("nowhere"),
    ):
        with pytest.raises(LoginRefused) as refused:
            mysql.table(url, "t").declares()
        assert not {RIGHT, WRONG} & set(re.findall(r"\w+", f"{refused.value} {refused.value.__cause__!r}"))
    schema.execute(f"DROP USER {name}")


@pytest.mark.parametrize("change", ["ACCOUNT LOCK", "PASSWORD EXPIRE"])
def test_a_user_that_is_locked_or_has_an_old_password_is_refused_and_not_tried_again(schema, change):
    name = f"ada_{schema.name}"
    schema.execute(f"CREATE USER {name} IDENTIFIED BY '{RIGHT}'", f"ALTER USER {name} {change}")
    with pytest.raises(LoginRefused):
        MysqlAddress.parse(schema.server.url(schema.name, user=name, password=RIGHT)).open()
    schema.execute(f"DROP USER {name}")


def test_a_user_needs_few_rights_and_is_told_which(schema, log):
    name = f"eve_{schema.name}"
    schema.execute(f"CREATE USER {name} IDENTIFIED BY '{RIGHT}'", TABLE, "INSERT INTO t VALUES (1, 'one')")
    schema.execute(f"GRANT SELECT ON {schema.name}.* TO {name}")
    url = schema.server.url(schema.name, user=name, password=RIGHT)
    with pytest.raises(NotCapturable, match="GRANT REPLICATION SLAVE"):
        once(capture_of(schema, "t", url=url), log)
    schema.execute(f"GRANT REPLICATION SLAVE ON *.* TO {name}")
    with running(capture_of(schema, "t", url=url), log) as wait:
        wait(followed(schema, log))
        schema.execute("INSERT INTO t VALUES (2, 'two')")
        wait(followed(schema, log))
    schema.execute(f"DROP USER {name}")


def test_a_table_whose_changes_are_not_all_in_the_log_is_refused(schema):
    schema.execute(
        "CREATE TABLE keyless (id int)",
        "CREATE TABLE prefixed (v text, PRIMARY KEY (v(5)))",
        "CREATE VIEW seen AS SELECT * FROM keyless",
        "CREATE TABLE plain (id int PRIMARY KEY) ENGINE = Aria",
        "CREATE TABLE parent (id int PRIMARY KEY)",
        "CREATE TABLE child (id int PRIMARY KEY, p int, FOREIGN KEY (p) REFERENCES parent (id) ON DELETE CASCADE)",
        "CREATE TABLE odd (id int PRIMARY KEY, u uuid)",
    )
    for name, error, said in (
        ("keyless", NoPrimaryKey, "ADD PRIMARY KEY"),
        ("prefixed", NoPrimaryKey, "ADD PRIMARY KEY"),
        ("seen", NotCapturable, "no ordinary table"),
        ("plain", NotCapturable, "ENGINE = InnoDB"),
        ("child", NotCapturable, "DROP FOREIGN KEY"),
        ("odd", NotCapturable, "no type for uuid"),
        ("keyles", NotCapturable, "Did you mean"),
    ):
        with pytest.raises(error, match=said):
            mysql.table(schema.url, name).declares()


def test_a_value_that_has_no_equivalent_stops_the_capture_and_the_log_keeps_it(schema, log):
    schema.execute("CREATE TABLE t (id int PRIMARY KEY, d date)")
    for _ in range(2):
        with pytest.raises(ValueDoesNotFit, match='column "d"'), running(capture_of(schema, "t"), log) as wait:  # noqa: PT012 - what fails is the thread
            wait(lambda: position_known(log))
            schema.execute("SET sql_mode = ''", "INSERT IGNORE INTO t VALUES (1, '0000-00-00')")
            wait(lambda: False)


def position_known(log):
    return "t" in log.topics()


def test_a_transaction_of_many_rows_is_landed_whole(breakable_schema, log):
    """It is larger than one read of the stream, and has a value larger than a packet of the protocol."""
    schema = breakable_schema
    schema.execute("CREATE TABLE t (id int PRIMARY KEY, v longblob)", "SET GLOBAL max_allowed_packet = 67108864")
    with running(capture_of(schema, "t"), log) as wait:
        wait(lambda: "t" in log.topics())
        schema.execute("INSERT INTO t SELECT seq, repeat('x', if(seq = 7, 17000000, 300)) FROM seq_1_to_50000")
        wait(lambda: count_of(log, "t") >= 50_000)
    assert count_of(log, "t") == 50_000
    assert position_of(capture_of(schema, "t"), log).tables[f"{schema.name}.t"].done


def count_of(log, topic):
    return sum(log.topic(topic).end_offsets().values())


def test_the_program_of_the_page_runs(schema, tmp_path, monkeypatch):
    """The program in docs/mysql.md, on a real database."""
    program = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)[1]
    schema.execute(
        "CREATE TABLE customers (id int PRIMARY KEY, city text)",
        "CREATE TABLE orders (id int PRIMARY KEY, customer int, price int)",
        "INSERT INTO customers VALUES (1, 'Rome'), (2, 'Oslo')",
        "INSERT INTO orders VALUES (1, 1, 5), (2, 2, 7), (3, 1, 1)",
    )
    monkeypatch.setenv("SHOP", schema.url)
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(compile(program, str(PAGE), "exec"), names)  # noqa: S102 - our own text
    with names["app"].start(carrier="in-process") as started:
        until(lambda: shown(names["app"]) == {"Rome": 6, "Oslo": 7})
        schema.execute("UPDATE orders SET price = 2 WHERE id = 1", "DELETE FROM orders WHERE id = 2")
        until(lambda: shown(names["app"]) == {"Rome": 3})
        feed = started.status()["feeds"]["orders"]
    assert (feed["phase"], feed["state"]) == ("streaming", "running")
    assert feed["lag_bytes"] < 10_000


def until(holds):
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def shown(app):
    try:
        return {row["city"]: row["sold"] for row in app.view("cities").to_pylist()}
    except NotRunning:
        return None


@pytest.mark.parametrize(
    "url", ["postgresql://db/shop", "mysql://db", 3, "mysql://ada:lovelace@db", "mysql://ada:lovelace@db/x?y=1"]
)
def test_what_is_no_address_of_mariadb_is_refused_without_its_password(url):
    with pytest.raises(InvalidPlan) as refused:
        mysql.table(url, "t")
    assert "lovelace" not in str(refused.value)


def test_an_address_of_mariadb_shows_no_password():
    source = mysql.table("mysql://ada:lovelace@db/shop", "customers")
    assert "lovelace" not in repr(source)
    assert "lovelace" not in str(source.address)
    assert source.identity == "mysql://db:3306/shop.customers"
