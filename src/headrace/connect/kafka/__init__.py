"""Kafka: topics of a cluster as sources and sinks, exactly once in both directions.

Needs the extra: `pip install headrace[kafka]`. Nothing outside this folder knows Kafka.
"""

from headrace.connect.kafka.address import KafkaAddress

__all__ = ["KafkaAddress"]
