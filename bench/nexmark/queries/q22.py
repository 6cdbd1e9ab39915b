"""Get directories: the parts of an address."""

from headrace import Stream

READS = ("bid",)


def verbs(bid: Stream) -> Stream:
    """Bids with the three folders of their address."""
    parts = {f"dir{number}": f"split_part(url, '/', {number + 3})" for number in (1, 2, 3)}
    return bid.select("auction", "bidder", "price", "channel", **parts)


SQL = """
select auction, bidder, price, channel,
       split_part(url, '/', 4) as dir1, split_part(url, '/', 5) as dir2, split_part(url, '/', 6) as dir3
from bid
"""
STREAMING = SQL
