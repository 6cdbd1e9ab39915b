"""Highest bid: of each ten seconds."""

import headrace as hr
from headrace import Stream, Table

READS = ("bid",)


def verbs(bid: Stream) -> Table:
    """The bids with the greatest price of each window."""
    windows = hr.tumbling("10 seconds", grace="0 seconds")
    bids = bid.select("auction", "price", "bidder", "dateTime", "extra")
    return bids.group_by().window(windows).top(1, by="price desc", ties="rank")


def relations(bid: Stream) -> dict[str, Table]:
    """SQL ranks no rows of windows. It joins the greatest prices with all bids, which are kept."""
    return {"bids": bid.as_table()}


SQL = """
select b.auction, b.price, b.bidder, b.dateTime, b.extra, m.window_start, m.window_end
from bids b join (
    select max(price) as most, window.start as window_start, window.end as window_end
    from bid group by window(dateTime, '10 seconds')
) m
on b.price = m.most and b.dateTime >= m.window_start and b.dateTime < m.window_end
"""
OPTIONS = {"grace": "0 seconds"}
DUCKDB = """
select auction, price, bidder, dateTime, extra, window_start, window_start + interval 10 second as window_end
from (select *, time_bucket(interval 10 second, dateTime) as window_start from bid)
qualify rank() over (partition by window_start order by price desc) = 1
"""
SPARK = STREAMING = SQL.replace("from bids", "from bid")
CLOSES = True
