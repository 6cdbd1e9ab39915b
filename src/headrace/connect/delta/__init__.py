"""Delta Lake as a sink: merges by key, and rows that are added, each epoch a version of the table.

Needs the extra: `pip install headrace[delta]`. Nothing outside this folder knows Delta Lake, and this file imports its
library, which needs no JVM, when it is used.
"""

from typing import TYPE_CHECKING, Any

from headrace.connect.extras import of_extra

if TYPE_CHECKING:
    from headrace.connect.delta.lake import table

__all__ = ["table"]
_FILES = {"table": "lake"}


def __getattr__(name: str) -> Any:
    """Import the library of Delta Lake when it is first used."""
    return of_extra(__name__, _FILES, name, what="a table of Delta Lake")
