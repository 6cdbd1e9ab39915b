"""Runs a pickled feed until the process is killed: `python feed_process.py FILE`."""

from __future__ import annotations

import pickle
import sys
import threading
from pathlib import Path

from headrace.connect.embedded import EmbeddedTopics
from headrace.connect.topics import TopicSpec
from headrace.log import Log


def main() -> None:
    feed, log, schema, key = pickle.loads(Path(sys.argv[1]).read_bytes())  # noqa: S301 -- the test wrote it
    topics = EmbeddedTopics(Log(Path(log)), partitions=2, fault=lambda point: None)  # noqa: ARG005 -- nothing happens
    spec = TopicSpec(name="landed", schema=schema, key=key)
    feed.run(topics.landing(spec, feed=feed.identity, limit=1 << 60, read=lambda: 0), threading.Event())


if __name__ == "__main__":
    main()
