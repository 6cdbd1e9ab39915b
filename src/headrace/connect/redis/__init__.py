"""Redis and Valkey as a cache that follows a table: hashes with a field a column, or JSON texts.

Needs the extra: `pip install headrace[redis]`. Nothing outside this folder knows Redis, and this file imports its
client when it is used.
"""

from typing import TYPE_CHECKING, Any

from headrace.base.errors import InvalidPlan

if TYPE_CHECKING:
    from headrace.connect.redis.cache import hashes, keys

__all__ = ["hashes", "keys"]


def __getattr__(name: str) -> Any:
    """Import what needs Redis' client when it is first used."""
    if name in __all__:
        try:
            from headrace.connect.redis import cache
        except ImportError as error:
            raise InvalidPlan(
                f"a cache in Redis needs a package that is not there: {error.name}",
                hint='pip install "headrace[redis]"',
            ) from error
        return getattr(cache, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
