"""Find last bid: of each bidder for each auction."""

from headrace import Stream, Table

READS = ("bid",)


def verbs(bid: Stream) -> Table:
    """The latest bid of each bidder for each auction; of bids of one time that with the greatest price."""
    return bid.group_by("bidder", "auction").top(1, by="dateTime desc, price desc")


SQL = """
select auction, bidder, price, channel, url, dateTime, extra
from (
    select *, row_number() over (partition by bidder, auction order by dateTime desc, price desc) as place
    from bid
)
where place <= 1
"""
STREAMING = """
select auction, bidder, last.price, last.channel, last.url, last.dateTime, last.extra
from (
    select auction, bidder, max_by(struct(price, channel, url, dateTime, extra), struct(dateTime, price)) as last
    from bid
    group by bidder, auction
)
"""
KEY = ("bidder", "auction")
