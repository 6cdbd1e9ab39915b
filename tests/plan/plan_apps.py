"""Apps whose plans together have every kind of node, with every option that a plan shows or compares.

A snapshot is what `explain` prints of one (text, Mermaid, JSON) and the identity that its storage keeps. The snapshots
are the contract: state that was written under another identity is refused at the next start. Write them again with
`python tests/plan/plan_apps.py` only where a change of the identity or of the text is meant.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.compute as pc

import headrace as hr
from headrace.engine.program.identity import identity

if TYPE_CHECKING:
    from collections.abc import Iterator

SNAPSHOTS = Path(__file__).parent / "snapshots"
ORDERS = "id int, user string, city string, amount decimal(10,2), at timestamp, sent timestamp, tags array<string>"


def app_of() -> hr.App:
    return hr.App("shop")


def doubled(rows):
    """Return the rows as they are."""
    return rows


class Sink:
    """An object of the user's."""

    def write(self, epoch, rows):
        """Take the rows."""


def orders(app, **options):
    return app.stream("orders", ORDERS, **{"event_time": "at", "out_of_order": "10 seconds"} | options)


def users(app, **options):
    return app.table("users", "id string, city string, born timestamp", key="id", **options)


def stateless() -> hr.App:
    app = app_of()
    large = orders(app, key="id", idle_after="1 minute").where("amount > 10 and user is not null")
    named = large.select("id", "user", double="amount * 2", who="user").rename(customer="who").drop("user")
    named.with_columns(half="double / 4").to_topic("large", key="id")
    orders(app).explode("tags", "tag").to_view("tags")
    mapped = orders(app).map_batches(doubled, "id int, user string")
    mapped.union(large.select("id", "user")).named("both").to(Sink())
    branches = orders(app).branch(small="amount < 3", large="amount > 100")
    branches["small"].to_topic("small")
    branches[None].to_topic("rest")
    return app


def sources() -> hr.App:
    app = app_of()
    orders(app, sent_time="sent", on_error="fail", partitions=2).where("amount > 1").to_view("corrected")
    app.read("rate", "timestamp timestamp, value bigint", event_time="timestamp", rowsPerSecond=5).to_view("rates")
    app.read("rate", "timestamp timestamp, value bigint").named("plain").to_view("plain_rates")
    app.stream("logs", "line string").to_view("lines")
    sides = app.table("sides", "id int, side string", key="id", values=[{"id": 1, "side": "left"}])
    sides.to_view("sides")
    app.sql("select * from (values (1, 'a'), (2, null)) as t(id, name)").to_view("constants")
    people = app.table("people", "id int, mail string, notes array<string>", key="id", private={"mail": "id"})
    people.select("id", address="mail").to_view("addresses")
    secrets = app.stream("secrets", "id int, mail string, notes array<string>", private=["mail", "notes"])
    secrets.explode("notes", "note").to_view("notes")
    secrets.group_by("id").agg(mail="max_by(mail, id)", n="count(*)").to_view("last_mail")
    return app


def groups() -> hr.App:
    app = app_of()
    rows = orders(app)
    rows.group_by("user").agg(n="count(*)", total="sum(amount)", mean="sum(amount) / count(*)").to_view("totals")
    rows.group_by().agg(n="count(distinct user)", mid="percentile(amount, array(0.1, 0.9))").to_view("one")
    rows.group_by(hour="date_trunc('hour', at)").agg(n="count(*) filter (where amount > 5)").to_view("hours")
    per_user = rows.group_by("user", "city").agg(n="count(*)", first="min(amount)")
    per_user.group_by("city").agg(users="count(*)", most="max(n)").named("per_city").to_topic("cities")
    per_user.where("n > 1").changes().to_topic("user_changes")
    per_user.changes().group_by("_change_type").agg(n="count(*)").to_view("kinds")
    app.function("plus", pc.add, returns="int", takes=["int", "int"], version=3)
    rows.group_by("user").agg(n="sum(plus(id, 1))").named("called").to_view("called")
    return app


def windows() -> hr.App:
    app = app_of()
    by_user = orders(app).group_by("user")
    kinds = {
        "tumbling": hr.tumbling("1 minute", grace="5 seconds"),
        "shifted": hr.tumbling("1 hour", grace="0 seconds", offset="10 minutes"),
        "hopping": hr.hopping("10 minutes", "4 minutes", grace="1 minute"),
        "cumulating": hr.cumulating("1 hour", "10 minutes", grace="1 minute"),
        "paris": hr.hopping("1 month", "1 month", grace="1 day", timezone="Europe/Paris"),
        "sliding": hr.sliding("5 minutes", grace="1 minute"),
        "session": hr.session("30 minutes", grace="1 minute"),
    }
    for name, window in kinds.items():
        counted = by_user.window(window).agg(n="count(*)").named(name)
        counted.to_view(name)
        counted.late.named(f"{name}_too_late").to_topic(f"{name}_late")
    final = by_user.window(kinds["tumbling"], emit="final").agg(n="count(*)", most="max(amount)").named("final")
    final.to_topic("final")
    final.group_by("user").window(kinds["hopping"]).agg(minutes="count(*)").named("again").to_view("again")
    orders(app).group_by().window(kinds["tumbling"]).agg(n="count(*)").named("in_all").to_view("in_all")
    return app


def rankings() -> hr.App:
    app = app_of()
    by_city = orders(app).group_by("city")
    by_city.top(3, by="amount desc, id", rank="place").to_view("places")
    by_city.top(2, by="at").named("firsts").to_view("firsts")
    orders(app).group_by().top(5, by="amount desc").named("of_all").to_view("of_all")
    minute = hr.tumbling("1 minute", grace="5 seconds")
    best = by_city.window(minute, emit="final").top(1, by="amount desc").named("best")
    best.to_view("best")
    by_city.window(minute).top(1, by="amount desc", rank="n").named("kept").to_view("kept")
    totals = orders(app).group_by("user").agg(total="sum(amount)")
    totals.group_by().top(3, by="total desc nulls last", rank="place").named("spenders").to_view("spenders")
    return app


def ties() -> hr.App:
    app = app_of()
    sized = orders(app).group_by("city", "id")
    sized.top("id", by="amount desc", ties="rank").named("sized").to_view("sized")
    people = users(app)
    people.group_by("city").top(2, by="born asc", rank="place", ties="dense_rank").named("oldest").to_view("oldest")
    people.explode("split(city, ' ')", "word").group_by("word").agg(n="count(*)").to_view("words")
    return app


def growing() -> hr.App:
    app = app_of()
    bag, week = orders(app).as_table(), orders(app, private=["city"]).as_table(keep="7 days").named("week")
    clicks = app.stream("clicks", "user string, url string", key="user").as_table()
    bag.join(clicks, on="user").named("pairs").group_by("url").agg(most="max(amount)").named("most").to_view("most")
    week.join(clicks, on="user", how="left").named("of_week").to_view("of_week")
    week.late.to_topic("too_late")
    orders(app).join(clicks, on="user").named("clicked").to_topic("clicked")
    return app


def overs() -> hr.App:
    app = app_of()
    by_user = orders(app).group_by("user")
    last = (
        by_user.over(rows=10).agg(mean="avg(amount)", before="lag(amount, 2, 0)", nr="row_number()").named("last_ten")
    )
    last.to_topic("last_ten")
    last.late.to_topic("too_late")
    by_user.over(range="1 hour").agg(share="amount / sum(amount)").named("hour").to_view("hour")
    corrected = by_user.over(rows=(3, 1), emit="changes").agg(n="count(*)", after="lead(id)").named("corrected")
    corrected.group_by("n").agg(rows="count(*)").named("counts").to_view("counts")
    people = users(app, event_time="born").group_by("city").over(emit="changes")
    people.agg(eldest="first_value(id)", last="last_value(id, true)").named("people").to_topic("people")
    return app


def matches() -> hr.App:
    app = app_of()
    define = {"low": "amount < 10", "up": "amount > prev(amount)", "far": "id <> prev(id, 2, '')"}
    found = orders(app).group_by("user").match("low up{2,}? (far | any)", within="1 hour", define=define)
    risen = found.agg(ups="count(up)", most="max(up.amount)", ids="collect_list(id)", last="last(any.id)").named(
        "risen"
    )
    risen.to_topic("risen")
    risen.late.to_topic("too_late")
    every = orders(app).group_by().match("a b", within="5 minutes", after="next row").agg(n="count(*)").named("pairs")
    every.group_by().window(hr.tumbling("1 hour", grace="0 seconds")).agg(n="sum(n)").named("hours").to_view("hours")
    return app


def suppressed() -> hr.App:
    app = app_of()
    totals = orders(app).group_by("user").agg(total="sum(amount)")
    totals.suppress("10 seconds", size=1000).to_topic("totals")
    minute = hr.tumbling("1 minute", grace="5 seconds")
    by_city = orders(app).group_by("city")
    early = by_city.window(minute, emit="every 10 seconds").agg(n="count(*)").named("early")
    early.to_view("early")
    early.late.to_topic("too_late")
    by_city.window(minute, emit="final").agg(n="count(*)").named("final").latest().named("now").to_view("now")
    return app


def keyed() -> hr.App:
    app = app_of()
    unique = orders(app).dedupe("id", within="1 hour")
    unique.to_topic("unique", key="id")
    unique.late.to_topic("unique_late")
    by_time = orders(app).latest("user")
    by_time.group_by("city").agg(n="count(*)").to_view("per_city")
    by_time.to_topic("last_orders")
    app.stream("facts", "id int, x int").latest("id").named("last_facts").to_view("last_facts")
    people = users(app, event_time="born", history="1 day")
    people.where("city <> 'Rome'").group_by("city").window(hr.tumbling("1 day", grace="1 hour")).agg(
        n="count(*)"
    ).to_view("born")
    return app


def joins_of_streams() -> hr.App:
    app = app_of()
    left = orders(app)
    right = app.stream("clicks", "user string, url string, at timestamp", event_time="at", out_of_order="30 seconds")
    for how in ("inner", "left", "right", "full"):
        joined = left.join(
            right, on="user", how=how, within=("-10 seconds", "1 minute"), grace="5 seconds", where="amount > 3"
        ).named(f"{how}_pairs")
        joined.to_topic(f"{how}_pairs")
        joined.late.to_topic(f"{how}_late")
    return app


def joins_with_tables() -> hr.App:
    app = app_of()
    stream, table = orders(app), users(app, event_time="born", out_of_order="1 minute", history="1 day")
    stream.join(table, on={"user": "id"}, how="left").named("looked_up").to_topic("looked_up")
    stream.join(table, on={"user": "id"}, where="amount > 2").named("pairs").to_topic("pairs")
    cities = app.table("cities", "id string, mayor string", key="id", values=[{"id": "u", "mayor": "m"}])
    stream.join(cities, on={"user": "id"}, how="left").named("side").to_topic("side")
    versions = stream.join(table, on={"user": "id"}, how="left", as_of="at", grace="10 seconds").named("as_of")
    versions.to_topic("as_of")
    versions.late.to_topic("as_of_late")
    romans = table.where("city = 'Rome'").select("id", "born")
    stream.join(romans, on={"user": "id"}, how="left", as_of="at", grace="1 day").named("romans").to_topic("romans")
    return app


def searches() -> hr.App:
    app = app_of()
    rules = app.table("rules", "id string, city string, query string", key="id")
    found = orders(app).search(rules, text="concat_ws(' ', user, city)").named("found")
    found.to_topic("found")
    found.group_by("id_right").agg(n="count(*)").named("per_rule").to_view("per_rule")
    asked = orders(app).latest("user").where("amount > 1")
    orders(app).search(asked, text="user", query="city", suffix="_of_rule").to_topic("asked")
    return app


def joins_of_tables() -> hr.App:
    app = app_of()
    totals = orders(app).group_by("user").agg(total="sum(amount)")
    people = users(app)
    for how in ("inner", "left", "right", "full", "semi", "anti"):
        joined = totals.join(people, on={"user": "id"}, how=how).named(how)
        joined.to_view(how)
        joined.where("user is not null").join(people.rename(user="id"), on="user", how=how).named(f"{how}2").to_view(
            f"{how}2"
        )
    cities = people.select("id", where_from="city")
    other = app.table("cities", "id int, name string", key="id")
    cities.join(other, on={"where_from": "name"}, how="left").named("pairs").to_view("pairs")
    cities.join(other, on={"where_from": "name"}, how="full", where="length(name) > 2").named("bag").to_view("bag")
    people.union(people.select("id", "city", "born")).named("twice").to_view("twice")
    return app


APPS = {
    make.__name__: make
    for make in (
        stateless,
        sources,
        groups,
        windows,
        rankings,
        ties,
        growing,
        overs,
        matches,
        suppressed,
        keyed,
        joins_of_streams,
        joins_with_tables,
        searches,
        joins_of_tables,
    )
}


def facts(app: hr.App) -> Iterator[str]:
    """Yield a line for each step: what the plan knows of its rows."""
    plan = app.plan()
    for node in plan.nodes:
        flags = ("is_table", "append_only", "detects_late", "emits_on_watermark", "late_before_exchange")
        columns = {
            "key": node.key,
            "not null": sorted(node.not_null),
            "sealed": sorted(node.sealed),
            "partition": plan.partitions[id(node)],
        }
        yield "; ".join(
            [
                f"{plan.name(node)}: level {plan.level(node)}",
                *(flag for flag in flags if getattr(node, flag, False)),
                f"time {node.time_column}",
                *(f"{name} ({', '.join(names)})" for name, names in columns.items() if names is not None),
                *(f"moved by {moves}" for moves in plan.moves.get(id(node), ()) if moves is not None),
                *([f"hold {node.hold}"] if node.stateful and node.hold else []),
            ]
        )


def snapshot(app: hr.App) -> dict[str, str]:
    """Return the files of an app's snapshot: what explain prints, and the identity as the storage writes it."""
    explained = app.explain()
    return {
        "txt": str(explained) + "\n",
        "mmd": explained.mermaid + "\n",
        "json": explained.json + "\n",
        "facts": "".join(f"{line}\n" for line in facts(app)),
        "identity.json": json.dumps(identity(app.plan(), 4), indent=1) + "\n",
    }


if __name__ == "__main__":
    SNAPSHOTS.mkdir(exist_ok=True)
    for name, make in APPS.items():
        for suffix, text in snapshot(make()).items():
            (SNAPSHOTS / f"{name}.{suffix}").write_text(text, encoding="utf-8")
