"""The sockets between Spark's JVM and its Python processes, and who has left when one breaks."""

import stat
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

import pytest

ending = pytest.importorskip("headrace.engine.spark.ending")
sockets = pytest.importorskip("headrace.engine.spark.sockets")
workers = pytest.importorskip("headrace.engine.spark.workers")
source = pytest.importorskip("headrace.engine.spark.source")


def test_the_folder_of_sockets_is_the_users_own():
    settings = sockets.settings()
    assert settings["spark.python.unix.domain.socket.enabled"] == "true"
    folder = Path(settings["spark.python.unix.domain.socket.dir"])
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert sockets.settings() == settings


def test_where_a_name_would_be_too_long_there_are_none(tmp_path, monkeypatch):
    deep = tmp_path / ("d" * 60)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    sockets.own_folder.cache_clear()
    try:
        assert sockets.settings() == {}
    finally:
        sockets.own_folder.cache_clear()


@pytest.mark.parametrize("kind", [EOFError, BrokenPipeError, ConnectionResetError])
def test_a_planner_knows_that_spark_has_left(kind):
    """Its runner could not read or write; no code of ours had a part in it."""
    with pytest.raises(kind) as raised:
        raise kind
    assert workers.spark_left(raised.value)


def test_an_error_of_what_is_read_is_told_to_spark():
    """A broker that closes a connection raises the same kind of error, in a call of ours."""
    reader = source.EpochReader.__new__(source.EpochReader)
    with pytest.raises(AttributeError) as missing:
        source.EpochReader.latestOffset(reader, {}, None)
    broken = ConnectionResetError().with_traceback(missing.value.__traceback__)
    assert not workers.spark_left(broken)
    assert not workers.spark_left(missing.value)
    assert not workers.spark_left(None)


DAEMON = """
import traceback
from headrace.engine.spark import ending

traceback.print_exc = ending.unless_spark_left(traceback.print_exc)

def manager(run):
    try:
        run()
    except BaseException:
        traceback.print_exc()

def flush():
    raise KIND("at the end")

def of_the_user():
    try:
        flush()
    except ConnectionError:
        traceback.print_exc()

manager(flush)
manager(of_the_user)
manager(lambda: 1 / 0)
"""


@pytest.mark.parametrize("kind", ["BrokenPipeError", "ConnectionResetError"])
def test_a_process_whose_daemon_cannot_write_to_spark_says_nothing(kind):
    """What a function of the user's prints, and any other error, is printed."""
    code = DAEMON.replace("KIND", kind)
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    ends = [line for line in ran.stderr.splitlines() if line.startswith((kind, "ZeroDivisionError"))]
    assert ends == [f"{kind}: at the end", "ZeroDivisionError: division by zero"]


def test_elsewhere_traces_are_printed_as_ever():
    before = traceback.print_exc
    ending.quietly()
    assert traceback.print_exc is before
