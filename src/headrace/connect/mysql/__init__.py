"""MariaDB: tables followed by the server's binary log, and tables of an app kept in a database; both exactly once.

Needs the extra: `pip install headrace[mysql]`. Nothing outside this folder knows MariaDB, and this file imports its
client when it is used.
"""

from typing import TYPE_CHECKING, Any

from headrace.connect.extras import of_extra
from headrace.connect.two_phase import two_phase

if TYPE_CHECKING:
    from headrace.connect.mysql.declared import table
    from headrace.connect.mysql.storing.declared import upsert

__all__ = ["table", "two_phase", "upsert"]
_FILES = {"table": "declared", "upsert": "storing.declared"}


def __getattr__(name: str) -> Any:
    """Import what needs MariaDB's client when it is first used."""
    return of_extra(__name__, _FILES, name, what="a table of MariaDB")
