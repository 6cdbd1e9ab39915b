"""Calculation: bids of a range of prices, with the part of the day and how many c's are in their text."""

from headrace import Stream

READS = ("bid",)

PART = """case when hour(dateTime) between 8 and 18 then 'day'
            when hour(dateTime) <= 6 or hour(dateTime) >= 20 then 'night'
            else 'other' end"""
C = "length(extra) - length(replace(extra, 'c', ''))"


def verbs(bid: Stream) -> Stream:
    """Bids with a price in euros of one to fifty million cents."""
    priced = bid.with_columns(price="0.908 * price").where("price > 1000000 and price < 50000000")
    return priced.select("auction", "bidder", "price", "dateTime", "extra", part_of_day=PART, c=C)


SQL = f"""
select auction, bidder, 0.908 * price as price, dateTime, extra, {PART} as part_of_day, {C} as c
from bid
where 0.908 * price > 1000000 and 0.908 * price < 50000000
"""
STREAMING = SQL
