"""Expand bid with auction: bids for things of a category, with what is sold."""

from headrace import Stream, Table

READS = ("bid", "auction")


def verbs(bid: Stream, auction: Stream) -> Table:
    """Bids and auctions of category 10: neither side is bounded by time."""
    sold = auction.where("category = 10").rename(opened="dateTime", about="extra").as_table()
    return bid.as_table().join(sold, on={"auction": "id"})


SQL = """
select b.auction, b.bidder, b.price, b.channel, b.url, b.dateTime, b.extra, a.id, a.itemName, a.description,
       a.initialBid, a.reserve, a.dateTime as opened, a.expires, a.seller, a.category, a.extra as about
from bid b join auction a on b.auction = a.id
where a.category = 10
"""
STREAMING = SQL
