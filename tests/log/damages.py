"""A log with every kind of file, and what a disk may do to one of them."""

from __future__ import annotations

from headrace.base.time import ManualClock
from headrace.log import Log

TOPICS = ("plain", "compacted", "sealed")
NEW = [{"id": 1000, "text": "new"}]


def opened(path):
    return Log(path, fsync=False, clock=ManualClock(), segment_bytes=1200)


def build(path):
    """Create segments, indexes, snapshots of producers, a layout, an archive of none, keys, descriptions and heads."""
    with opened(path) as log:
        plain, first = log.create_topic("plain", "id bigint, text string"), 0
        for sequence, count in enumerate((4, 1, 9, 3, 7, 2, 8, 5)):
            rows = [{"id": i, "text": f"text {i} " * (i % 7)} for i in range(first, first + count)]
            plain.append(rows, producer="p", sequence=sequence)
            first += count
        compacted = log.create_topic("compacted", "id bigint, text string", key="id", cleanup="compact")
        for sequence in range(6):
            rows = [{"id": i % 5, "text": f"{sequence} {i}" * 8} for i in range(12)]
            compacted.append(rows, producer="p", sequence=sequence)
        compacted.compact()
        compacted.append([{"id": 77, "text": "later"}], producer="p", sequence=9)
        sealed = log.create_topic("sealed", "id bigint, text string", key="id", private={"text": "id"})
        sealed.append([{"id": i, "text": f"secret {i}"} for i in range(5)], producer="p", sequence=0)


def served(path, name):
    """Return the records of a topic by offset, and its end."""
    with opened(path) as log:
        topic = log.topic(name)
        start, end = topic.start_offsets()[0], topic.end_offsets()[0]
        found = {}
        for batch in topic.batches(0, start, end, columns=["_offset", "id", "text"]):
            found |= {row["_offset"]: (row["id"], row["text"]) for row in batch.to_pylist()}
        topic.max_time(0, start, end)
        return found, end


def damages(raw, dice, flips):
    """Yield (what, content) for damages of a file; None: it is deleted."""
    for _ in range(flips):
        at, bit = dice.randrange(len(raw)), 1 << dice.randrange(8)
        yield f"bit {bit} of byte {at}", raw[:at] + bytes([raw[at] ^ bit]) + raw[at + 1 :]
    for size in sorted({0, 1, len(raw) // 2, len(raw) - 1, dice.randrange(len(raw))}):
        yield f"cut at {size}", raw[:size]
    yield "deleted", None
    yield "invalid UTF-8", b"\xff\xfe" + raw[2:]
    yield "nested JSON", b"[" * 100_000
    yield "an empty object", b"{}"


def calls(name):
    """Return what is done with a damaged log, in order: each either does it or raises an error of ours."""

    def topic(log):
        return log.topic(name)

    return {
        "verify": lambda log: topic(log).verify(),
        "verify all": lambda log: list(log.verify()),
        "list": lambda log: [(each, log.topic(each).end_offsets(), log.topic(each).sizes()) for each in log.topics()],
        "sequence": lambda log: topic(log).last_sequence("p"),
        "append": lambda log: topic(log).append(NEW),
        "numbered": lambda log: topic(log).append(NEW, producer="p", sequence=100),
        "clean": lambda log: topic(log).compact() if name == "compacted" else topic(log).clean(),
        "alter": lambda log: topic(log).alter(retention="900 days"),
    }
