"""Failed logins, and then one from another country: a pattern of rows.

python examples/logins.py
"""

from __future__ import annotations

import headrace as hr
from headrace.testing import Driver

app = hr.App("logins", storage=".headrace/logins")

logins = app.stream("logins", "user string, ok boolean, country string, at timestamp", event_time="at")

alerts = (
    logins.group_by("user")
    .match(
        "fail{3,} success",
        within="10 minutes",
        define={"fail": "not ok", "success": "ok and country <> prev(country)"},
    )
    .agg(fails="count(fail)", first_at="min(fail.at)", where_from="last(success.country)", rows="count(*)")
    .named("alerts")
)
alerts.to_topic("alerts")
alerts.late.to_topic("late_logins")

ROWS = [
    ("ann", "10:00", True, "NO"),
    ("ann", "10:01", False, "NO"),
    ("bob", "10:02", False, "FR"),
    ("ann", "10:03", False, "NO"),
    ("bob", "10:04", True, "FR"),
    ("ann", "10:06", False, "NO"),
    ("ann", "10:05", False, "NO"),  # arrives too late: the watermark is at 10:06
    ("ann", "10:07", True, "US"),
    ("bob", "10:08", True, "FR"),
]


def main() -> list[str]:
    """Send the logins one by one, and show what comes out."""
    shown = []
    with Driver(app) as driver:
        for user, time, ok, country in ROWS:
            driver.send("logins", {"user": user, "ok": ok, "country": country, "at": f"2026-01-31 {time}:00"})
            driver.run()
            for row in driver.read("alerts"):
                bounds = " to ".join(f"{row[bound]:%H:%M}" for bound in ("match_start", "match_end"))
                shown.append(
                    f"at {time}: {row['user']} failed {row['fails']} times, in from {row['where_from']}, {bounds}"
                )
            shown += [
                f"at {time}: {row['user']}'s login of {row['at']:%H:%M} is late" for row in driver.read("late_logins")
            ]
    return shown


if __name__ == "__main__":
    for line in main():
        print(line)  # noqa: T201 -- a program for people
