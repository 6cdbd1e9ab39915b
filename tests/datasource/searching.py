"""The records of these tests: searches, a minute apart."""

SCHEMA = "id bigint not null, user string, at timestamp"
MINUTE = 60_000


def search(n):
    return {"id": n, "user": f"u{n % 3}", "at": n * MINUTE}


def ids(topic):
    """Return the ids of all records, by partition."""
    ends, starts = topic.end_offsets(), topic.start_offsets()
    return [topic.read(number, starts[number], 1_000_000).column("id").to_pylist() for number in ends]


def all_ids(topic):
    """Return the ids of all records, sorted."""
    return sorted(each for some in ids(topic) for each in some)
