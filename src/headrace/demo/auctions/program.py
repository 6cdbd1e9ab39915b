"""Bids of an auction house, as a stream: the highest bid of each minute, although some bids arrive late.

`headrace demo auctions` generates the bids and runs this program; `headrace explain` and `headrace status` take it.
"""

import headrace as hr

# Everything the app owns is in this folder: its topics, its state, its views.
app = hr.App("auctions", storage=".headrace/demo-auctions")

# Bids arrive through bad networks: most within ten seconds of the newest one, some much later.
bids = app.stream(
    "bids",
    "auction bigint, bidder bigint, price bigint, at timestamp",
    event_time="at",
    out_of_order="10 seconds",
    partitions=1,  # the generator has a single order
)

# A minute can be corrected until the watermark is 30 seconds past its end; then it closes.
minute = hr.tumbling("1 minute", grace="30 seconds")

# emit="changes", the default: a minute is in the view from its first bid on, and each later bid corrects it.
highest = (
    bids.group_by("auction")
    .window(minute)
    .agg(bids="count(*)", price="max(price)", bidder="max_by(bidder, price)")
    .named("highest")
)
highest.to_view("highest")
highest.changes().to_topic("highest_changes")  # every correction: what the row was, what it became

# emit="final": a minute is emitted once, when it has closed, and is never withdrawn.
bids.group_by("auction").window(minute, emit="final").agg(bids="count(*)", price="max(price)").named(
    "highest_final"
).to_view("highest_final")

# Rows that are late for a closed minute are not lost: they are a stream too.
highest.late.to_view("late")
highest.late.to_topic("late")

# Without a window nothing is ever late: totals over all time.
bids.group_by("auction").agg(bids="count(*)", price="max(price)").named("auctions").to_view("auctions")

if __name__ == "__main__":
    app.run()
