"""Rows as files in a folder: whole, once each, never changed."""

from __future__ import annotations

import csv
import hashlib
import shutil
import threading
from dataclasses import replace

import pyarrow as pa
import pytest

import headrace as hr
from broker_cases import WRITER, Filled, batch
from broker_proof import kills_and_restarts
from headrace.base.errors import InvalidArgument, InvalidPlan, InvalidTime
from headrace.base.outside import SinkBehind
from headrace.base.time import ManualClock
from headrace.connect import files
from headrace.connect.files.places import _NO_LINKS, OURS
from headrace.connect.files.rolled import RollingWriter
from headrace.connect.store import StoreDiffers
from headrace.testing import Driver
from headrace.testing.connectors import COLUMNS
from rolling_cases import RollingCases, left_aside, of_rows

TAG = hashlib.sha256(WRITER.encode()).hexdigest()[:12]


class InFolder:
    """A folder."""

    def __init__(self, path):
        self.path = path

    def sink(self, **options):
        return files.rolling(self.path, **options)

    def read(self):
        return {each.name: each.read_bytes() for each in self.path.glob("*") if each.is_file()}

    def take(self):
        for name in self.read():
            (self.path / name).unlink()

    def litter(self, writer):
        assert writer == WRITER
        (self.path / left_aside(f"{OURS}/{TAG}")).write_text("half")

    def hidden(self):
        return len([each for each in (self.path / OURS).rglob("*") if each.is_file()])


class TestAFolder(RollingCases):
    """In a folder."""

    @pytest.fixture
    def make(self, tmp_path):
        numbers = iter(range(100))

        def make():
            outside = InFolder(tmp_path / f"out{next(numbers)}")
            outside.sink().prepare(clock=None)
            return outside

        return make

    @pytest.fixture
    def outside(self, make):
        return make()


def test_a_file_system_without_links_is_written_to_by_renaming(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(min(_NO_LINKS), "no links here")

    monkeypatch.setattr("os.link", refuse)
    outside = InFolder(tmp_path)
    TestAFolder().test_a_crash_at_each_step_leaves_each_row_once(outside, "after_file")


def test_what_is_impossible_is_refused_where_it_is_said(tmp_path):
    with pytest.raises(InvalidArgument, match="format"):
        files.rolling(tmp_path, format="xml")
    with pytest.raises(InvalidArgument, match="max_bytes"):
        files.rolling(tmp_path, max_bytes=0)
    with pytest.raises(InvalidTime):
        files.rolling(tmp_path, max_age="soon")
    with pytest.raises(InvalidArgument, match="max_age"):
        files.rolling(tmp_path, max_age="0 seconds")
    nested = COLUMNS.append(pa.field("many", pa.list_(pa.int32())))
    with pytest.raises(InvalidPlan, match="many"):
        files.rolling(tmp_path, format="csv").for_step(schema=nested, key=None, is_table=False, sealed=frozenset())
    with pytest.raises(InvalidPlan, match="key"):
        files.rolling(tmp_path).for_step(schema=COLUMNS, key=None, is_table=True, sealed=frozenset())


class Inbox:
    """A folder into which files are moved."""

    exactly_once = True

    def __init__(self, path):
        self.path, self.number = path, 0
        path.mkdir()

    def feed(self):
        return files.folder(self.path, "*.jsonl")

    def add(self, lines, ids):
        del ids
        aside = self.path / ".new"
        aside.write_bytes(b"\n".join(lines) + b"\n")
        aside.rename(self.path / f"{self.number:09d}.jsonl")
        self.number += 1


@pytest.mark.prove
def test_100_000_lines_of_files_with_ten_kills(tmp_path):
    kills_and_restarts(Inbox(tmp_path / "inbox"), None, tmp_path, messages=100_000, kills=10, restarts=0)


def test_what_rolls_out_is_what_a_folder_takes_in(tmp_path):
    """Each row of an app that crashes is there once for a feed."""
    first = hr.App("first", storage=tmp_path / "first")
    orders = first.stream("orders", "id int, price int")
    orders.where("price > 100").named("high").to(files.rolling(tmp_path / "between", max_bytes=1))
    filled = Filled(tmp_path / "log", pa.schema([("id", pa.int32()), ("price", pa.int32())]))
    with Driver(first) as one:
        for at in range(3):
            one.send("orders", {"id": 2 * at, "price": 50}, {"id": 2 * at + 1, "price": 150})
            if at == 1:
                one.crash(at="after_sink")
                one.restart()
            one.run()
    with filled.by(files.folder(tmp_path / "between", follow=False)) as run:
        run.has([1, 3, 5])
    assert sorted(filled.ids()) == [1, 3, 5]


def test_an_app_whose_hidden_folder_is_gone_refuses_to_go_on(tmp_path):
    app = hr.App("first", storage=tmp_path / "first")
    app.stream("orders", "id int").to(files.rolling(tmp_path / "out"))
    with Driver(app) as driver:
        driver.send("orders", {"id": 1})
        driver.run()
        shutil.rmtree(tmp_path / "out" / OURS)
        with pytest.raises(SinkBehind):
            driver.restart()


def test_rows_that_somebody_deleted_before_they_were_in_a_file_are_missed(tmp_path):
    outside = InFolder(tmp_path)
    writer = of_rows(outside.sink()).open(writer=WRITER, clock=ManualClock())
    writer.publish(0, iter([batch([0])]))
    writer.publish(1, iter([batch([1])]))
    (tmp_path / OURS / TAG / "part-000000000001").unlink()
    writer.sink = replace(writer.sink, max_bytes=1)
    with pytest.raises(StoreDiffers, match="lost 1 epochs that were in no file yet, the first is 1"):
        writer.publish(2, iter([batch([2])]))
    assert outside.read() == {}
    writer.close()


def test_the_last_epoch_is_right_while_a_file_ends(tmp_path):
    """Between a look at the file that ended last and one at the parts, another thread ends the file."""

    class Interrupted(RollingWriter):
        """Its file ends just when somebody has looked which one ended last."""

        interrupting = None

        @property
        def _ended(self):
            found, interrupting = self.found, self.interrupting
            if interrupting is not None:
                self.interrupting = None
                interrupting.start()
                interrupting.join(0.2)  # it waits for the lock, where the look has it
            return found

        @_ended.setter
        def _ended(self, found):
            self.found = found

    clock = ManualClock()
    writer = Interrupted(of_rows(InFolder(tmp_path).sink(max_age="1 hour")), WRITER, clock)
    writer.publish(0, iter([batch([0])]))
    clock.advance(3600)
    writer.interrupting = ending = threading.Thread(target=writer.end_old)
    assert writer.last_epoch() == 0
    ending.join()
    assert writer.last_epoch() == 0
    writer.close()


def test_a_column_whose_name_has_line_breaks_is_in_one_header(tmp_path):
    app = hr.App("shop")
    app.stream("items", 'id int, `a\n"b"\n` string').to(files.rolling(tmp_path / "out", format="csv"))
    with Driver(app) as driver:
        for number in range(3):
            driver.send("items", {"id": number, 'a\n"b"\n': "x\ny"})
            driver.run()
    (file,) = (each for each in (tmp_path / "out").iterdir() if each.is_file())
    with file.open(newline="") as lines:
        assert [*csv.reader(lines)] == [["id", 'a\n"b"\n'], *([str(number), "x\ny"] for number in range(3))]
