"""Winning bids: the best bid for each auction, the earlier of two equal ones."""

from headrace import Stream, Table

READS = ("auction", "bid")


def verbs(auction: Stream, bid: Stream) -> Table:
    """Auctions with the bids while they were open; of each auction the first by price."""
    opened = auction.rename(opened="dateTime", about="extra").as_table()
    joined = opened.join(bid.as_table(), on={"id": "auction"}, where="dateTime between opened and expires")
    return joined.group_by("id").top(1, by="price desc, dateTime asc", rank="place")


SQL = """
select * from (
    select a.id, a.itemName, a.description, a.initialBid, a.reserve, a.dateTime as opened, a.expires, a.seller,
           a.category, a.extra as about, b.auction, b.bidder, b.price, b.channel, b.url, b.dateTime, b.extra,
           row_number() over (partition by a.id order by b.price desc, b.dateTime) as place
    from auction a join bid b on a.id = b.auction and b.dateTime between a.dateTime and a.expires
)
where place <= 1
"""
