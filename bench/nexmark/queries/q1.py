"""Currency conversion: prices in euros."""

from headrace import Stream

READS = ("bid",)


def verbs(bid: Stream) -> Stream:
    """Every bid, with its price in euros."""
    return bid.select("auction", "bidder", "dateTime", "extra", price="0.908 * price")


SQL = "select auction, bidder, dateTime, extra, 0.908 * price as price from bid"
STREAMING = SQL
