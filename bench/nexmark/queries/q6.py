"""Average selling price by seller: of the last ten auctions that ended with a bid, in the order of their last bids."""

import headrace as hr
from headrace import Stream

READS = ("auction", "bid")
WAITS = True


def verbs(auction: Stream, bid: Stream) -> Stream:
    """The greatest bid while each auction was open, once it is final; with it the mean of the seller's last ten."""
    opened = auction.select("id", "seller", "expires", opened="dateTime")
    bids = bid.select("auction", "price", "dateTime")
    in_time = ("0 seconds", "400 milliseconds")  # no auction lasts longer
    joined = opened.join(bids, on={"id": "auction"}, within=in_time, where="dateTime <= expires")
    sold = joined.group_by("id", "seller").window(hr.session("1 second", grace="0 seconds"), emit="final")
    prices = sold.agg(price="max(price)")
    return prices.group_by("seller").over(rows=10).agg(mean="avg(price)").select("id", "seller", "price", "mean")


SQL = None  # the order of an OVER in SQL is the event time's column, which windows have no more
SPARK = DUCKDB = """
select id, seller, price,
       avg(price) over (partition by seller order by ended, id rows between 9 preceding and current row) as mean
from (
    select a.id, a.seller, max(b.price) as price, max(b.dateTime) as ended
    from auction a join bid b on a.id = b.auction and b.dateTime between a.dateTime and a.expires
    group by a.id, a.seller
)
"""
