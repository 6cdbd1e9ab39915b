"""What rolling files must do, in a folder and in a bucket: subclass `RollingCases`."""

from __future__ import annotations

import pickle
import random
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from broker_cases import WRITER, batch, until
from headrace.base.errors import InvalidPlan
from headrace.base.time import ManualClock, SystemClock
from headrace.connect.files import places
from headrace.testing import check_sink
from headrace.testing.connectors import COLUMNS

POINTS = ("before_part", "after_part", "before_ended", "after_ended", "before_file", "after_file", "after_removal")


class Died(BaseException):
    """The process is gone."""


class DiesAt:
    """Fails at the n-th time that a point is reached."""

    def __init__(self, point, count=1):
        self.point, self.left = point, count

    def __call__(self, point):
        self.left -= point == self.point
        if self.left == 0 and point == self.point:
            raise Died


def of_rows(sink):
    return sink.for_step(schema=COLUMNS, key=None, is_table=False, sealed=frozenset())


class RollingCases:
    """A fixture `outside` of the subclass has `sink(**options)` and `read()`: by name what readers' files have."""

    def rows(self, outside, form="json"):
        """Return the ids in all files, in the order of the files' names."""
        ids = []
        for _, content in sorted(outside.read().items()):
            if form == "parquet":
                ids += pq.read_table(pa.BufferReader(content)).column("id").to_pylist()
            elif form == "csv":
                lines = content.decode().splitlines()
                assert lines[0] == "id,text"
                ids += [int(line.split(",")[0]) for line in lines[1:]]
            else:
                ids += [int(line.split(b":")[1].split(b",")[0]) for line in content.splitlines()]
        return ids

    def test_it_is_a_sink(self, make):
        class Outside:
            def __init__(self):
                self.outside = make()
                self.sink = of_rows(self.outside.sink(format="parquet", max_bytes=1))

            def read(self):
                found = [pq.read_table(pa.BufferReader(each)).to_pylist() for each in self.outside.read().values()]
                return [row for rows in found for row in rows]

        check_sink(Outside)

    @pytest.mark.parametrize("form", ["json", "csv", "parquet"])
    def test_a_file_ends_at_its_size_its_age_and_at_the_end(self, outside, form):
        clock = ManualClock()
        sink = of_rows(outside.sink(format=form, max_bytes=5_000, max_age="500 milliseconds"))
        writer = sink.open(writer=WRITER, clock=clock)
        for epoch in range(3):
            writer.publish(epoch, iter([batch([epoch])]))
        assert outside.read() == {}, "nothing is there before the file has ended"
        clock.advance(1)
        until(outside.read, "it has ended by its age")
        assert self.rows(outside, form) == [0, 1, 2]
        before = outside.read()
        writer.publish(3, iter([batch(list(range(3, 5000)))]))
        assert self.rows(outside, form) == list(range(5000)), "it has ended by its size"
        writer.publish(4, iter([batch([5000]), batch([5001])]))
        writer.close()
        assert self.rows(outside, form) == list(range(5002))
        assert before.items() <= outside.read().items(), "ended files are never changed"
        assert sink.open(writer=WRITER, clock=clock).last_epoch() == 4

    @pytest.mark.parametrize("point", POINTS)
    def test_a_crash_at_each_step_leaves_each_row_once(self, outside, point):
        for count in (1, 2):
            sink = of_rows(outside.sink(max_bytes=60))
            base = 10 * (count - 1)
            with pytest.raises(Died):
                self.publish(replace(sink, fault=DiesAt(point, count)), base, range(base, base + 8))
            outside.litter(WRITER)
            self.publish(sink, base, range(base, base + 10))
        assert self.rows(outside) == list(range(20))
        assert outside.hidden() == 1, "parts and what was aside are gone"

    def publish(self, sink, base, epochs):
        """Publish epochs that are not there, as an app does; a row each."""
        writer = sink.open(writer=WRITER, clock=ManualClock())
        last = writer.last_epoch()
        assert last >= base - 1
        for epoch in epochs:
            if epoch > last:
                writer.publish(epoch, iter([batch([epoch])]))
        writer.close()

    def test_of_two_writers_at_once_the_second_finds_what_the_first_decided(self, outside):
        """One that was paused goes on where it was: it changes nothing, and doubles nothing."""
        sink, clock = of_rows(outside.sink()), ManualClock()
        paused = sink.open(writer=WRITER, clock=clock)
        for epoch in range(3):
            paused.publish(epoch, iter([batch([epoch])]))
        other = sink.open(writer=WRITER, clock=clock)
        assert self.rows(outside) == [0, 1, 2], "what an earlier writer left ends"
        for epoch in (3, 4):
            other.publish(epoch, iter([batch([epoch])]))
        paused.publish(3, iter([batch([3])]))
        paused.close()
        other.publish(5, iter([batch([5])]))
        other.close()
        assert self.rows(outside) == [0, 1, 2, 3, 4, 5]

    def test_who_reads_files_may_remove_them(self, outside):
        sink = of_rows(outside.sink(max_bytes=1))
        writer = sink.open(writer=WRITER, clock=ManualClock())
        writer.publish(0, iter([batch([0])]))
        outside.take()
        writer.publish(1, iter([batch([1])]))
        writer.close()
        sink.open(writer=WRITER, clock=ManualClock()).close()
        assert self.rows(outside) == [1]

    @pytest.mark.prove
    def test_100_000_rows_with_ten_kills_are_there_once_each(self, outside, tmp_path):
        file, epochs, drawn = tmp_path / "sink.pickle", 1_000, random.Random(3)  # noqa: S311 -- a seeded schedule
        sink = of_rows(outside.sink(max_bytes=20_000, max_age="500 milliseconds"))
        file.write_bytes(pickle.dumps((sink, epochs, 100)))
        kills = 0
        while True:
            process = subprocess.Popen([sys.executable, __file__, str(file)], stdout=subprocess.PIPE)
            assert process.stdout.readline(), "it writes"
            try:
                code = process.wait(None if kills >= 10 else 0.05 + drawn.random())
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                kills += 1
            else:
                process.stdout.close()
                assert code == 0
                break
            process.stdout.close()
        assert kills == 10, "it was not faster than ten kills"
        assert self.rows(outside) == list(range(100 * epochs))
        assert outside.hidden() == 1

    def test_a_table_has_its_changes_and_private_columns_are_refused(self, outside):
        sink = outside.sink(format="parquet").for_step(schema=COLUMNS, key=("id",), is_table=True, sealed=frozenset())
        assert sink.form == "changelog"
        changes = batch([1, 2]).append_column("_deleted", pa.array([False, True]))
        writer = sink.open(writer=WRITER, clock=ManualClock())
        writer.publish(0, iter([changes]))
        writer.close()
        (content,) = outside.read().values()
        assert pq.read_table(pa.BufferReader(content)).column("_deleted").to_pylist() == [False, True]
        with pytest.raises(InvalidPlan, match="private"):
            outside.sink().for_step(schema=COLUMNS, key=None, is_table=False, sealed=frozenset({"text"}))


def main() -> None:
    """Publish the epochs that are not there yet."""
    sink, epochs, rows = pickle.loads(Path(sys.argv[1]).read_bytes())  # noqa: S301 -- the test wrote it
    writer = sink.open(writer=WRITER, clock=SystemClock())
    sys.stdout.write("writing\n")
    sys.stdout.flush()
    for epoch in range(writer.last_epoch() + 1, epochs):
        writer.publish(epoch, iter([batch(list(range(rows * epoch, rows * (epoch + 1))))]))
    writer.close()


def left_aside(writer_folder):
    """Return a name as a kill leaves it there."""
    return f"{writer_folder}/{places.ASIDE}{threading.get_ident()}"


if __name__ == "__main__":
    main()
