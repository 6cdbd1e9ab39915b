"""Local item suggestion: who sells things of a category in some states."""

from headrace import Stream, Table

READS = ("auction", "person")


def verbs(auction: Stream, person: Stream) -> Table:
    """Auctions of category 10 with their sellers in three states: neither side is bounded by time."""
    sold = auction.where("category = 10").select("id", "seller").as_table()
    sellers = person.where("state in ('OR', 'ID', 'CA')").select("name", "city", "state", person="id").as_table()
    return sold.join(sellers, on={"seller": "person"}).select("name", "city", "state", "id")


SQL = """
select p.name, p.city, p.state, a.id
from auction a join person p on a.seller = p.id
where a.category = 10 and p.state in ('OR', 'ID', 'CA')
"""
STREAMING = SQL
