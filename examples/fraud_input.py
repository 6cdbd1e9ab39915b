"""Purchases, and where phones are, as JSON lines: `python examples/fraud_input.py locations 1000`.

Each user lives in a town, buys there, and has a phone that reports its place every half a minute, unless it is
off. Some cards are copied: then somebody buys in another town. Records are up to ten seconds out of order, and the same
ones each time.
"""

import json
import random
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

SEED = 2028
FIRST = datetime(2026, 1, 31, 10, tzinfo=UTC)
TOWNS = [(52.52, 13.405), (48.137, 11.575), (50.938, 6.96), (59.913, 10.752), (41.893, 12.483)]
AT_HOME = 0.9
OFF = 7
"""Every so manyth user's phone is off."""


def records(purchases: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield records with their topics, as they arrive."""
    dice = random.Random(SEED)  # noqa: S311 -- the same ones each time
    users = max(8, purchases // 10)
    homes = [dice.choice(TOWNS) for _ in range(users)]
    arrivals: list[tuple[datetime, str, dict[str, Any]]] = []
    for number in range(purchases):
        user, at = dice.randrange(users), FIRST + timedelta(seconds=number)
        town = homes[user] if dice.random() < AT_HOME else dice.choice(TOWNS)
        bought = {"purchase_id": number, "user": f"u{user}", "amount": round(dice.expovariate(1 / 40), 2)}
        arrivals.append((at, "purchases", bought | _near(dice, town)))
    for user in range(users):
        for half in range(2 * purchases // 60 + 1):
            if user % OFF:
                at = FIRST + timedelta(seconds=30 * half + dice.uniform(0, 10))
                arrivals.append((at, "locations", {"user": f"u{user}"} | _near(dice, homes[user])))
    arrival = {id(record): time + timedelta(seconds=dice.uniform(0, 10)) for time, _, record in arrivals}
    for time, topic, record in sorted(arrivals, key=lambda each: arrival[id(each[2])]):
        yield topic, {**record, "at": time.isoformat(timespec="milliseconds")}


def _near(dice: random.Random, town: tuple[float, float]) -> dict[str, float]:
    return {"lat": round(town[0] + dice.uniform(-0.1, 0.1), 4), "lon": round(town[1] + dice.uniform(-0.1, 0.1), 4)}


if __name__ == "__main__":
    wanted, purchases = sys.argv[1], int(sys.argv[2])
    for topic, record in records(purchases):
        if topic == wanted:
            sys.stdout.write(json.dumps(record) + "\n")
