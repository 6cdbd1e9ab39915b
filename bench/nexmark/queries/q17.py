"""Auction statistics: bids and prices by auction and day."""

from bench.nexmark.queries.q15 import DAY, RANGES, listed, within
from headrace import Stream, Table

READS = ("bid",)
STATISTICS = {f"bids{number}": within("count(*)", condition) for number, condition in RANGES.items()} | {
    "low": "min(price)",
    "high": "max(price)",
    "mean": "avg(price)",
    "total": "sum(price)",
}


def verbs(bid: Stream) -> Table:
    """Statistics by auction and day."""
    return bid.group_by("auction", day=DAY).agg(**STATISTICS)


SQL = f"select auction, {DAY} as day, {listed(STATISTICS)} from bid group by auction, {DAY}"
STREAMING, KEY = SQL, ("auction", "day")
