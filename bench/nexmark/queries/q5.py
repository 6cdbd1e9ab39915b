"""Hot items: the auctions with the most bids of ten seconds, every two seconds."""

import headrace as hr
from headrace import Stream, Table

READS = ("bid",)


def verbs(bid: Stream) -> Table:
    """Bids by auction and window; of each window those auctions that have the most."""
    windows = hr.hopping("10 seconds", "2 seconds", grace="0 seconds")
    counts = bid.group_by("auction").window(windows).agg(bids="count(*)")
    return counts.group_by("window_start", "window_end").top(1, by="bids desc", ties="rank")


SQL = """
select auction, bids, window_start, window_end
from (
    select *, rank() over (partition by window_start, window_end order by bids desc) as place
    from (
        select auction, count(*) as bids, window.start as window_start, window.end as window_end
        from bid
        group by auction, window(dateTime, '10 seconds', '2 seconds')
    )
)
where place <= 1
"""
OPTIONS = {"grace": "0 seconds"}
DUCKDB = """
with counts as (
    select auction, count(*) as bids, window_start, window_start + interval 10 second as window_end
    from (
        select auction, unnest(range(0, 5)) as step, time_bucket(interval 2 second, dateTime) as latest from bid
    ), lateral (select latest - step * interval 2 second as window_start)
    group by auction, window_start
)
select auction, bids, window_start, window_end from counts
qualify rank() over (partition by window_start order by bids desc) = 1
"""
