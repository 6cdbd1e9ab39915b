"""Orders, rates and customers as JSON lines: `python examples/enrichment_input.py rates 1000`.

An order a second, up to ten seconds out of order. Each currency has a rate every half a minute, which is valid from
then on and arrives up to two minutes later; one currency has none before the fifth minute. A customer's profile arrives
within a minute after the first order. The same records each time.
"""

import json
import random
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

SEED = 2029
FIRST = datetime(2026, 1, 31, 12, tzinfo=UTC)
RATES = {"USD": 0.92, "GBP": 1.17, "NOK": 0.086, "CHF": 1.04}
LATECOMER = "CHF"
COUNTRIES = ["de", "no", "it", "fr"]


def records(orders: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield records with their topics, as they arrive."""
    dice = random.Random(SEED)  # noqa: S311 -- the same ones each time
    arrivals: list[tuple[float, str, dict[str, Any]]] = []
    known: set[str] = set()
    for number in range(orders):
        customer = f"c{dice.randrange(max(5, orders // 20))}"
        arrival = number + dice.uniform(0, 10)
        order = {"order_id": number, "customer": customer, "currency": dice.choice([*RATES])}
        arrivals.append((arrival, "orders", order | {"amount": round(dice.uniform(1, 200), 2), "at": _at(number)}))
        if customer not in known:
            known.add(customer)
            profile = {"customer": customer, "country": dice.choice(COUNTRIES)}
            arrivals.append((number + dice.uniform(0, 60), "customers", profile))
    for currency, rate in RATES.items():
        for second in range(300 if currency == LATECOMER else 0, orders + 300, 30):
            value = round(rate * dice.uniform(0.98, 1.02), 5)
            late = dice.uniform(0, 120) if second else 0
            arrivals.append((second + late, "rates", {"currency": currency, "rate": value, "since": _at(second)}))
    for _, topic, record in sorted(arrivals, key=lambda each: each[0]):
        yield topic, record


def _at(second: int) -> str:
    return (FIRST + timedelta(seconds=second)).isoformat(timespec="milliseconds")


if __name__ == "__main__":
    wanted, orders = sys.argv[1], int(sys.argv[2])
    for topic, record in records(orders):
        if topic == wanted:
            sys.stdout.write(json.dumps(record) + "\n")
