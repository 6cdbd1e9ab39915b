"""Errors of MariaDB when it is written to, as ours."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pymysql

from headrace.base.outside import Unavailable
from headrace.connect.capture.errors import NotCapturable
from headrace.connect.mysql.errors import ours
from headrace.connect.store import StoreDiffers, StoreRefused

if TYPE_CHECKING:
    from collections.abc import Sequence

LOCK_TIMEOUT = 1205
_ROWS = frozenset(
    {1048, 1062, 1136, 1216, 1217, 1242, 1263, 1264, 1265, 1292, 1364, 1365, 1366, 1367, 1406, 1411, 1451, 1452}
    | {1526, 1557, 1586, 1644, 1690, 1906, 4025, 4038}
)
"""What may be the fault of one row: its data, a constraint, a partition, a trigger."""
_CHANGED = 1020
_FULL = frozenset({1021, 1114})
"""A disk, or what InnoDB may use of it; PostgreSQL's class 53 is the same."""
_READ_ONLY = frozenset({1290, 1792, 1836})
_RIGHTS = frozenset({1044, 1142, 1143, 1227, 1370})


def code_of(error: pymysql.Error) -> int:
    """Return the server's number of an error, 0 if it is not the server's."""
    return error.args[0] if error.args and isinstance(error.args[0], int) else 0


def refuses_a_row(error: pymysql.Error) -> bool:
    """Whether an error may be the fault of one row."""
    return code_of(error) in _ROWS


def said(error: pymysql.Error) -> str:
    """Return what the server says in one line, without the row's number in a statement and the table."""
    text = re.sub(r"\s+", " ", str(error.args[1] if len(error.args) > 1 else error)).strip()
    text = re.sub(r"`[^`]*`\.`[^`]*`\.(`[^`]*`)", r"\1", text)  # a column may be that of our temporary table
    return re.sub(r" at row \d+$", "", text)


def check_warnings(sql: pymysql.Connection[Any]) -> None:
    """Raise what the server only warns of, though it has changed a value: spaces cut off a text, a rounded number."""
    with sql.cursor() as cursor:
        cursor.execute("SHOW WARNINGS")
        warned: Sequence[tuple[Any, ...]] = cursor.fetchall()
    for _, code, text in warned:
        if int(code) in _ROWS:
            raise pymysql.DataError(int(code), text)


def as_ours(error: pymysql.Error, where: str, *, epoch: int) -> Exception:
    """Return an error that came up while an epoch was written."""
    if code_of(error) == LOCK_TIMEOUT:
        return Unavailable(
            f"{where} cannot be written now: {said(error)}",
            hint="Somebody holds a lock: SELECT * FROM information_schema.innodb_trx. It is tried again.",
        )
    if code_of(error) == _CHANGED:
        return Unavailable(f"{where}: {said(error)}", hint="Somebody else writes to the rows. It is tried again.")
    if code_of(error) in _FULL:
        return Unavailable(f"{where} has no room: {said(error)}", hint="Free space on its disk. It is tried again.")
    if code_of(error) in _READ_ONLY and "read" in said(error).lower():
        return Unavailable(
            f"{where} cannot be written now: {said(error)}",
            hint="It is a replica, or was set to be read only: SELECT @@read_only, @@tx_read_only. It is tried again.",
        )
    if code_of(error) in _RIGHTS:
        return StoreDiffers(
            f"{where}: {said(error)}",
            hint="GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, CREATE TEMPORARY TABLES ON the database TO the user",
        )
    known = ours(error, where)
    return StoreRefused(where, said(error), epoch=epoch) if isinstance(known, NotCapturable) else known
