"""MariaDB: tables followed by the binary log of the server, without a gap and exactly once.

Needs the extra: `pip install headrace[mysql]`. Nothing outside this folder knows MariaDB, and this file imports its
client when it is used.
"""

from typing import TYPE_CHECKING, Any

from headrace.base.errors import InvalidPlan

if TYPE_CHECKING:
    from headrace.connect.mysql.declared import table

__all__ = ["table"]


def __getattr__(name: str) -> Any:
    """Import what needs MariaDB's client when it is first used."""
    if name in __all__:
        try:
            from headrace.connect.mysql import declared
        except ImportError as error:
            raise InvalidPlan(
                f"a table of MariaDB needs a package that is not there: {error.name}",
                hint='pip install "headrace[mysql]"',
            ) from error
        return getattr(declared, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
