"""Auction top 10: the ten greatest prices of each auction."""

from headrace import Stream, Table

READS = ("bid",)


def verbs(bid: Stream) -> Table:
    """Bids with their places; of equal prices the earlier bid comes first."""
    return bid.group_by("auction").top(10, by="price desc, dateTime asc", rank="place")


SQL = """
select auction, bidder, price, channel, url, dateTime, extra, place
from (
    select *, row_number() over (partition by auction order by price desc, dateTime) as place
    from bid
)
where place <= 10
"""
