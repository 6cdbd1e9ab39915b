"""The embedded partitioned log: topics of checksummed Arrow batches that survive crashes."""

from headrace.log.cleaning import Cleaned
from headrace.log.log import Log
from headrace.log.rows import rows_to_table
from headrace.log.sending import Producer
from headrace.log.topic import Topic
from headrace.log.verify import Finding

__all__ = ["Cleaned", "Finding", "Log", "Producer", "Topic", "rows_to_table"]
