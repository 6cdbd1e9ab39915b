"""What the tests of joins of two streams share: the app, its rows, and how they are written down."""

from __future__ import annotations

from datetime import UTC, datetime

import headrace as hr

SCHEMA = "k string, v string, at timestamp"
HOWS = ["inner", "left", "right", "full"]


def at(second):
    return datetime.fromtimestamp(second, tz=UTC)


def row(v, second, k="x"):
    return {"k": k, "v": v, "at": round(second * 1000)}


def joined(how="inner", *, within="11 s", grace="5 s", on="k", out_of_order="0 s", **options):
    """An app that joins `l` and `r` to `out`; its step is `j`."""
    app = hr.App("joins", shards=2)
    left = app.stream("l", SCHEMA, event_time="at", out_of_order=out_of_order)
    right = app.stream("r", SCHEMA, event_time="at", out_of_order=out_of_order)
    left.join(right, on=on, within=within, how=how, grace=grace, **options).named("j").to_topic("out")
    return app


def short(rows):
    """The values of both sides, `-` where there is none."""
    return sorted(f"{row['v'] or '-'}{row['v_right'] or '-'}" for row in rows)


def kept(driver, step="j"):
    """How many rows its state has."""
    return driver.counts(step)["state_rows"]
