"""Average price for a category: of the winning bids of its auctions, as far as they are known."""

from headrace import Stream, Table

READS = ("auction", "bid")


def verbs(auction: Stream, bid: Stream) -> Table:
    """The greatest bid while each auction was open; then the mean of these by category."""
    opened = auction.select("id", "category", "expires", opened="dateTime").as_table()
    bids = bid.select("auction", "price", "dateTime").as_table()
    best = (
        opened.join(bids, on={"id": "auction"}, where="dateTime between opened and expires")
        .group_by("id", "category")
        .agg(best="max(price)")
    )
    return best.group_by("category").agg(mean_best="avg(best)")


SQL = """
select category, avg(best) as mean_best
from (
    select a.id, a.category, max(b.price) as best
    from auction a join bid b on a.id = b.auction and b.dateTime between a.dateTime and a.expires
    group by a.id, a.category
)
group by category
"""
