"""PostgreSQL: tables followed by logical replication, without a gap and exactly once.

Needs the extra: `pip install headrace[postgres]`. Nothing outside this folder knows PostgreSQL, and this file imports
its client when it is used.
"""

from typing import TYPE_CHECKING, Any

from headrace.base.errors import InvalidPlan

if TYPE_CHECKING:
    from headrace.connect.postgres.declared import drop, table

__all__ = ["drop", "table"]


def __getattr__(name: str) -> Any:
    """Import what needs PostgreSQL's client when it is first used."""
    if name in __all__:
        try:
            from headrace.connect.postgres import declared
        except ImportError as error:
            raise InvalidPlan(
                f"a table of PostgreSQL needs a package that is not there: {error.name}",
                hint='pip install "headrace[postgres]"',
            ) from error
        return getattr(declared, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
