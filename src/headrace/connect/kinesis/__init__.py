"""Amazon Kinesis: streams come in by the sequence numbers of their shards, through resharding; rows go out as records.

Needs the extra: `pip install headrace[kinesis]`. Nothing outside this folder knows Amazon's client, which is imported
when it is used.
"""

from typing import TYPE_CHECKING, Any

from headrace.connect.extras import of_extra

if TYPE_CHECKING:
    from headrace.connect.kinesis.consumer import stream
    from headrace.connect.kinesis.producer import records

__all__ = ["records", "stream"]
_FILES = {"stream": "consumer", "records": "producer"}


def __getattr__(name: str) -> Any:
    """Import what needs Amazon's client when it is first used."""
    return of_extra(__name__, _FILES, name, what="Kinesis")
