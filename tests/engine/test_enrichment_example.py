"""The example of enrichment: prices are those of a batch over all rates, however late these came."""

from __future__ import annotations

import runpy
from bisect import bisect_right
from collections import defaultdict
from datetime import datetime
from pathlib import Path

import pytest

from headrace.testing import Driver

EXAMPLES = Path(__file__).parents[2] / "examples"


def read(count):
    """The generated records in order, and what is known of them in the end."""
    sent = list(runpy.run_path(str(EXAMPLES / "enrichment_input.py"))["records"](count))
    rates, countries, orders = defaultdict(list), {}, {}
    for topic, row in sent:
        if topic == "rates":
            rates[row["currency"]].append((datetime.fromisoformat(row["since"]), row["rate"]))
        elif topic == "customers":
            countries[row["customer"]] = row["country"]
        else:
            orders[row["order_id"]] = {**row, "at": datetime.fromisoformat(row["at"])}
    return sent, {currency: sorted(each) for currency, each in rates.items()}, countries, orders


def price(order, rates):
    """An order in euros at the last rate that was valid at its time."""
    known = rates[order["currency"]]
    at = bisect_right(known, (order["at"], float("inf")))
    return known[at - 1][1] * order["amount"] if at else None


@pytest.mark.parametrize("size", [40, 2_000])
def test_orders_are_priced_at_the_rate_of_their_time(size):
    """In many small epochs, in which rates come after the orders that they are for, and in few large ones."""
    sent, rates, countries, orders = read(700)
    program = runpy.run_path(str(EXAMPLES / "enrichment.py"))
    with Driver(program["app"], shards=2) as driver:
        for start in range(0, len(sent), size):
            part = sent[start : start + size]
            for topic in dict.fromkeys(topic for topic, _ in part):
                driver.send(topic, *(row for each, row in part if each == topic))
            driver.step()
        driver.run()
        driver.finish()
        invoices = {row["order_id"]: row for row in driver.read("invoices")}
        estimates = {row["order_id"]: row["euros"] for row in driver.read("estimates")}
        revenue = driver.view("revenue")
        assert driver.read("too_late_to_price") == []
    prices = {nr: price(order, rates) for nr, order in orders.items()}
    assert {nr: row["euros"] for nr, row in invoices.items()} == pytest.approx(prices, abs=0.006, nan_ok=True)
    assert set(estimates) == set(orders)
    unpriced = sum(value is None for value in prices.values())
    assert unpriced > 20, "one currency has no rate at first"
    if size < 100:
        wrong = [nr for nr, euros in estimates.items() if abs((euros or 0) - (prices[nr] or 0)) > 0.01]
        assert len(wrong) > 100, "what is known at once is not what was valid"
    assert all(row["country"] == countries[row["customer"]] for row in invoices.values())
    assert sum(row["orders"] for row in revenue) == len(orders)
    assert sum(row["euros"] for row in revenue) == pytest.approx(sum(filter(None, prices.values())), abs=0.5)
    assert sum(row["without_rate"] for row in revenue) == unpriced
