"""A store whose disk is full gets its epoch when there is room: it is tried again, and nothing is left half done."""

from __future__ import annotations

import errno
import os
import shutil

import pytest
from crashing_sinks import WRITER, batches, for_rows

from headrace.base.outside import Unavailable
from headrace.base.time import ManualClock

CLOCK = ManualClock()
FULL = f"the client says: {os.strerror(errno.ENOSPC)} (os error 28)"


def duckdb_sink(path):
    import duckdb as library

    from headrace.connect import duckdb

    return duckdb.table(path / "shop.duckdb", "t"), library.TransactionException


def tantivy_sink(path):
    pytest.importorskip("tantivy")
    from headrace.connect import search

    return search.tantivy(path / "index"), ValueError


def delta_sink(path):
    library = pytest.importorskip("deltalake")
    from headrace.connect import delta

    return delta.table(path / "lake"), library.exceptions.DeltaError


@pytest.mark.parametrize(
    ("make", "fails"),
    [
        (duckdb_sink, "duckdb.DuckdbWriter._set_mark"),
        (tantivy_sink, "search.tantivy_index.IndexWriter._set_mark"),
        (delta_sink, "delta.lake.LakeWriter._write"),
    ],
)
def test_a_client_that_says_in_its_own_words_that_the_disk_is_full_is_called_again(tmp_path, monkeypatch, make, fails):
    sink, error = make(tmp_path)

    def full(*_arguments, **_options):
        raise error(FULL)

    sink = for_rows(sink, table=True)
    sink.prepare(clock=CLOCK)
    writer = sink.open(writer=WRITER, clock=CLOCK)
    monkeypatch.setattr(f"headrace.connect.{fails}", full)
    with pytest.raises(Unavailable, match=os.strerror(errno.ENOSPC)):
        writer.publish(0, batches([(1, "a", False)], table=True))
    monkeypatch.undo()
    writer.publish(0, batches([(1, "a", False)], table=True))
    assert sink.open(writer=WRITER, clock=CLOCK).last_epoch() == 0


def test_an_index_whose_commit_was_cut_short_takes_it_again(tmp_path):
    """What a full disk, or a kill, leaves of a commit has names that the same commit gives again."""
    pytest.importorskip("tantivy")
    from headrace.connect import search

    sink = for_rows(search.tantivy(tmp_path / "index"), table=True)
    sink.prepare(clock=CLOCK)
    writer = sink.open(writer=WRITER, clock=CLOCK)
    writer.publish(0, batches([(1, "a", False), (2, "b", False)], table=True))
    shutil.copytree(tmp_path / "index", tmp_path / "before")
    writer.publish(1, batches([(1, None, True)], table=True))
    (tmp_path / "before/.managed.json").unlink()  # the list of files is written before them
    shutil.copytree(tmp_path / "before", tmp_path / "index", dirs_exist_ok=True)
    assert len(search.query(tmp_path / "index", "a OR b")) == 2
    writer.publish(1, batches([(1, None, True)], table=True))
    assert [each["id"] for each in search.query(tmp_path / "index", "a OR b")] == [2]
