"""Selection: the bids for some auctions."""

from headrace import Stream

READS = ("bid",)


def verbs(bid: Stream) -> Stream:
    """The bids whose auction's number is a multiple of 123."""
    return bid.where("auction % 123 = 0").select("auction", "price")


SQL = "select auction, price from bid where auction % 123 = 0"
STREAMING = SQL
