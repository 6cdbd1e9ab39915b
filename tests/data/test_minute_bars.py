"""Minute bars of 99 stocks: upserts by symbol and hour, and the ten that gained and lost most."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from replaying import batch, current, cuts, replay, same, send

import headrace as hr
from budget import examples
from headrace.testing import Driver

pytestmark = pytest.mark.spark

SCHEMA = "key string, symbol string, open double, close double, volume bigint, at timestamp"
FACTS = {"first": "min_by(open, at)", "last": "max_by(close, at)", "volume": "sum(volume)", "n": "count(*)"}
few = settings(max_examples=examples(2), deadline=None, suppress_health_check=list(HealthCheck))


def app_of(*, table):
    """Rank all symbols by what they gained: each shard ranks its own first, then the first of all of them."""
    app = hr.App("stocks")
    if table:
        bars = app.table("bars", SCHEMA, key="key", partitions=2)
        bars.to_view("bars")
    else:
        bars = app.stream("bars", SCHEMA, event_time="at", out_of_order="30 minutes", partitions=2)
    symbols = bars.group_by("symbol").agg(**FACTS).named("symbols")
    symbols.to_view("symbols")
    gains = symbols.select("symbol", gain="(last - first) / first")
    gains.group_by().top(10, "gain DESC, symbol ASC", rank="place").named("gainers").to_view("gainers")
    gains.group_by().top(10, "gain ASC, symbol ASC", rank="place").named("losers").to_view("losers")
    return app


def check(spark, driver, now):
    facts = ", ".join(f"{text} AS {name}" for name, text in FACTS.items())
    symbols = f"SELECT symbol, {facts} FROM bars GROUP BY symbol"
    same(driver.view("symbols"), batch(spark, "bars", now, symbols))
    for view, order in (("gainers", "DESC"), ("losers", "ASC")):
        ranked = (
            f"SELECT symbol, (last - first) / first AS gain FROM ({symbols}) ORDER BY gain {order}, symbol LIMIT 10"
        )
        wanted = spark.sql(ranked).toArrow().to_pylist()
        shown = sorted(driver.view(view), key=lambda row: row["place"])
        assert [(row["place"], row["symbol"], row["gain"]) for row in shown] == [
            (place, row["symbol"], row["gain"]) for place, row in enumerate(wanted, 1)
        ]


@few
@given(ends=cuts(5150, most=2))
def test_gainers_and_losers_of_the_bars_equal_the_batch_after_every_epoch(spark, bars, ends):
    with Driver(app_of(table=False), shards=3) as driver:
        for first, last in zip([0, *ends], [*ends, bars.num_rows], strict=True):
            if last > first:
                send(driver, "bars", bars.slice(first, last - first))
            driver.step()
            check(spark, driver, bars.slice(0, last))


@few
@given(ends=cuts(5150, most=2))
def test_gainers_and_losers_of_the_hours_equal_the_batch_after_every_epoch(spark, bars, ends):
    """As upserts: a later record of a symbol's hour takes the earlier one away, its gain with it."""
    with Driver(app_of(table=True), shards=3) as driver:
        for first, last in zip([0, *ends], [*ends, bars.num_rows], strict=True):
            if last > first:
                send(driver, "bars", bars.slice(first, last - first))
            driver.step()
            now = current(bars, last, key="key")
            same(driver.view("bars"), now.to_pylist())
            check(spark, driver, now)
    assert now.num_rows == 197


def test_gainers_and_losers_of_the_hours_on_both_carriers(drive, spark, bars):
    driver = drive(app_of(table=True))
    replay(driver, "bars", bars, [2000, 3482])
    check(spark, driver, current(bars, bars.num_rows, key="key"))
