"""Headrace: durable topics, changing tables, and views that stay correct, carried by Spark.

import headrace as hr

app = hr.App("clicks")
clicks = app.stream("clicks", "user string, at timestamp", event_time="at", out_of_order="10 seconds")
counts = clicks.group_by("user").window(hr.tumbling("1 minute", grace="30 seconds")).agg(n="count(*)")
counts.to_view("clicks_by_user")
app.run()
"""

from headrace.app import App
from headrace.base.errors import HeadraceError
from headrace.dsl import Stream, Table
from headrace.log import Log, Topic
from headrace.plan.windows import Window, hopping, tumbling

__all__ = ["App", "HeadraceError", "Log", "Stream", "Table", "Topic", "Window", "hopping", "tumbling"]
__version__ = "0.1.0"
