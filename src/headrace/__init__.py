"""Headrace: durable topics, changing tables, and views that stay correct, carried by Spark.

import headrace as hr

app = hr.App("clicks")
clicks = app.stream("clicks", "user string, at timestamp", event_time="at", out_of_order="10 seconds")
counts = clicks.group_by("user").window(hr.tumbling("1 minute", grace="30 seconds")).agg(n="count(*)")
counts.to_view("clicks_by_user")
app.run()
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.app import App
    from headrace.base.errors import HeadraceError
    from headrace.connect.rpc import Client, Server
    from headrace.dsl import Stream, Table
    from headrace.engine.operation.restart import Restart
    from headrace.engine.transforming import feed
    from headrace.log import Log, Topic
    from headrace.plan.windows import Window, cumulating, hopping, session, sliding, tumbling

__all__ = [
    "App",
    "Client",
    "HeadraceError",
    "Log",
    "Restart",
    "Server",
    "Stream",
    "Table",
    "Topic",
    "Window",
    "cumulating",
    "feed",
    "hopping",
    "session",
    "sliding",
    "tumbling",
]
__version__ = "0.1.0"

# Arrow's allocator asks when it is loaded, here and in the processes that this one starts: pages that an epoch frees
# are kept, in milliseconds, for the next one (docs/design/0093-pages-of-the-kernel.md)
os.environ.setdefault("MIMALLOC_PURGE_DELAY", "5000")

# Spark's worker processes import this package to read a topic: they load what they use, and start sooner
_HOMES = {
    "App": "headrace.app",
    "Client": "headrace.connect.rpc",
    "HeadraceError": "headrace.base.errors",
    "Log": "headrace.log",
    "Restart": "headrace.engine.operation.restart",
    "Server": "headrace.connect.rpc",
    "Stream": "headrace.dsl",
    "Table": "headrace.dsl",
    "Topic": "headrace.log",
    "Window": "headrace.plan.windows",
    "cumulating": "headrace.plan.windows",
    "feed": "headrace.engine.transforming",
    "hopping": "headrace.plan.windows",
    "session": "headrace.plan.windows",
    "sliding": "headrace.plan.windows",
    "tumbling": "headrace.plan.windows",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'headrace' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
