"""The guarantees of the log as properties: whatever is appended, cleaned, torn and killed, a plain model agrees.

1. A reader at the head sees every record, offsets ascending by one. 2. Order never changes. 3. An offset never changes,
and a read at one that is gone gives the next. 4. A reader from the start sees at least the last value of each key, and
every tombstone until `delete_retention` after the compaction that first kept it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace.base.errors import OffsetOutOfRange
from headrace.base.time import ManualClock
from headrace.log import Log
from headrace.log.segments import head as heads
from headrace.log.segments import layout as layouts

KEYS = "abcde"
HOUR = 3_600 * 1_000_000
DELETE_RETENTION, RETENTION = 2 * HOUR, 10 * HOUR
ROWS = st.lists(st.tuples(st.sampled_from(KEYS), st.booleans()), min_size=1, max_size=5)
SPOTS = st.floats(0, 1)


class Killed(BaseException):
    """Ends a process."""


class Model:
    """What must be there: records by offset as (key, deleted, time), and when tombstones may be removed."""

    def __init__(self) -> None:
        self.records: dict[int, tuple[str, bool, int]] = {}
        self.appended: dict[int, int] = {}
        self.waiting: dict[int, int] = {}
        self.start = self.end = 0

    def compacted(self, upto: int, now: int) -> tuple[dict, dict]:
        """Return the records and the remaining tombstones after a compaction of the offsets before `upto`."""
        closed = sorted(offset for offset in self.records if offset < upto)
        last = {self.records[offset][0]: offset for offset in closed}
        kept = {o: r for o, r in self.records.items() if o >= upto or last[r[0]] == o}
        for offset in closed[:-1]:
            if offset in kept and kept[offset][1] and self.waiting.get(offset, now + 1) <= now:
                del kept[offset]
        markers = [o for o in closed if o in kept and kept[o][1]]
        return kept, {o: self.waiting.get(o, now + DELETE_RETENTION) for o in markers}


class Following:
    """A reader in the middle of a range, while everything else goes on."""

    def __init__(self, topic, start, end) -> None:
        self.start, self.end = start, end
        self.seen: list[int] = []
        self.batches = topic.batches(0, start, end, columns=["k", "_offset", "_deleted"])


class LogMachine(RuleBasedStateMachine):
    """One partition of a compacted topic with retention, an archive and very small segments."""

    @initialize(size=st.sampled_from([500, 1_200, 4_000]), archive=st.booleans(), retention=st.booleans())
    def begin(self, size, archive, retention):
        self.folder = Path(tempfile.mkdtemp(prefix="headrace-machine-"))
        (self.folder / "archive").mkdir()
        self.clock, self.size = ManualClock(), size
        self.model, self.sequence, self.last = Model(), 0, None
        self.readers: list[Following] = []
        self.olds: list[heads.PartitionState] = []
        self.opened: list[Log] = []
        self.log = self.other = None
        self.open()
        self.log.create_topic(
            "t", "k string, n bigint, at timestamp", key="k", cleanup="compact", event_time="at",
            delete_retention="2 hours", retention="10 hours" if retention else None,
            archive=self.folder / "archive" if archive else None, archive_after="1 hour" if archive else None,
        )  # fmt: skip
        self.retention = retention

    def teardown(self):
        for log in getattr(self, "opened", []):
            log.close()
        if hasattr(self, "folder"):
            shutil.rmtree(self.folder)

    def open(self):
        """Open the log again, as another process would after this one died."""
        self.log, self.other = (
            Log(self.folder / "log", clock=self.clock, fsync=False, segment_bytes=self.size) for _ in range(2)
        )
        self.opened += [self.log, self.other]

    @property
    def topic(self):
        return self.log.topic("t")

    @property
    def partition(self):
        return self.folder / "log" / "topics" / "t" / "0"

    def layout(self):
        return layouts.read(self.partition)

    # ---- what happens ----

    @rule(rows=ROWS, spread=st.integers(-3, 3), numbered=st.booleans())
    def append(self, rows, spread, numbered):
        now = self.clock.now()
        at = now // 1000 + spread * 60_000
        records = [
            {"k": k, "n": self.model.end + i, "at": at + i, "_deleted": gone} for i, (k, gone) in enumerate(rows)
        ]
        who = {"producer": "p", "sequence": self.sequence} if numbered else {}
        offsets = self.topic.append(records, **who)[0]
        assert offsets == range(self.model.end, self.model.end + len(rows))
        for row, offset in zip(records, offsets, strict=True):
            self.model.records[offset] = (row["k"], row["_deleted"], row["at"] * 1000)
            self.model.appended[offset] = now
        self.model.end = offsets.stop
        if numbered:
            self.last, self.sequence = (who, offsets), self.sequence + 1
        self.retained()

    @precondition(lambda self: self.last is not None)
    @rule(through_other=st.booleans())
    def retry(self, through_other):
        """A retry appends nothing, whatever was cleaned meanwhile."""
        who, offsets = self.last
        topic = self.other.topic("t") if through_other else self.topic
        assert topic.append([{"k": "a", "n": -1, "at": 0}], **who)[0] == offsets

    @rule(seconds=st.sampled_from([1, 1_800, 3_601, 7_200, 20_000]))
    def wait(self, seconds):
        self.clock.advance(seconds)

    @rule()
    def roll(self):
        self.topic.opened.writer(0).roll()

    @rule()
    def compact(self):
        self.topic.compact()
        self.model.records, self.model.waiting = self.model.compacted(self.model.end, self.clock.now())

    @rule()
    def clean(self):
        done = self.topic.clean()
        self.retained()
        if done.bytes_before:
            self.model.records, self.model.waiting = self.model.compacted(self.layout().upto, self.clock.now())
        newest = max(self.model.appended.values(), default=0)
        if self.retention and newest < self.clock.now() - RETENTION:
            assert self.model.start == self.model.end

    @rule(step=st.integers(0, 25), everything=st.booleans())
    def die_while_cleaning(self, step, everything):
        """The log is as it was before, or as it is after."""
        version = self.layout().version
        do = self.topic.compact if everything else self.topic.clean
        with killing(step), contextlib.suppress(Killed):
            do()
        self.open()
        self.retained()
        after = self.layout()
        if after.version > version and any(entry.cleaned for entry in after.entries):
            new = self.model.compacted(after.upto, self.clock.now())
            if set(self.seen()) != set(self.model.records) or (everything and after.upto == self.model.end):
                self.model.records, self.model.waiting = new
            elif set(new[0]) == set(self.model.records):
                self.model.waiting = {**new[1], **self.model.waiting}

    @rule(torn=st.binary(max_size=200))
    def lose_power(self, torn):
        """The head falls back to any older state, or is lost; the segment has a torn end."""
        state = self.topic.opened.partition(0).state()
        self.log.close()
        self.other.close()
        if state.segment >= 0:
            with (self.partition / f"{state.segment:020d}.segment").open("ab") as file:
                file.write(b"HRF\x01" + torn)
        old = self.olds[len(torn) % len(self.olds)] if self.olds else None
        if old is None or len(torn) % 3 == 0:
            (self.partition / "head").write_bytes(torn)
        else:
            (self.partition / "head").write_bytes(heads.new_head(old._replace(boot=7)))
        self.readers, self.olds = [], []  # what is on disk now is what the next loss can fall back to at the most
        self.open()

    @rule()
    def remember_the_head(self):
        self.olds.append(self.topic.opened.partition(0).state())

    # ---- what readers see ----

    @rule(spot=SPOTS, count=st.integers(1, 30), through_other=st.booleans())
    def read(self, spot, count, through_other):
        offset = self.model.start + round(spot * (self.model.end - self.model.start))
        topic = self.other.topic("t") if through_other else self.topic
        found = topic.read(0, offset, count).to_pylist()
        expected = [o for o in sorted(self.model.records) if o >= offset][:count]
        assert [row["_offset"] for row in found] == expected
        for row in found:
            self.same(row)
            if not row["_deleted"]:
                assert row["n"] == row["_offset"]

    @rule(spots=st.tuples(SPOTS, SPOTS), through_other=st.booleans())
    def look_up_times(self, spots, through_other):
        topic = self.other.topic("t") if through_other else self.topic
        span = self.model.end - self.model.start
        low, high = sorted(self.model.start + round(spot * span) for spot in spots)
        times = [r[2] for o, r in self.model.records.items() if low <= o < high]
        assert topic.max_time(0, low, high) == max(times, default=None)
        assert topic.min_time(0, low, high) == min(times, default=None)
        time = self.clock.now() // 1000 - 3_600_000
        late = [o for o, r in sorted(self.model.records.items()) if r[2] >= time * 1000]
        assert topic.offsets_at(time) == {0: late[0] if late else self.model.end}

    @rule(spot=SPOTS)
    def start_following(self, spot):
        start = self.model.start + round(spot * (self.model.end - self.model.start))
        self.readers.append(Following(self.other.topic("t"), start, self.model.end))

    @precondition(lambda self: self.readers)
    @rule(which=st.integers(0, 9), batches=st.integers(1, 4))
    def follow(self, which, batches):
        reader = self.readers[which % len(self.readers)]
        try:
            for _ in range(batches):
                for row in next(reader.batches).to_pylist():
                    assert not reader.seen or row["_offset"] > reader.seen[-1]
                    assert reader.start <= row["_offset"] < reader.end
                    reader.seen.append(row["_offset"])
        except StopIteration:
            missed = {o for o in self.model.records if reader.start <= o < reader.end} - set(reader.seen)
            assert not missed
            self.readers.remove(reader)
        except OffsetOutOfRange:
            assert reader.start < self.model.start
            self.readers.remove(reader)

    @rule()
    def verify(self):
        found = [str(found) for found in self.topic.verify() if not found.file.endswith("head")]
        assert not found, found

    @invariant()
    def the_ends_are_known(self):
        if getattr(self, "log", None) is not None and self.log.has_topic("t"):
            for log in (self.log, self.other):
                topic = log.topic("t")
                assert (topic.start_offsets(), topic.end_offsets()) == ({0: self.model.start}, {0: self.model.end})

    # ---- inside ----

    def seen(self):
        return self.topic.read(0, self.model.start, 10**6).column("_offset").to_pylist()

    def same(self, row):
        key, deleted, time = self.model.records[row["_offset"]]
        assert (row["k"], row["_deleted"]) == (key, deleted)
        assert row["_time"].timestamp() * 1_000_000 == time

    def retained(self):
        """Apply to the model what retention deleted, which must have been due."""
        start = self.topic.start_offsets()[0]
        assert start >= self.model.start
        gone = [o for o in self.model.appended if o < start]
        assert not gone or self.retention
        for offset in gone:
            assert self.model.appended.pop(offset) < self.clock.now() - RETENTION
            self.model.records.pop(offset, None)
            self.model.waiting.pop(offset, None)
        self.model.start = start


@contextlib.contextmanager
def killing(step):
    """End the process at the given step on the disk."""
    left = [step]

    def deadly(function):
        def call(*args, **kwargs):
            if left[0] == 0:
                raise Killed
            left[0] -= 1
            return function(*args, **kwargs)

        return call

    places = [(Path, "replace"), (Path, "unlink"), (Path, "open"), (Path, "mkdir"), (heads.PartitionHead, "publish"),
              (heads.PartitionHead, "set_busy"), (os, "open")]  # fmt: skip
    kept = [(owner, name, getattr(owner, name)) for owner, name in places]
    for owner, name, function in kept:
        setattr(owner, name, deadly(function))
    try:
        yield
    finally:
        for owner, name, function in kept:
            setattr(owner, name, function)


TestLog = LogMachine.TestCase
TestLog.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)
