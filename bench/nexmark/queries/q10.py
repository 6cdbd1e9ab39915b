"""Log to files: bids with the names of the folders that they go to. The bench writes them to no file."""

from headrace import Stream

READS = ("bid",)


def verbs(bid: Stream) -> Stream:
    """Every bid, with its day and minute: `.to(parquet.folder(...))` would write them."""
    return bid.select(
        "auction",
        "bidder",
        "price",
        "dateTime",
        "extra",
        day="date_format(dateTime, 'yyyy-MM-dd')",
        minute="date_format(dateTime, 'HH:mm')",
    )


SQL = """
select auction, bidder, price, dateTime, extra,
       date_format(dateTime, 'yyyy-MM-dd') as day, date_format(dateTime, 'HH:mm') as minute
from bid
"""
STREAMING = SQL
