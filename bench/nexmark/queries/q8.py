"""Monitor new users: who opened an auction in the ten seconds in which they came."""

import headrace as hr
from headrace import Stream, Table

READS = ("person", "auction")


def verbs(person: Stream, auction: Stream) -> Table:
    """Persons and sellers of each window, joined."""
    windows = hr.tumbling("10 seconds", grace="0 seconds")
    came = person.group_by("id", "name").window(windows).agg()
    sold = auction.group_by("seller").window(windows).agg().rename(until="window_end")
    return came.join(sold, on={"id": "seller", "window_start": "window_start"}).select("id", "name", "window_start")


SQL = """
select p.id, p.name, p.window_start
from (
    select id, name, window.start as window_start
    from person group by id, name, window(dateTime, '10 seconds')
) p
join (
    select seller, window.start as window_start
    from auction group by seller, window(dateTime, '10 seconds')
) a
on p.id = a.seller and p.window_start = a.window_start
"""
OPTIONS = {"grace": "0 seconds"}
DUCKDB = """
select distinct p.id, p.name, p.window_start
from (select id, name, time_bucket(interval 10 second, dateTime) as window_start from person) p
join (select seller, time_bucket(interval 10 second, dateTime) as window_start from auction) a
on p.id = a.seller and p.window_start = a.window_start
"""
STREAMING = """
select p.id, p.name, p.w.start as window_start
from (select id, name, window as w from person group by id, name, window(dateTime, '10 seconds')) p
join (select seller, window as w from auction group by seller, window(dateTime, '10 seconds')) a
on p.id = a.seller and p.w = a.w
"""
CLOSES = True
