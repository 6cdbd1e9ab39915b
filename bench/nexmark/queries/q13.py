"""Bounded side input: bids with what a table that does not change knows of them."""

from headrace import App, Stream

READS = ("bid",)
KEYS = 1_000


def side(app: App) -> dict[str, object]:
    """The side input: a row for each of `KEYS` numbers."""
    rows = [{"number": number, "about": f"side {number}"} for number in range(KEYS)]
    return {"side": app.table("side", "number bigint, about string", key="number", values=rows)}


def verbs(bid: Stream, side: object) -> Stream:
    """Each bid with the row of its auction's last three digits."""
    wanted = bid.select("auction", "bidder", "price", "dateTime", number=f"auction % {KEYS}")
    return wanted.join(side, on="number").select("auction", "bidder", "price", "dateTime", "about")


SQL = f"""
select b.auction, b.bidder, b.price, b.dateTime, s.about
from (select *, auction % {KEYS} as number from bid) b
join side for system_time as of current_timestamp() s on b.number = s.number
"""

SPARK = STREAMING = f"""
select b.auction, b.bidder, b.price, b.dateTime, s.about
from bid b join (select id as number, concat('side ', id) as about from range({KEYS})) s
on b.auction % {KEYS} = s.number
"""
DUCKDB = f"""
select auction, bidder, price, dateTime, concat('side ', auction % {KEYS}) as about from bid
"""
