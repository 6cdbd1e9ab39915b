"""A process that appends to streams of a store: `appending_process.py LOG NAME COUNT STREAMS`; prints its answers."""

from __future__ import annotations

import random
import sys

from headrace import events


def main(log, name, count, streams):
    draw = random.Random(name)  # noqa: S311
    with events.EventStore(log, partitions=2) as store:
        print("ready", flush=True)  # noqa: T201 - who started it reads it
        sys.stdin.readline()
        for number in range(int(count)):
            stream = f"s{draw.randrange(int(streams))}"
            event = events.Event("Added", {"by": name, "n": number})
            expected = store.version(stream) if number % 2 else None
            answer = store.append(stream, [event] * (1 + number % 3), expected_version=expected)
            said = (stream, type(answer).__name__, answer.version, 1 + number % 3, f"{name}.{number}")
            print(*said, flush=True)  # noqa: T201 - the same


if __name__ == "__main__":
    main(*sys.argv[1:])
