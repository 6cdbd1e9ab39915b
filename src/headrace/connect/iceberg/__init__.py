"""Iceberg as a sink: merges by key, and rows that are added, each epoch a snapshot of the table.

Needs the extra: `pip install headrace[iceberg]`. Nothing outside this folder knows Iceberg, and the library, which
needs no JVM, is imported when it is used.
"""

from typing import TYPE_CHECKING, Any

from headrace.connect.extras import of_extra

if TYPE_CHECKING:
    from headrace.connect.iceberg.declared import table

__all__ = ["table"]
_FILES = {"table": "declared"}


def __getattr__(name: str) -> Any:
    """Import the library of Iceberg when it is first used."""
    return of_extra(__name__, _FILES, name, what="a table of Iceberg")
