"""Errors of PostgreSQL when it is written to, as ours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.base.outside import Unavailable
from headrace.connect.capture.errors import NotCapturable
from headrace.connect.postgres.errors import NO_RIGHT, ours, seeing_all
from headrace.connect.store import StoreDiffers, StoreRefused

if TYPE_CHECKING:
    import psycopg

_LATER = ("25006", "55P03")
"""States that pass: a server that is not the primary one now, and a lock that was not given."""
_GRANTS = (
    "GRANT SELECT, INSERT, UPDATE, DELETE ON the table TO the role; GRANT USAGE, CREATE ON its schema and on the "
    "schema headrace TO the role; GRANT TEMPORARY ON the database TO the role"
)
_ROWS = ("22", "23", "P0", "44", "54")
"""Classes of states by which one row is refused: its data, a constraint, a trigger, a check option, a limit."""


def refuses_a_row(error: psycopg.Error) -> bool:
    """Whether an error may be the fault of one row."""
    return (error.sqlstate or "").startswith(_ROWS)


def said(error: psycopg.Error) -> str:
    """Return what the server says in one line; not the row, which may have private values."""
    return str(error.diag.message_primary or error).strip().splitlines()[0]


def as_ours(error: psycopg.Error, where: str, *, epoch: int) -> Exception:
    """Return an error that came up while an epoch was written."""
    if (error.sqlstate or "").startswith(_LATER):
        return Unavailable(
            f"{where} cannot be written now: {said(error)}",
            hint="Somebody holds a lock (SELECT * FROM pg_locks WHERE granted), or the server is a standby or set to "
            "be read only. It is tried again.",
        )
    if error.sqlstate == NO_RIGHT:
        return StoreDiffers(f"{where}: {said(error)}", hint=seeing_all(said(error)) or _GRANTS)
    known = ours(error, where)
    if isinstance(known, NotCapturable):
        return StoreRefused(where, said(error), epoch=epoch)
    return known
