"""User sessions: how many bids a person made before resting for ten seconds."""

import headrace as hr
from headrace import Stream, Table

READS = ("bid",)


def verbs(bid: Stream) -> Table:
    """Bids by bidder and session."""
    sessions = hr.session("10 seconds", grace="0 seconds")
    return bid.group_by("bidder").window(sessions).agg(bids="count(*)")


SQL = """
select bidder, count(*) as bids, session_window.start as window_start, session_window.end as window_end
from bid
group by bidder, session_window(dateTime, '10 seconds')
"""
OPTIONS = {"grace": "0 seconds"}
DUCKDB = """
select bidder, count(*) as bids, min(dateTime) as window_start, max(dateTime) + interval 10 second as window_end
from (
    select bidder, dateTime, sum(is_first) over (partition by bidder order by dateTime) as session
    from (
        select bidder, dateTime,
               coalesce(dateTime > lag(dateTime) over (partition by bidder order by dateTime)
                        + interval 10 second, false)::int
                   as is_first
        from bid
    )
)
group by bidder, session
"""
STREAMING = SQL
CLOSES = True
