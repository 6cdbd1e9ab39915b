"""Processing time windows: bids of each bidder in ten seconds by the clock."""

import headrace as hr
from headrace import Stream, Table

READS = ("bid",)
BY_ARRIVAL = True


def verbs(bid: Stream) -> Table:
    """Bids by bidder and window, added up again: which windows there are is up to the clock, and no answer has them."""
    windows = hr.tumbling("10 seconds", grace="0 seconds")
    counts = bid.group_by("bidder").window(windows).agg(bids="count(*)").named("windows")
    return counts.group_by("bidder").agg(bids="sum(bids)")


SQL = None  # windows of SQL name the column of the event time, and there is none
SPARK = DUCKDB = "select bidder, count(*) as bids from bid group by bidder"
