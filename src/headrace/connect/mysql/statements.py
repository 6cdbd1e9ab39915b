"""Statements in the log: which of them change rows of a captured table without saying which rows."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from headrace.connect.mysql.catalogue import CapturedTable

_COMMENT = re.compile(r"/\*.*?\*/|^\s+", re.DOTALL)
_TRUNCATES = re.compile(r"TRUNCATE\b|DROP\s+(TEMPORARY\s+)?TABLE\b|CREATE\s+OR\s+REPLACE\s+TABLE\b", re.IGNORECASE)
_DROPS_ALL = re.compile(r"DROP\s+(DATABASE|SCHEMA)\b", re.IGNORECASE)
_KEEPS = re.compile(
    r"(CREATE|DROP|ANALYZE|OPTIMIZE|REPAIR|CHECK|FLUSH|GRANT|REVOKE|SAVEPOINT|RELEASE|ROLLBACK|XA|SET(?!\s+STATEMENT))\b"
    r"|ALTER\s+(?!(ONLINE\s+|IGNORE\s+)*TABLE\b)"
    r"|ALTER\s+(ONLINE\s+|IGNORE\s+)*TABLE\s+\S+\s+(ADD\s+(UNIQUE\s+)?(INDEX|KEY)\b|DROP\s+(INDEX|KEY)\b|COMMENT\b)"
    r"[^,]*$",
    re.IGNORECASE,
)
_TEMPORARY = re.compile(r"DROP\s+TEMPORARY\b", re.IGNORECASE)


def effect_of(statement: str, schema: str, table: CapturedTable) -> Literal["truncated", "untold"] | None:
    """Return whether a statement, given in a database, removes all rows of a table, or changes some; None if neither.

    What is not understood counts as a change: then the table is read anew, which is slow and right.
    """
    statement = _COMMENT.sub("", statement)
    if _DROPS_ALL.match(statement):
        return "truncated" if _mentions(statement, table.schema) else None
    if not _mentions(statement, table.name) or _TEMPORARY.match(statement):
        return None
    if schema != table.schema and not _mentions(statement, table.schema):
        return None
    if _TRUNCATES.match(statement):
        return "truncated"
    return None if _KEEPS.match(statement) else "untold"


def read_statement(content: bytes) -> tuple[str, str]:
    """Return the database and the text of a statement in the log."""
    start = 13 + int.from_bytes(content[11:13], "little")
    end = start + content[8]
    return content[start:end].decode(errors="replace"), content[end + 1 :].decode(errors="replace")


def _mentions(statement: str, name: str) -> bool:
    return re.search(rf"(?<![\w$]){re.escape(name)}(?![\w$])", statement, re.IGNORECASE) is not None
