"""Channel statistics: those of q15 by channel and day, and the last minute in which there was a bid."""

from bench.nexmark.queries.q15 import DAY, STATISTICS, listed
from headrace import Stream, Table

READS = ("bid",)
LATEST = {"latest": "max(date_format(dateTime, 'HH:mm'))"}


def verbs(bid: Stream) -> Table:
    """Statistics by channel and day."""
    return bid.group_by("channel", day=DAY).agg(**LATEST, **STATISTICS)


SQL = f"select channel, {DAY} as day, {listed(LATEST | STATISTICS)} from bid group by channel, {DAY}"
