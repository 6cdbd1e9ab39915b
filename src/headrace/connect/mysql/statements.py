"""Statements in the log: which of them change rows of a captured table without saying which rows."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

from headrace.connect.mysql.table_map import codec_of, spelled

if TYPE_CHECKING:
    from collections.abc import Mapping

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
_CHARSET, _SIZED, _COUNTED = 4, {0: 4, 1: 8, 3: 4}, {5, 6}
"""Of what the log says of a session: the charset's code, and before it codes with a size, and with a byte for it."""
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


def read_statement(content: bytes, charsets: Mapping[int, str]) -> tuple[str, str]:
    """Return the database and the text of a statement in the log. `charsets`: as in `table_map.parse`.

    A session sends statements in its own charset, and so they are logged.
    """
    start = 13 + int.from_bytes(content[11:13], "little")
    end = start + content[8]
    charset = codec_of(charsets.get(_session_charset(content[13:start]), ""))
    return content[start:end].decode(errors="replace"), spelled(content[end + 1 :], charset, errors="replace")


def _session_charset(status: bytes) -> int:
    """Return the number of the session's charset, which stands among other things; 0 if it does not."""
    at = 0
    while at < len(status) and status[at] != _CHARSET:
        if status[at] in _SIZED:
            at += 1 + _SIZED[status[at]]
        elif status[at] in _COUNTED and at + 1 < len(status):
            at += 2 + status[at + 1]
        else:
            return 0
    return int.from_bytes(status[at + 1 : at + 3], "little")


def _mentions(statement: str, name: str) -> bool:
    names = "|".join({re.escape(each) for each in (name, name.replace("`", "``"), name.replace('"', '""'))})
    return re.search(rf"(?<![\w$])({names})(?![\w$])", statement, re.IGNORECASE) is not None
