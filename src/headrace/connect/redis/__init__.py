"""Redis and Valkey: a cache that follows a table (hashes or JSON texts), and streams, in and out.

Needs the extra: `pip install headrace[redis]`. Nothing outside this folder knows Redis, and this file imports its
client when it is used.
"""

from typing import TYPE_CHECKING, Any

from headrace.connect.extras import of_extra

if TYPE_CHECKING:
    from headrace.connect.redis.adding import entries
    from headrace.connect.redis.cache import hashes, keys
    from headrace.connect.redis.incoming import stream

__all__ = ["entries", "hashes", "keys", "stream"]
_FILES = {"entries": "adding", "hashes": "cache", "keys": "cache", "stream": "incoming"}


def __getattr__(name: str) -> Any:
    """Import what needs Redis' client when it is first used."""
    return of_extra(__name__, _FILES, name, what="Redis")
