"""Full-text search over a table or a stream: an index of tantivy in a folder, or of OpenSearch.

Needs an extra: `pip install headrace[search]`, or `headrace[opensearch]`. Nothing outside this folder knows these, and
this file imports them when they are used.
"""

from typing import TYPE_CHECKING, Any

from headrace.connect.extras import of_extra

if TYPE_CHECKING:
    from headrace.connect.search.opensearch_index import opensearch
    from headrace.connect.search.tantivy_index import query, tantivy

__all__ = ["opensearch", "query", "tantivy"]
_FILES = {"opensearch": "opensearch_index", "query": "tantivy_index", "tantivy": "tantivy_index"}


def __getattr__(name: str) -> Any:
    """Import tantivy, or OpenSearch's client, when it is first used."""
    extra = "opensearch" if name == "opensearch" else "search"
    return of_extra(__name__, _FILES, name, what="a search index", extra=extra)
