"""What a server must have for a capture, and what it says of itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pymysql

from headrace.connect.capture.errors import NotCapturable
from headrace.connect.mysql.position import Position

if TYPE_CHECKING:
    from headrace.connect.mysql.position import LogPlace

OLDEST = (10, 5)
"""The oldest server: before it the log had no names of columns."""
_WANTED = {
    "binlog_format": ("ROW", "the log has statements instead of rows"),
    "binlog_row_image": ("FULL", "the log has parts of changed rows only"),
    "binlog_row_metadata": ("FULL", "the log does not have the names of columns"),
}
_CHARSETS = "SELECT id, character_set_name FROM information_schema.collations WHERE id IS NOT NULL"
_MORE_CHARSETS = "SELECT id, character_set_name FROM information_schema.collation_character_set_applicability"
_ONE_BYTE = """
SELECT character_set_name FROM information_schema.character_sets
WHERE maxlen = 1 AND character_set_name NOT IN ('binary', 'ascii')
"""
_NO_SUCH_COLUMN = 1054


def check_server(sql: pymysql.Connection[Any]) -> None:
    """Check that the server logs what a capture needs.

    Raises:
        NotCapturable: it does not; the hint has the setting.

    """
    version = str(_one(sql, "SELECT version()"))
    if "mariadb" not in version.lower():
        raise NotCapturable(
            f"the server is MySQL {version}", hint="MariaDB is needed: the log of MySQL has other GTIDs."
        )
    if tuple(int(each) for each in version.split(".")[:2]) < OLDEST:
        raise NotCapturable(f"the server is MariaDB {version}", hint="10.5 or later is needed.")
    if not int(str(_one(sql, "SELECT @@global.log_bin"))):
        raise NotCapturable("the server has no binary log", hint="Start it with --log-bin --binlog-format=ROW.")
    for name, (wanted, why) in _WANTED.items():
        found = str(_one(sql, f"SELECT @@global.{name}"))
        if found != wanted:
            raise NotCapturable(
                f"the server's {name} is {found}: {why}",
                hint=f"SET GLOBAL {name} = {wanted}, and in the server's configuration; sessions that are open keep "
                "what they have.",
            )
    if int(str(_one(sql, "SELECT @@global.log_bin_compress"))):
        raise NotCapturable("the server compresses its log", hint="SET GLOBAL log_bin_compress = OFF")


def current(sql: pymysql.Connection[Any]) -> Position:
    """Return the position behind the last transaction of the log."""
    return Position(Position.gtids_of(str(_one(sql, "SELECT @@global.gtid_binlog_pos") or "")))


def charsets(sql: pymysql.Connection[Any]) -> dict[int, str]:
    """Return charsets by the numbers of collations: their names, or of those of one byte a letter the 256 letters.

    So a text of the log is what a query would return, by the server's own tables.
    """
    found: dict[int, str] = {}
    with sql.cursor() as cursor:
        for query in (_CHARSETS, _MORE_CHARSETS):
            try:
                cursor.execute(query)
            except pymysql.OperationalError as error:
                if error.args[0] != _NO_SUCH_COLUMN:
                    raise
                continue
            found |= {int(number): name for number, name in cursor.fetchall() if number is not None}
        cursor.execute(_ONE_BYTE)
        short = [name for (name,) in cursor.fetchall()]
        spellings = [f"CONVERT(_{name} x'{bytes(range(256)).hex()}' USING utf8mb4)" for name in short]
        cursor.execute(f"SELECT {', '.join(spellings)}")
        letters = dict(zip(short, cursor.fetchone() or (), strict=True))
    return {number: letters.get(name, name) for number, name in found.items()}


def bytes_behind(sql: pymysql.Connection[Any], reached: LogPlace, end: LogPlace) -> int | None:
    """Return how many bytes of the log are between two places; None where the user may not see its files."""
    if reached.file == end.file:
        return max(0, end.byte - reached.byte)
    try:
        with sql.cursor() as cursor:
            cursor.execute("SHOW BINARY LOGS")
            sizes = {int(name.rpartition(".")[2]): int(size) for name, size, *_ in cursor.fetchall()}
    except pymysql.Error:
        return None
    between = sum(size for file, size in sizes.items() if reached.file <= file < end.file)
    return max(0, between + end.byte - reached.byte)


def _one(sql: pymysql.Connection[Any], query: str) -> object:
    with sql.cursor() as cursor:
        cursor.execute(query)
        row = cursor.fetchone()
    return row[0] if row else None
