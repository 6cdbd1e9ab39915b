"""Bidding statistics: bids, bidders and auctions of each day, by ranges of prices."""

from headrace import Stream, Table

READS = ("bid",)
DAY = "date_format(dateTime, 'yyyy-MM-dd')"
RANGES = {"": "", "1": "price < 10000", "2": "price >= 10000 and price < 1000000", "3": "price >= 1000000"}
"""The names of columns end with the number of the range."""


def within(aggregate: str, condition: str) -> str:
    """Return an aggregate over the rows that meet a condition; all rows where it is empty."""
    return f"{aggregate} filter (where {condition})" if condition else aggregate


STATISTICS = {
    f"{name}{number}": within(aggregate, condition)
    for name, aggregate in {
        "bids": "count(*)",
        "bidders": "count(distinct bidder)",
        "auctions": "count(distinct auction)",
    }.items()
    for number, condition in RANGES.items()
}


def verbs(bid: Stream) -> Table:
    """Statistics by day."""
    return bid.group_by(day=DAY).agg(**STATISTICS)


def listed(statistics: dict[str, str]) -> str:
    """Return statistics as columns of a query."""
    return ", ".join(f"{aggregate} as {name}" for name, aggregate in statistics.items())


SQL = f"select {DAY} as day, {listed(STATISTICS)} from bid group by {DAY}"
