"""The sockets between Spark's JVM and its Python processes, and who has left when one breaks."""

import stat
import tempfile
from pathlib import Path

import pytest

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
