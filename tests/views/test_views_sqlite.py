"""A view is the sum of its deltas, applied an epoch at a time."""

import os
import shutil
import sqlite3
import subprocess
import tempfile
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.base.errors import ViewOutOfStep, ViewsFailed
from headrace.base.schema import parse
from headrace.views import sqlite, table
from headrace.views.sqlite import SqliteViews
from headrace.views.store import ViewDescription
from view_contract import *  # noqa: F403 -- tests of what every store keeps
from view_contract import COUNTS, delta, rows


def test_a_delta_larger_than_a_chunk_is_applied_whole(views, monkeypatch):
    monkeypatch.setattr(table, "CHUNK_ROWS", 7)
    views.declare("v", COUNTS, ("word",))
    words = [f"{n:03}" for n in range(100)]
    views.apply(0, {"v": delta(*((word, 1, 1) for word in reversed(words)))})
    views.apply(1, {"v": delta(*((word, 1, -1) for word in words[::2]), *((word, 2, 1) for word in words[1::2]))})
    assert rows(views.read("v")) == [(word, 2) for word in words[1::2]]


def test_declaring_a_view_again_changes_nothing(tmp_path):
    path = tmp_path / "views.db"
    with SqliteViews(path) as views:
        views.declare("v", COUNTS, ("word",))
        views.apply(0, {"v": delta(("a", 1, 1))})
    with SqliteViews(path) as views:
        views.declare("v", parse("n bigint, word string not null"), ("word",))
        assert views.describe("v") == ViewDescription(parse("n bigint, word string not null"), ("word",), 1)
        assert rows(views.read("v")) == [(1, "a")]


NAMES = ["a", "A", "a_2", "sqlite_x", "SQLITE_x", "headrace_views", "headrace_epoch", "select", "_"]


def test_names_that_sqlite_takes_or_cannot_tell_apart_are_names_like_any_other(views):
    for number, name in enumerate(NAMES):
        views.declare(name, COUNTS, ("word",))
        views.apply(number, {name: delta((name, number, 1))})
    assert views.names() == sorted(NAMES)
    assert [rows(views.read(name)) for name in NAMES] == [[(name, number)] for number, name in enumerate(NAMES)]


COLUMNS = [
    "a",
    "A",
    "a_2",
    "rowid",
    "_rowid_",
    "oid",
    'quo"ted',
    "two words",
    "a\0b",
    "a_b",
    "é",
    "É",
    "select",
    "?",
    "",
]


@pytest.mark.parametrize("key", [None, tuple(COLUMNS)])
def test_columns_may_have_any_name(views, key):
    schema = pa.schema([(name, pa.string()) for name in COLUMNS])
    views.declare("v", schema, key)
    views.apply(0, {"v": delta((*COLUMNS, 1), schema=schema)})
    assert views.read("v").to_pylist() == [{name: name for name in COLUMNS}]
    backwards = pa.schema(list(schema)[::-1])
    views.declare("v", backwards, key)
    assert views.read("v").to_pylist() == [{name: name for name in COLUMNS}]
    views.apply(1, {"v": delta((*COLUMNS[::-1], -1), schema=backwards)})
    assert views.read("v").num_rows == 0


def test_looking_makes_no_file(views):
    assert (views.names(), views.applied()) == ([], -1)
    assert not views.path.exists()


def test_a_file_that_is_none_of_ours_is_an_error_of_the_outside(tmp_path):
    path = tmp_path / "views.db"
    path.write_text("no database " * 100)
    with pytest.raises(ViewsFailed) as failed:
        SqliteViews(path).declare("v", COUNTS, None)
    assert str(failed.value).splitlines()[0] == (
        f"[VIEWS_DAMAGED] the views in {path} cannot be used: file is not a database"
    )
    with pytest.raises(ViewsFailed):
        SqliteViews(path).names()


def test_a_pipe_that_is_closed_while_a_view_is_printed_is_no_failure_of_the_views(tmp_path):
    with pytest.raises(BrokenPipeError), SqliteViews(tmp_path / "views.db").snapshot():
        raise BrokenPipeError


KEYS = pa.schema([("k", pa.int64()), ("x", pa.float64()), ("v", pa.string())])


@pytest.mark.parametrize(
    ("key", "others"),
    [
        ({"k": 1, "x": 0.5}, {"k": 1, "x": 0.25}),
        ({"k": None, "x": 0.5}, {"k": 7, "x": None}),
        ({"k": None, "x": None}, {"k": 0, "x": 0.0}),
        ({"k": 1, "x": float("nan")}, {"k": 1, "x": float("inf")}),
    ],
    ids=["values", "a null", "nulls", "not a number"],
)
def test_a_row_that_comes_back_replaces_its_own_and_no_other(tmp_path, key, others):
    """Withdrawn and inserted in one epoch is an update in place; keys that differ by one column are not mixed."""

    def changes(*rows):
        named = [{**who, "v": value, "_weight": weight} for who, value, weight in rows]
        return {"v": pa.Table.from_pylist(named, KEYS.append(pa.field("_weight", pa.int32())))}

    with SqliteViews(tmp_path / "views.db") as views:
        views.declare("v", KEYS, ("k", "x"))
        views.apply(0, changes((key, "a", 1), (others, "b", 1)))
        views.apply(1, changes((key, "a", -1), (others, "b", -1), (key, "c", 1)))
        assert [row["v"] for row in views.read("v").to_pylist()] == ["c"]
        assert views.damage() == {}
        views.apply(2, changes((key, "c", -1)))
        with pytest.raises(ViewOutOfStep):
            views.apply(3, changes((key, "c", -1), (key, "d", 1)))


@pytest.fixture
def disk(tmp_path):
    """A disk of its own, which can be mounted read-only."""
    folder = tmp_path / "disk"
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(folder)], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.parametrize("closed", [True, False])
def test_views_on_a_disk_that_is_mounted_read_only_are_read(disk, tmp_path, closed):
    """SQLite cannot begin a log there; where a process that was killed has left one, its epochs are read as well."""
    with SqliteViews(tmp_path / "views" / "views.db") as views:
        views.declare("v", COUNTS, ("word",))
        views.apply(0, {"v": delta(("a", 1, 1))})
        if closed:
            views.close()
        shutil.copytree(tmp_path / "views", disk / "views")
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    with SqliteViews(disk / "views" / "views.db") as seen:
        assert (rows(seen.read("v")), seen.applied(), seen.damage()) == ([("a", 1)], 0, {})
        assert seen.copy_to(tmp_path / "copy.db") == 0


@pytest.fixture
def another_user():
    """Become one who may read all files of the tests and write none."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    os.seteuid(65_534)
    yield
    os.seteuid(0)


@pytest.fixture
def of_root():
    """Views of root's, that others may read: not in the folder of the tests, which is its user's alone."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "views.db"
        path.parent.chmod(0o755)
        if not all(each.stat().st_mode & 0o005 == 0o005 for each in path.parents):
            pytest.skip(f"others may not look into {folder}")
        with SqliteViews(path) as views:
            views.declare("v", COUNTS, ("word",))
            views.apply(0, {"v": delta(("a", 1, 1))})
        yield path


def test_a_user_who_may_read_views_and_not_write_beside_them_reads_them(of_root, another_user):  # noqa: ARG001
    with SqliteViews(of_root) as seen:
        assert (rows(seen.read("v")), seen.applied(), seen.damage()) == ([("a", 1)], 0, {})


def read_while_root_writes(path):
    with SqliteViews(path).snapshot() as snapshot:
        assert rows(snapshot.read("v")) == [("a", 1)]
        os.seteuid(0)
        with SqliteViews(path) as views:
            views.apply(1, {"v": delta(("b", 1, 1))})
        os.seteuid(65_534)


def test_views_that_are_written_while_such_a_user_reads_them_are_an_error(of_root, another_user):  # noqa: ARG001
    """Nothing locks the writer out: what was read may be of two epochs."""
    with pytest.raises(ViewsFailed, match="written it while"):
        read_while_root_writes(of_root)


def test_views_that_another_program_has_locked_are_not_called_damaged(tmp_path, monkeypatch):
    monkeypatch.setattr(sqlite, "_WAIT_SECONDS", 0.1)
    with SqliteViews(tmp_path / "views.db") as views:
        views.declare("v", COUNTS, ("word",))
        views.close()
        with closing(sqlite3.connect(tmp_path / "views.db", isolation_level=None)) as other:
            other.execute("PRAGMA locking_mode = EXCLUSIVE")
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(ViewsFailed, match="locked"):
                views.damage()
        assert views.damage() == {}
