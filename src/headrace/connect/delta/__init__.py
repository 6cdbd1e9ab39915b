"""Delta Lake as a sink: merges by key, and rows that are added, each epoch a version of the table.

Needs the extra: `pip install headrace[delta]`. Nothing outside this folder knows Delta Lake, and this file imports its
library, which needs no JVM, when it is used.
"""

from typing import TYPE_CHECKING, Any

from headrace.base.errors import InvalidPlan

if TYPE_CHECKING:
    from headrace.connect.delta.lake import table

__all__ = ["table"]


def __getattr__(name: str) -> Any:
    """Import the library of Delta Lake when it is first used."""
    if name in __all__:
        try:
            from headrace.connect.delta import lake
        except ImportError as error:
            raise InvalidPlan(
                f"a table of Delta Lake needs a package that is not there: {error.name}",
                hint='pip install "headrace[delta]"',
            ) from error
        return getattr(lake, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
