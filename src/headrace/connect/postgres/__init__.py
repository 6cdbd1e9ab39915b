"""PostgreSQL: tables followed by logical replication, and tables of an app kept in a database; both exactly once.

Needs the extra: `pip install headrace[postgres]`. Nothing outside this folder knows PostgreSQL, and this file imports
its client when it is used.
"""

from typing import TYPE_CHECKING, Any

from headrace.connect.extras import of_extra
from headrace.connect.two_phase import two_phase

if TYPE_CHECKING:
    from headrace.connect.postgres.declared import drop, table
    from headrace.connect.postgres.storing.declared import upsert

__all__ = ["drop", "table", "two_phase", "upsert"]
_FILES = {"drop": "declared", "table": "declared", "upsert": "storing.declared"}


def __getattr__(name: str) -> Any:
    """Import what needs PostgreSQL's client when it is first used."""
    return of_extra(__name__, _FILES, name, what="a table of PostgreSQL")
