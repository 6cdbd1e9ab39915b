"""Pass through: what it costs to read and write."""

from headrace import Stream

READS = ("bid",)


def verbs(bid: Stream) -> Stream:
    """Every bid, as it is."""
    return bid.select("auction", "bidder", "price", "dateTime", "extra")


SQL = "select auction, bidder, price, dateTime, extra from bid"
STREAMING = SQL
