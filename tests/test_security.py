"""The threats of docs/SECURITY.md, a test for each line of its table."""

from __future__ import annotations

import ast
import os
import stat
import tempfile
from pathlib import Path

import pytest

import headrace as hr
from headrace.base import temporary
from headrace.base.errors import HeadraceError
from headrace.kernels.duck import Duck
from headrace.testing import Driver

SOURCES = sorted(Path(hr.__file__).parent.rglob("*.py"))
OUTSIDE = ["../up", "..", ".", "a/b", "/etc/passwd", "a\0b", "a\\b", "", "~", "-rf", "a\nb", "\uff41", "e\u0301"]


# ---- names ----


@pytest.mark.parametrize("name", OUTSIDE)
def test_no_name_leaves_its_folder(tmp_path, name):
    """App, topic, step, view, function: what becomes a file's or a folder's name, or a name in SQL."""
    app = hr.App("app", storage=tmp_path / "s")
    rows = app.stream("t", "id int")
    with hr.Log(tmp_path / "log") as log:
        for refused in (
            lambda: log.create_topic(name, "id int"),
            lambda: log.topic(name),
            lambda: log.delete_topic(name),
            lambda: app.stream(name, "id int"),
            lambda: rows.to_topic(name),
            lambda: rows.to_view(name),
            lambda: rows.where("id > 0").named(name),
            lambda: hr.App(name, storage=tmp_path / "s"),
            lambda: app.function(name, len, returns="int"),
        ):
            with pytest.raises(HeadraceError):
                refused()
    assert {entry.name for entry in tmp_path.iterdir()} <= {"s", "log"}


# ---- SQL ----

FILES_IN_SQL = [
    "read_text('/etc/passwd')",
    "getenv('HOME')",
    "(select 1)",
    "1; drop table x",
    "current_setting('memory_limit')",
    "query('select 1')",
    "x from read_csv('/etc/passwd')",
    "glob('*')",
    "install_extension('httpfs')",
    "1 /* ",
    "id' or '1'='1",
]
STATEMENTS = [
    "select * from read_csv('/etc/passwd')",
    "select * from '/etc/passwd'",
    "attach '/etc/passwd' as x",
    "copy t to '/etc/passwd'",
    "select * from t; drop table t",
    "pragma database_list",
    "select * from duckdb_settings()",
    "install httpfs",
    "select read_text('/etc/passwd') from t",
    "select * from information_schema.tables",
]


@pytest.mark.parametrize("text", FILES_IN_SQL)
def test_an_expression_is_parsed_and_cannot_name_what_is_not_in_the_table_of_functions(text):
    rows = hr.App("app").stream("t", "id int, x string")
    for verb in (rows.where, lambda text: rows.with_columns(y=text), lambda text: rows.group_by("id").agg(y=text)):
        with pytest.raises(HeadraceError):
            verb(text)


@pytest.mark.parametrize("text", STATEMENTS)
def test_app_sql_takes_one_query_over_the_tables_of_the_app(text):
    app = hr.App("app")
    app.stream("t", "id int, x string")
    with pytest.raises(HeadraceError):
        app.sql(text)


def test_a_value_never_becomes_sql(tmp_path):
    """Texts of rows and names of columns go through level 0, state, a view and a topic as they are."""
    nasty = ["'; drop table x; --", '"; drop table x; --', "\\", "%s", "{}", "$1", "?", "\u202e", "a\0b"[:1], "NULL"]
    column = "a\"b'c; drop table x --"
    app = hr.App("app", storage=tmp_path)
    rows = app.stream("t", f"id int, `{column}` string")
    table = rows.group_by(column).agg(n="count(*)", last="max(id)")
    table.to_view("v")
    table.to_topic("out")
    with Driver(app, storage=tmp_path) as driver:
        driver.send("t", *({"id": i, column: text} for i, text in enumerate(nasty)))
        driver.run()
        assert sorted(row[column] for row in driver.view("v")) == sorted(nasty)
        assert sorted(row[column] for row in driver.read("out")) == sorted(nasty)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_text('/etc/hostname')",
        "ATTACH '{folder}/other.duckdb' AS other",
        "COPY (SELECT 1) TO '{folder}/out.csv'",
        "SELECT * FROM '/etc/passwd'",
        "SET enable_external_access = true",
        "INSTALL httpfs",
    ],
)
def test_the_database_of_a_task_opens_no_file_of_others(tmp_path, sql):
    """Behind the parser: SQL that came through all the same reads nothing."""
    duck = Duck()
    with pytest.raises(Exception, match=r"Permission|Cannot|access|disabled|does not exist"):
        duck.run(sql.format(folder=tmp_path))
    duck.close()
    assert not list(tmp_path.iterdir())


# ---- code ----

LOADERS = {"eval", "exec", "compile", "loads", "load", "Unpickler"}
ALLOWED = {
    ("cli/programs.py", "exec"),  # `headrace run FILE` runs FILE: that is what it is for
    ("cli/programs.py", "compile"),
    ("testing/simulation/case.py", "exec"),  # a program that the simulation has just written itself
    ("testing/simulation/drawing.py", "exec"),  # a line of such a program
    ("base/buffer.py", "pickle.loads"),  # a file without a name, which this process alone has open
    ("engine/spark/channel.py", "pickle.loads"),  # a pair of sockets without names: a process and one that it started
    ("testing/connectors.py", "pickle.loads"),  # what the check has just pickled itself
}


def test_nothing_that_is_read_is_run_as_code():
    """No pickle, marshal, shelve, yaml, eval or exec: files and messages are data."""
    found = set()
    for path in SOURCES:
        place = path.relative_to(Path(hr.__file__).parent).as_posix()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                names = [alias.name for alias in node.names] + [getattr(node, "module", None) or ""]
                found |= {(place, name) for name in names if name in {"marshal", "shelve", "yaml", "dill", "joblib"}}
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                if called in {"eval", "exec", "compile"} or ("pickle" in called and called.split(".")[-1] in LOADERS):
                    found.add((place, called))
    assert found <= ALLOWED
    assert ("cli/programs.py", "exec") in found, "the search finds what is there"


def test_no_shell_is_started():
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                assert called not in {"os.system", "os.popen"}, path
                assert not any(keyword.arg == "shell" for keyword in node.keywords), path


# ---- files ----


def test_no_file_is_readable_beyond_the_umask(tmp_path):
    """Storage, log, views, state and staged rows: with umask 077 nobody else reads anything."""
    app = hr.App("app", storage=tmp_path / "s")
    rows = app.stream("t", "id int, k string, secret string", private={"secret": "k"}, key="id")
    rows.select("id", "k", "secret").to_topic("out")
    rows.group_by("k").agg(n="count(*)").to_view("v")
    before = os.umask(0o077)
    try:
        with Driver(app, storage=tmp_path / "s") as driver:
            driver.send("t", {"id": 1, "k": "a", "secret": "x"})
            driver.run()
    finally:
        os.umask(before)
    files = [path for path in (tmp_path / "s").rglob("*") if path.is_file()]
    assert len(files) > 10
    for path in files:
        assert not stat.S_IMODE(path.stat().st_mode) & 0o077, path


def test_keys_of_private_columns_are_of_their_owner_alone_whatever_the_umask(tmp_path):
    before = os.umask(0)
    try:
        with hr.Log(tmp_path / "log") as log:
            topic = log.create_topic("t", "id int, k string, secret string", private={"secret": "k"})
            topic.append([{"id": 1, "k": "a", "secret": "x"}])
    finally:
        os.umask(before)
    keys = [path for path in (tmp_path / "log").rglob("*") if "key" in path.name and path.is_file()]
    assert keys
    for path in keys:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


def test_the_folder_of_caches_that_somebody_else_made_is_not_used(tmp_path, monkeypatch):
    """In a shared folder of temporary files: a link, a folder that others can write to, a file."""
    monkeypatch.delenv(temporary.CACHE, raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    name = tmp_path / f"headrace-cache-{os.getuid()}"
    (tmp_path / "theirs").mkdir()
    name.symlink_to(tmp_path / "theirs")
    assert temporary.cache_root() != name
    name.unlink()
    name.mkdir()
    name.chmod(0o777)
    assert temporary.cache_root() != name
    name.rmdir()
    name.touch()
    assert temporary.cache_root() != name
    name.unlink()
    assert temporary.cache_root() == name
    assert stat.S_IMODE(name.stat().st_mode) == 0o700


# ---- secrets ----


def test_a_private_value_is_in_no_file_error_or_status(tmp_path):
    """Not in state, staged rows, views, dead letters' reasons, or the error that names a row."""
    word = "PrivateWord4711"
    app = hr.App("app", storage=tmp_path)
    rows = app.stream("t", "id int, k string, secret string", private={"secret": "k"}, key="id")
    rows.with_columns(y="10 / id").group_by("k").agg(n="count(*)", last="max_by(secret, id)", s="sum(y)").to_view("v")
    with Driver(app, storage=tmp_path) as driver:
        driver.send("t", {"id": 1, "k": "a", "secret": word})
        driver.run()
        driver.send("t", {"id": 0, "k": "b", "secret": word})
        with pytest.raises(HeadraceError) as failed:
            driver.run()
        assert word not in f"{failed.value}{failed.value.detail}{driver.status()}"
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or word.encode() not in path.read_bytes(), path
