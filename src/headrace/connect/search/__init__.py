"""Full-text search over a table or a stream: an index of tantivy in a folder, which needs no server.

Needs the extra: `pip install headrace[search]`. Nothing outside this folder knows tantivy, and this file
imports it when it is used.
"""

from typing import TYPE_CHECKING, Any

from headrace.base.errors import InvalidPlan

if TYPE_CHECKING:
    from headrace.connect.search.tantivy_index import query, tantivy

__all__ = ["query", "tantivy"]


def __getattr__(name: str) -> Any:
    """Import tantivy when it is first used."""
    if name in __all__:
        try:
            from headrace.connect.search import tantivy_index
        except ImportError as error:
            raise InvalidPlan(
                f"a search index needs a package that is not there: {error.name}",
                hint='pip install "headrace[search]"',
            ) from error
        return getattr(tantivy_index, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
