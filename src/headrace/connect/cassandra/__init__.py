"""Cassandra as a sink: a table by its primary key, with write timestamps by which a late epoch changes nothing.

Needs the extra: `pip install headrace[cassandra]`. Nothing outside this folder knows Cassandra.
"""

from typing import TYPE_CHECKING, Any

from headrace.connect.extras import of_extra

if TYPE_CHECKING:
    from headrace.connect.cassandra.declared import table

__all__ = ["table"]
_FILES = {"table": "declared"}


def __getattr__(name: str) -> Any:
    """Import the client of Cassandra when it is first used."""
    return of_extra(__name__, _FILES, name, what="a table of Cassandra")
