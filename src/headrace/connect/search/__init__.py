"""Full-text search over a table or a stream: an index of tantivy in a folder, which needs no server.

Needs the extra: `pip install headrace[search]`. Nothing outside this folder knows tantivy, and this file
imports it when it is used.
"""

from typing import TYPE_CHECKING, Any

from headrace.connect.extras import of_extra

if TYPE_CHECKING:
    from headrace.connect.search.tantivy_index import query, tantivy

__all__ = ["query", "tantivy"]
_FILES = {"query": "tantivy_index", "tantivy": "tantivy_index"}


def __getattr__(name: str) -> Any:
    """Import tantivy when it is first used."""
    return of_extra(__name__, _FILES, name, what="a search index")
