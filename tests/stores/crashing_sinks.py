"""A store is written with a crash at each step in turn, and must be as if there had been none."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from headrace.base.time import ManualClock
from headrace.testing import Crash
from headrace.testing.connectors import COLUMNS

WRITER = "app/1/sink"


class Kept:
    """What `check_sink` tests: a sink, and what a reader outside sees."""

    def __init__(self, sink, read):
        self.sink, self.read = sink, read


class CrashAt:
    """Dies at the call with a number."""

    def __init__(self, number):
        self.left = number
        self.points = []

    def __call__(self, point):
        self.points.append(point)
        self.left -= 1
        if self.left == 0:
            raise Crash(point)


def for_rows(sink, *, table):
    """Return a sink for the rows of the contract kit."""
    return sink.for_step(schema=COLUMNS, key=("id",) if table else None, is_table=table, sealed=frozenset())


def epochs(*, table):
    """Return epochs: of a table with updates, deletions and rows that come back."""
    if not table:
        return {n: [(10 * n + i, f"t{n}", False) for i in range(4)] for n in (0, 1, 2, 4, 5, 6, 7)}
    return {
        0: [(1, "a", False), (2, "b", False), (None, "nobody", False)],
        1: [(1, "A", False), (3, "c", False)],
        2: [(2, None, True), (4, None, False)],
        5: [(2, "again", False), (None, None, True), (1, None, True)],
        6: [(6, "ä%:\r\n", False)],
        7: [(6, "", False), (7, "g", False)],
    }


def expected(*, table, upto=99):
    """Return the rows that the epochs leave."""
    rows = [row for epoch, each in epochs(table=table).items() for row in each if epoch <= upto]
    if not table:
        return sorted(((i, text) for i, text, _ in rows), key=str)
    last = {i: (text, deleted) for i, text, deleted in rows}
    return sorted(((i, text) for i, (text, deleted) in last.items() if not deleted), key=str)


def batches(rows, *, table):
    ids, texts, deleted = zip(*rows, strict=True)
    columns = {
        "id": pa.array(ids, pa.int32()),
        "text": pa.array(texts, pa.string()),
        "_time": pa.array([1_000] * len(ids), pa.int64()),
    }
    whole = pa.record_batch(columns | ({"_deleted": pa.array(deleted)} if table else {}))
    return iter([whole.slice(at, 2) for at in range(0, whole.num_rows, 2)])


def write(sink, *, table, clock=None, upto=99):
    """Write the epochs that the store does not have, as the engine does."""
    clock = clock or ManualClock()
    sink.prepare(clock=clock)
    writer = sink.open(writer=WRITER, clock=clock)
    try:
        last = writer.last_epoch()
        for epoch, rows in epochs(table=table).items():
            if epoch <= upto and (last is None or epoch > last):
                writer.publish(epoch, batches(rows, table=table))
    finally:
        writer.close()


def seen(read):
    return sorted(((row["id"], row["text"]) for row in read()), key=str)


def check_crashes(make, *, table, upto=4):
    """Crash at the first step, at the second, … until there is none left; `make()` gives a fresh (sink, read)."""
    number, passed = 0, set()
    while True:
        number += 1
        sink, read = make()
        sink = for_rows(sink, table=table)
        fault = CrashAt(number)
        try:
            write(replace(sink, fault=fault), table=table, upto=upto)
        except Crash:
            pass
        else:
            assert seen(read) == expected(table=table, upto=upto)
            break
        passed.add(fault.points[-1])
        for _ in range(2):  # the second time everything is there
            write(sink, table=table, upto=upto)
        assert seen(read) == expected(table=table, upto=upto), f"after a crash at {fault.points[-1]}, call {number}"
    assert len(passed) >= 3, f"there are points to crash at: {passed}"
    return passed


def check_each_crash(make, *, table):
    """Crash at each step of each epoch, one after the other in one store; `make()` gives a fresh (sink, read)."""
    sink, read = make()
    sink, clock, passed = for_rows(sink, table=table), ManualClock(), set()
    sink.prepare(clock=clock)
    for epoch, rows in epochs(table=table).items():
        for number in range(1, 99):
            fault = CrashAt(number)
            writer = replace(sink, fault=fault).open(writer=WRITER, clock=clock)
            last = writer.last_epoch()
            try:
                writer.publish(epoch, batches(rows, table=table))
            except Crash:
                passed.add(fault.points[-1])
            finally:
                writer.close()
            if last == epoch:
                break
        assert seen(read) == expected(table=table, upto=epoch), f"epoch {epoch}, after {number} crashes"
    assert len(passed) >= 3, f"there are points to crash at: {passed}"
    return passed


def check_zombie(make, fenced, *, table):
    """Two writers of one name: the older one changes nothing any more, whatever it still publishes.

    With `fenced=None` it is not told; then it may publish an epoch that is committed, and the newer one finds it there.
    """
    sink, read = make()
    sink, clock = for_rows(sink, table=table), ManualClock()
    sink.prepare(clock=clock)
    whole = epochs(table=table)
    old = sink.open(writer=WRITER, clock=clock)
    old.publish(0, batches(whole[0], table=table))
    new = sink.open(writer=WRITER, clock=clock)
    assert new.last_epoch() == 0
    new.publish(1, batches(whole[1], table=table))
    told = fenced or ()
    for epoch in (1, 2):
        try:
            old.publish(epoch, batches(whole[epoch], table=table))
        except told:
            pass
        else:
            assert fenced is None, "the older writer hears that it is fenced"
    for epoch in list(whole)[2:]:
        new.publish(epoch, batches(whole[epoch], table=table))
    old.close()
    new.close()
    assert seen(read) == expected(table=table)
