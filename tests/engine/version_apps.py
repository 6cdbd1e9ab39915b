"""Orders and the rates of their time: what tests of joins as of a time send, and what comes out."""

from __future__ import annotations

from datetime import UTC, datetime

ORDERS, RATES = "id int, currency string, at timestamp", "currency string, rate double, since timestamp"


def at(second):
    return datetime.fromtimestamp(second, tz=UTC)


def order(driver, nr, second, currency="EUR"):
    driver.send("orders", {"id": nr, "currency": currency, "at": second * 1000})


def rate(driver, value, second, currency="EUR"):
    """A version, or, of None, a delete."""
    if value is None:
        driver.delete("rates", currency=currency, since=None if second is None else second * 1000)
    else:
        driver.send("rates", {"currency": currency, "rate": value, "since": second * 1000})


def priced(driver):
    return [(row["id"], row["rate"]) for row in driver.read("out") if row["id"] >= 0]
