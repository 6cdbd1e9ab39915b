"""The embedded partitioned log: topics of checksummed Arrow batches that survive crashes."""

from headrace.log.appending.sending import Producer
from headrace.log.cleaning.rules import Cleaned
from headrace.log.cleaning.verify import Finding
from headrace.log.log import Log
from headrace.log.rows import rows_to_table
from headrace.log.topic import Topic

__all__ = ["Cleaned", "Finding", "Log", "Producer", "Topic", "rows_to_table"]
