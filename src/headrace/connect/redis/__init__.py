"""Redis and Valkey as a cache that follows a table: hashes with a field a column, or JSON texts.

Needs the extra: `pip install headrace[redis]`. Nothing outside this folder knows Redis, and this file imports its
client when it is used.
"""

from typing import TYPE_CHECKING, Any

from headrace.connect.extras import of_extra

if TYPE_CHECKING:
    from headrace.connect.redis.cache import hashes, keys

__all__ = ["hashes", "keys"]
_FILES = {"hashes": "cache", "keys": "cache"}


def __getattr__(name: str) -> Any:
    """Import what needs Redis' client when it is first used."""
    return of_extra(__name__, _FILES, name, what="a cache in Redis")
