"""The embedded log: its topics as sources, sinks, and landings of feeds."""

from headrace.connect.embedded.topics import EmbeddedTopics, log_path

__all__ = ["EmbeddedTopics", "log_path"]
