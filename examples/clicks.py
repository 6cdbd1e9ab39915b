"""Clicks per user and minute: corrected while late rows may arrive, and final once a minute is over."""

import headrace as hr

app = hr.App("clickstream", storage=".headrace/clicks")

clicks = app.stream("clicks", "user string, url string, at timestamp", event_time="at", out_of_order="10 seconds")
minute = hr.tumbling("1 minute", grace="30 seconds")

by_user = clicks.group_by("user").window(minute).agg(clicks="count(*)", last="max_by(url, at)").named("by_user")
by_user.to_view("clicks_by_user")
by_user.late.to_topic("late_clicks")

busy = clicks.group_by().window(minute, emit="final").agg(clicks="count(*)", users="count(distinct user)")
busy.named("busy").to_topic("minutes")

if __name__ == "__main__":
    app.run()
