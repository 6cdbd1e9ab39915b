"""Contract kits for connectors: what every source, sink and feed must do, whatever is behind it.

Each takes `make`, which returns a fresh outside to test against, as one of the three protocols here. A kit raises
`AssertionError` with what was expected. Our own connectors pass them; yours can: see docs/CONNECTORS.md.
"""

from __future__ import annotations

import pickle
import tempfile
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Unpack

import pyarrow as pa
import pyarrow.compute as pc

from headrace.base.outside import OffsetsLost
from headrace.base.time import ManualClock
from headrace.connect.embedded import EmbeddedTopics
from headrace.connect.source import OffsetRange
from headrace.connect.topics import TopicSpec
from headrace.log import Log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from headrace.connect.feed import DeadRecord, Feed, Landing, Progress
    from headrace.connect.sink import Sink, SinkWriter
    from headrace.connect.source import Source, SourceReader
    from headrace.connect.topics import TopicStore
    from headrace.log.rows import Rows

COLUMNS = pa.schema([("id", pa.int32()), ("text", pa.string())])
"""The columns of the rows that the kits write."""


# ---- sources -----------------------------------------------------------------------------------------------


class SourceOutside(Protocol):
    """What a source reads, in a test."""

    source: Source
    columns: Sequence[str]
    """Columns of the source to read; the first one has another value in each record."""

    def add(self, count: int) -> None:
        """Store so many more records, in any partition."""
        ...


def check_source(make: Callable[[], SourceOutside]) -> None:
    """Check a source: the same range gives the same rows, in any process, whatever was added meanwhile.

    If what `make` returns has a method `expire()`, which removes the first records of a partition, the kit checks that
    reading them says so.

    Raises:
        AssertionError: the source does something else; the message says what.

    """
    outside, clock = make(), ManualClock()
    source: Source = pickle.loads(pickle.dumps(outside.source))  # noqa: S301 -- what was just pickled
    assert source.identity, "a source has an identity"
    assert source.identity == outside.source.identity, "a source keeps its identity on its way to a task"
    outside.source.prepare(clock=clock)
    outside.source.prepare(clock=clock)
    outside.add(7)
    reader, other = outside.source.open(clock=clock), source.open(clock=clock)
    first = _ranges(reader)
    rows = _read_all(reader, first, outside.columns)
    assert rows.num_rows == 7, f"7 records were added, {rows.num_rows} were read"
    assert _read_all(other, first, outside.columns).equals(rows), "another reader reads the same"
    _check_parts(reader, first, rows, outside.columns)
    _check_times(reader, first)
    _check_arrival(outside.source, reader, first)
    marks = {each: reader.mark(each.partition, each.end) for each in first}
    outside.add(5)
    assert _read_all(reader, first, outside.columns).equals(rows), "a range gives the same rows after more were added"
    more = _read_all(reader, _ranges(reader, after=first), outside.columns)
    assert more.num_rows == 5, f"5 more records were added, {more.num_rows} were read behind the first"
    name = outside.columns[0]
    for each, mark in marks.items():
        assert other.mark(each.partition, each.end) == mark, f"a record keeps its mark after more were added: {each}"
    repeated = set(rows.column(name).to_pylist()) & set(more.column(name).to_pylist())
    assert not repeated, f"records are in one range alone; in two are {repeated}"
    _check_alignment(reader)
    ends = {each.partition: each.end for each in _ranges(reader)}
    reader.committed(ends)
    reader.committed(ends)
    reader.close()
    other.close()
    again = source.open(clock=clock)
    assert _read_all(again, first, outside.columns).equals(rows), "a new reader reads what a closed one read"
    if hasattr(outside, "expire"):
        _check_loss(again, outside)
    again.close()


def _ranges(reader: SourceReader, *, after: Sequence[OffsetRange] = ()) -> list[OffsetRange]:
    bounds, ends = reader.bounds(), {each.partition: each.end for each in after}
    assert set(bounds.earliest) == set(bounds.end), "bounds name the same partitions"
    starts = {partition: max(start, ends.get(partition, start)) for partition, start in bounds.earliest.items()}
    return [
        OffsetRange(source="s", partition=partition, start=start, end=bounds.end[partition])
        for partition, start in sorted(starts.items())
        if bounds.end[partition] > start
    ]


def _read_all(reader: SourceReader, ranges: Sequence[OffsetRange], columns: Sequence[str]) -> pa.Table:
    batches = [batch for each in ranges for batch in reader.read(each, columns)]
    assert batches, "records are read as batches"
    assert all(batch.schema.names == list(columns) for batch in batches), "a batch has the columns asked for, in order"
    return pa.Table.from_batches(batches).combine_chunks()


def _check_parts(reader: SourceReader, ranges: Sequence[OffsetRange], rows: pa.Table, columns: Sequence[str]) -> None:
    """Parts of ranges, read one by one, are the whole; offsets ascend and are inside."""
    parts = [part for each in ranges for part in each.split(each.rows)]
    batches = [batch for part in parts for batch in reader.read(part, columns)]
    assert pa.Table.from_batches(batches).combine_chunks().equals(rows), "ranges of one offset make the whole"
    for each in ranges:
        offsets = [o for batch in reader.read(each, ["_offset"]) for o in batch.column(0).to_pylist()]
        assert offsets == sorted(set(offsets)), "offsets ascend"
        assert all(each.start <= offset < each.end for offset in offsets), "offsets are inside the range"
        nothing = OffsetRange(source="s", partition=each.partition, start=each.end, end=each.end)
        assert not sum(batch.num_rows for batch in reader.read(nothing, columns)), "an empty range has no rows"


def _check_times(reader: SourceReader, ranges: Sequence[OffsetRange]) -> None:
    for each in ranges:
        known = reader.max_event_time(each)
        if known is not None:
            times = pa.chunked_array([batch.column(0) for batch in reader.read(each, ["_time"])])
            greatest = pc.max(times.cast(pa.timestamp("us", "UTC")).cast(pa.int64())).as_py()
            assert known == greatest, f"the greatest event time is {greatest}, not {known}"


def _check_arrival(source: Source, reader: SourceReader, ranges: Sequence[OffsetRange]) -> None:
    """Check that a source which dates its records never goes back within a partition, and finds the same dates."""
    for each in ranges if source.dates_records else ():
        stored = _read_all(reader, [each], ["_appended"]).column(0).cast(pa.int64()).to_pylist()
        assert stored == sorted(stored), f"in a partition _appended does not descend: {each}"
        if stored:
            assert reader.append_time(each) == stored[0], f"append_time is that of the first record: {each}"


def _check_alignment(reader: SourceReader) -> None:
    ranges, bounds = _ranges(reader), {"s": reader.bounds()}
    aligned = reader.align(ranges, bounds, {"s": reader})
    assert [(each.partition, each.start) for each in aligned] == [(each.partition, each.start) for each in ranges]
    for each in aligned:
        assert each.start <= each.end <= bounds["s"].end[each.partition], "ends stay within the bounds"


def _check_loss(reader: SourceReader, outside: Any) -> None:
    before = reader.bounds().earliest
    outside.expire()
    after = reader.bounds()
    moved = [partition for partition, start in after.earliest.items() if start > before.get(partition, start)]
    assert moved, "what was removed is not within the bounds"
    for partition in moved:
        gone = OffsetRange(source="s", partition=partition, start=before[partition], end=after.end[partition])
        try:
            list(reader.read(gone, outside.columns))
        except OffsetsLost as error:
            assert error.earliest == after.earliest[partition], "it says where reading can begin"
        else:
            raise AssertionError("reading what is gone raises OffsetsLost")


# ---- sinks -------------------------------------------------------------------------------------------------


class SinkOutside(Protocol):
    """What a sink writes to, in a test. The sink takes the columns `COLUMNS`; `id` is the key where it wants one."""

    sink: Sink

    def read(self) -> list[dict[str, Any]]:
        """Return what a reader outside sees: of a delta or a changelog the current rows, else all rows."""
        ...


def check_sink(make: Callable[[], SinkOutside]) -> None:
    """Check a sink: a repeated epoch, a crash in the middle and another writer leave what was written once.

    A sink that says "at_least_once" may show rows twice, but no fewer.

    Raises:
        AssertionError: the sink does something else; the message says what.

    """
    outside, clock = make(), ManualClock()
    outside.sink.prepare(clock=clock)
    outside.sink.prepare(clock=clock)
    writer = outside.sink.open(writer="app/1/sink", clock=clock)
    exact = outside.sink.guarantee == "exactly_once"
    form = outside.sink.form
    assert writer.last_epoch() in (None, -1), "a new sink holds no epoch"
    _publish(writer, 0, form, [1, 2])
    _check_seen(outside, [1, 2], exact=exact, what="an epoch is visible when publish returns")
    assert writer.last_epoch() in (None, 0), "the sink says which epoch it holds"
    if exact:
        _publish(writer, 0, form, [1, 2])
        _check_seen(outside, [1, 2], exact=True, what="the same epoch again changes nothing")
    writer.close()
    writer = outside.sink.open(writer="app/1/sink", clock=clock)
    assert writer.last_epoch() in (None, 0), "another writer sees which epoch the sink holds"
    try:
        writer.publish(1, _breaking(form, [3, 4]))
    except _Crash:
        pass
    else:
        raise AssertionError("a failure of the rows is not swallowed")
    writer.close()
    writer = outside.sink.open(writer="app/1/sink", clock=clock)
    if writer.last_epoch() != 1:
        _publish(writer, 1, form, [3, 4])
    _check_seen(outside, [1, 2, 3, 4], exact=exact, what="an epoch that failed in the middle is there once")
    _publish(writer, 2, form, [5])
    writer.close()
    _check_seen(outside, [1, 2, 3, 4, 5], exact=exact, what="epochs add up")


class _Crash(Exception):
    pass


def _publish(writer: SinkWriter, epoch: int, form: str, ids: list[int]) -> None:
    writer.publish(epoch, iter(_batches(form, ids)))


def _batches(form: str, ids: list[int]) -> list[pa.RecordBatch]:
    more = {
        "rows": {},
        "changelog": {"_deleted": pa.array([False] * len(ids))},
        "delta": {"_weight": pa.array([1] * len(ids), pa.int32())},
    }[form]
    times = {"_time": pa.array([1_000_000 * each for each in ids], pa.int64())}
    columns = {"id": pa.array(ids, pa.int32()), "text": pa.array([f"t{each}" for each in ids])}
    order = {"rows": times, "changelog": times | more, "delta": more | times}[form]
    whole = pa.record_batch(columns | order)
    return [whole.slice(at, 1) for at in range(whole.num_rows)]


def _breaking(form: str, ids: list[int]) -> Iterator[pa.RecordBatch]:
    yield _batches(form, ids)[0]
    raise _Crash


def _check_seen(outside: SinkOutside, ids: list[int], *, exact: bool, what: str) -> None:
    seen = Counter((row["id"], row["text"]) for row in outside.read())
    wanted = Counter((each, f"t{each}") for each in ids)
    fits = seen == wanted if exact else set(seen) == set(wanted)
    assert fits, f"{what}: expected {sorted(wanted.elements())}, there is {sorted(seen.elements())}"


# ---- feeds -------------------------------------------------------------------------------------------------


class FeedOutside(Protocol):
    """What a feed reads, in a test. Its records have the columns `COLUMNS`."""

    feed: Feed
    exactly_once: bool
    """Whether no record is landed twice, whatever crashes."""

    def add(self, ids: Sequence[int]) -> None:
        """Let records with these ids be there to be landed; `text` is `t<id>`."""
        ...


def check_feed(make: Callable[[], FeedOutside], *, seconds: float = 20.0, topics: TopicStore | None = None) -> None:
    """Check a feed: everything is landed, across stops and crashes; it waits while there is no room.

    Args:
        make: returns a fresh outside.
        seconds: how long the feed may take to land some records.
        topics: where it lands them, in the topic "landed" with the columns `COLUMNS` and the key `id`, which must be
            new; None: an embedded log.

    Raises:
        AssertionError: the feed does something else; the message says what.

    """
    with tempfile.TemporaryDirectory(prefix="headrace-") as folder, Log(Path(folder), fsync=False) as log:
        embedded = EmbeddedTopics(log, partitions=2, fault=lambda point: None)  # noqa: ARG005 -- nothing happens there
        _check_feed(make(), embedded if topics is None else topics, seconds)


def _check_feed(outside: FeedOutside, topics: TopicStore, seconds: float) -> None:
    feed: Feed = pickle.loads(pickle.dumps(outside.feed))  # noqa: S301 -- what was just pickled
    assert feed.identity == outside.feed.identity, "a feed has an identity, and keeps it"
    spec = TopicSpec(name="landed", schema=COLUMNS, key=("id",))

    def landing(limit: int = 1 << 60) -> Landing:
        return topics.landing(spec, feed="feed", limit=limit, read=lambda: 0)

    def landed() -> Counter[int]:
        topic = topics.opened(spec)
        parts = [topic.batches(part, 0, end, columns=["id"]) for part, end in topic.end_offsets().items()]
        return Counter(each for part in parts for batch in part for each in batch.column("id").to_pylist())

    outside.add(range(5))
    _run(feed, landing(), lambda: len(landed()) >= 5, seconds)
    outside.add(range(5, 9))
    _run(feed, _Crashing(landing()), lambda: False, seconds)
    _run(feed, landing(), lambda: len(landed()) >= 9, seconds)
    counts = landed()
    assert set(counts) == set(range(9)), f"landed were {sorted(counts)} of 0 to 8"
    if outside.exactly_once:
        assert set(counts.values()) == {1}, f"landed more than once: {[i for i, n in counts.items() if n > 1]}"
    outside.add([9])
    _run(feed, landing(limit=1), lambda: False, min(seconds, 1.0))
    assert 9 not in landed(), "a feed does not read on while there is no room"
    _run(feed, landing(), lambda: 9 in landed(), seconds)
    assert 9 in landed(), "a feed reads on when there is room again"


class _Crashing:
    """A landing of a process that dies after the first append, before the feed hears that it is durable."""

    def __init__(self, landing: Landing) -> None:
        self._landing = landing

    @property
    def schema(self) -> pa.Schema:
        return self._landing.schema

    def position(self) -> bytes | None:
        return self._landing.position()

    def has_room(self) -> bool:
        return self._landing.has_room()

    def append(self, rows: Rows, *, position: bytes | None = None, dead: Sequence[DeadRecord] = ()) -> None:
        self._landing.append(rows, position=position, dead=dead)
        raise _Crash

    def report(self, **progress: Unpack[Progress]) -> None:
        self._landing.report(**progress)

    def close(self) -> None:
        self._landing.close()


_STOPS_SECONDS = 30.0
"""How long a feed may take to return, on a machine that is busy with other things."""


def _run(feed: Feed, landing: Landing, enough: Callable[[], bool], seconds: float) -> None:
    """Run a feed until there is enough, it ends, it dies, or the time is over."""
    stop, done = threading.Event(), threading.Event()
    failures: list[BaseException] = []

    def run() -> None:
        try:
            feed.run(landing, stop)
        except _Crash:
            pass
        except BaseException as error:  # noqa: BLE001 -- raised below, in the thread that checks
            failures.append(error)
        finally:
            done.set()

    thread = threading.Thread(target=run, name="headrace-check-feed")
    thread.start()
    waited = 0.0
    while not done.wait(0.02) and not enough() and waited < seconds:
        waited += 0.02
    stop.set()
    thread.join(_STOPS_SECONDS)
    landing.close()
    assert not thread.is_alive(), "a feed returns soon after it was told to stop"
    if failures:
        raise failures[0]
