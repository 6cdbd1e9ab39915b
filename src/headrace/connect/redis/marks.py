"""Who writes to a server of Redis, and the last epoch of theirs that it has: a hash of each writer."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from headrace.base.outside import OutputLost
from headrace.connect.redis.address import failures
from headrace.connect.sink import SinkWriter
from headrace.connect.store import WriterFenced

if TYPE_CHECKING:
    from headrace.connect.redis.address import RedisAddress

MARKS = "_headrace:"
_OPEN = """
local generation = redis.call('HINCRBY', KEYS[1], 'generation', 1)
redis.call('HSETNX', KEYS[1], 'epoch', -1)
return {generation, redis.call('HGET', KEYS[1], 'epoch')}
"""


class MarkedWriter(SinkWriter):
    """A writer whose mark is in the server; it fences those that were opened before it."""

    wrote: ClassVar[str]
    """What it did with rows, as an error says it."""

    def __init__(self, where: str, address: RedisAddress, writer: str) -> None:
        self.where = where
        self.mark = f"{MARKS}{writer}"
        with failures(where):
            self.client = address.client()
            self.generation, last = self.client.eval(_OPEN, 1, self.mark)
        self.last = int(last)

    def last_epoch(self) -> int | None:
        """Return the last epoch that the server has."""
        return self.last

    def check(self, said: object) -> None:
        """Look at what a script of the writer's answered.

        Raises:
            WriterFenced: a newer writer has taken over.
            OutputLost: the mark is gone: the server was emptied.

        """
        if said == b"FENCED":
            raise WriterFenced(self.where)
        if said == b"LOST":
            raise OutputLost(f"{self.where} no longer has the mark of what was {self.wrote}: it was emptied")

    def close(self) -> None:
        """Close the connections."""
        self.client.close()
