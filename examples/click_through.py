"""The click-through rate of each query: searches joined with the clicks that follow within an hour, if there are any.

Input of any size: `python examples/click_through_input.py searches 1000`, and the same for `clicks`; pipe each into
`headrace topics produce`.
"""

import headrace as hr

app = hr.App("click_through", storage=".headrace/click_through")

searches = app.stream(
    "searches",
    "search_id string, user string, query string, at timestamp",
    key="search_id",
    event_time="at",
    out_of_order="10 seconds",
)
clicks = app.stream(
    "clicks", "search_id string, url string, at timestamp", key="search_id", event_time="at", out_of_order="10 seconds"
)

ctr = (
    searches.join(clicks, on="search_id", within="1 hour", how="left")
    .group_by("query")
    .window(hr.tumbling("1 minute", grace="30 seconds"))
    .agg(shown="count(*)", clicked="count(url)", ctr="count(url) / count(*)")
)

ctr.to_view("ctr_by_query")
ctr.late.to_topic("late_searches")

if __name__ == "__main__":
    app.run()
