"""Searches, and the clicks that some lead to, as JSON lines: `python examples/click_through_input.py clicks 1000`.

People search about twice a second; the better the query fits, the likelier a click, most after seconds, some after
half an hour, and now and then a second one. Records are up to five seconds out of order, and the same ones each time.
"""

import json
import random
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

SEED = 2027
FIRST = datetime(2026, 1, 31, 10, tzinfo=UTC)
LONG = 0.05
"""The share of the clicks that come after half an hour."""
FITS = {"hats": 0.7, "red shoes": 0.5, "shoes": 0.4, "umbrella": 0.3, "quiet fan": 0.15, "gift for a friend": 0.05}


def records(searches: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield records with their topics, as they arrive."""
    dice = random.Random(SEED)  # noqa: S311 -- the same ones each time
    arrivals: list[tuple[datetime, str, dict[str, Any]]] = []
    at = FIRST
    for number in range(searches):
        at += timedelta(seconds=dice.expovariate(2))
        query = dice.choice(list(FITS))
        search = {"search_id": f"s{number}", "user": f"u{dice.randrange(searches // 4 + 1)}", "query": query}
        arrivals.append((at, "searches", search))
        while dice.random() < FITS[query]:
            seconds = 1800 if dice.random() < LONG else dice.expovariate(1 / 20)
            clicked = at + timedelta(seconds=seconds)
            arrivals.append((clicked, "clicks", {"search_id": f"s{number}", "url": f"/{query}/{dice.randrange(9)}"}))
    arrival = {id(record): time + timedelta(seconds=dice.uniform(0, 5)) for time, _, record in arrivals}
    for time, topic, record in sorted(arrivals, key=lambda each: arrival[id(each[2])]):
        yield topic, {**record, "at": time.isoformat(timespec="milliseconds")}


if __name__ == "__main__":
    wanted, searches = sys.argv[1], int(sys.argv[2])
    for topic, record in records(searches):
        if topic == wanted:
            sys.stdout.write(json.dumps(record) + "\n")
