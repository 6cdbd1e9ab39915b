"""PostgreSQL: tables followed by logical replication, and tables of an app kept in a database; both exactly once.

Needs the extra: `pip install headrace[postgres]`. Nothing outside this folder knows PostgreSQL, and this file imports
its client when it is used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from headrace.base.errors import InvalidPlan

if TYPE_CHECKING:
    from headrace.connect.postgres.declared import drop, table
    from headrace.connect.postgres.storing.declared import upsert
    from headrace.connect.postgres.storing.two_phase import two_phase

__all__ = ["drop", "table", "two_phase", "upsert"]
_FILES = {"drop": "declared", "table": "declared", "two_phase": "storing.two_phase", "upsert": "storing.declared"}


def __getattr__(name: str) -> Any:
    """Import what needs PostgreSQL's client when it is first used."""
    if name in __all__:
        try:
            return getattr(import_module(f"headrace.connect.postgres.{_FILES[name]}"), name)
        except ImportError as error:
            raise InvalidPlan(
                f"a table of PostgreSQL needs a package that is not there: {error.name}",
                hint='pip install "headrace[postgres]"',
            ) from error
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
