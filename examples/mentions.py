"""Search on streams: alerts are stored queries, and each item of news comes out with the alerts that it meets.

$ python examples/mentions.py
"""

from __future__ import annotations

import headrace as hr
from headrace.testing import Driver

app = hr.App("press", storage=".headrace/press")

news = app.stream("news", "id int, title string, body string")
alerts = app.table("alerts", "name string, owner string, query string", key="name")

mentions = news.search(alerts, text="concat_ws(' ', title, body)", query="query").named("mentions")
mentions.select("id", "name", "owner").to_topic("mentions")
mentions.group_by("owner").agg(items="count(distinct id)").named("by_owner").to_view("by_owner")


def main() -> None:
    """Store some alerts, let some news pass, and change an alert in between."""
    with Driver(app) as driver:
        for name, owner, query in [
            ("dogs", "ann", "dog OR dogs"),
            ("rail", "bob", 'rail* (strike OR delay) -"model railway"'),
            ("typo", "bob", '"high speed'),
        ]:
            driver.send("alerts", {"name": name, "owner": owner, "query": query})
        driver.send("news", {"id": 1, "title": "Railways: strike ends", "body": "Dogs may ride again."})
        driver.send("news", {"id": 2, "title": "A strike at the model railway", "body": None})
        driver.send("alerts", {"name": "typo", "owner": "bob", "query": '"high speed"'})
        driver.send("news", {"id": 3, "title": "High-speed delay", "body": "A dog on the rails."})
        driver.run()
        for row in sorted(driver.read("mentions"), key=lambda row: (row["id"], row["name"])):
            print(row["id"], row["name"], row["owner"])  # noqa: T201 -- what it is for
        for letter in driver.read("alerts.dead"):
            print(letter["reason"])  # noqa: T201 -- what it is for
        print(driver.view("by_owner"))  # noqa: T201 -- what it is for


if __name__ == "__main__":
    main()
