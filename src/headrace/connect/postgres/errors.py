"""What can be wrong with a PostgreSQL that is captured, each with the next move; and its own errors as ours."""

from __future__ import annotations

import re

import psycopg

from headrace.base.blame import OutsideError, PlanError
from headrace.base.outside import Unavailable
from headrace.connect.capture.errors import SNAPSHOT, NotCapturable

_LATER = ("08", "53", "57", "55006", "40", "25P03", "25P04")
"""Classes of states that may pass: connections, resources, an operator, a slot in use, conflicts, limits of time."""
_LOGIN = ("28", "3D000")
_NO_ENTRY = re.compile(
    r'no pg_hba.conf entry|FATAL: +(database|role) ".*" (does not exist|is not)|: invalid (\w+ value|port number):'
)
NO_RIGHT = "42501"
_SECRET = re.compile(r"(password\s*=\s*)\S+", re.IGNORECASE)


class LoginRefused(PlanError):
    """The server refuses the user, the password or the database."""

    condition = "LOGIN_REFUSED"

    def __init__(self, where: str, why: str) -> None:
        super().__init__(
            f"{where} refuses the login: {why}",
            hint="Correct the address. Its password may be env:NAME, or come from PGPASSWORD or ~/.pgpass.",
        )


class SlotLost(OutsideError):
    """The slot that kept the changes since the stored position is gone, so they are, too."""

    condition = "SLOT_LOST"

    def __init__(self, slot: str, *, position: str, why: str) -> None:
        super().__init__(
            f'the replication slot "{slot}" {why}',
            detail=f"Changes after {position} that were not captured yet cannot be read any more.",
            hint=f"{SNAPSHOT}, with all topics of the slot, reads their tables anew, by a new slot.",
        )


class SlotAdvanced(OutsideError):
    """Somebody else has confirmed changes of the slot that this feed has never landed."""

    condition = "SLOT_ADVANCED"

    def __init__(self, slot: str, *, position: str, confirmed: str) -> None:
        super().__init__(
            f'the replication slot "{slot}" is at {confirmed}, but only what is before {position} was captured',
            detail="Another reader has used the slot, or the log was restored from an older copy.",
            hint=f"Give each app a slot of its own (slot=…); then {SNAPSHOT}, with all topics of the slot, reads their "
            "tables anew.",
        )


class SlotBusy(Unavailable):
    """Another process reads the slot now; it is tried again."""

    condition = "SLOT_BUSY"

    def __init__(self, slot: str, process: object) -> None:
        super().__init__(
            f'another process reads the replication slot "{slot}" (server process {process})',
            hint="One app reads a slot: give the other one a slot of its own (slot=…). A connection that was lost is "
            "noticed by the server after wal_sender_timeout.",
        )


class PreparedTransactionBlocks(Unavailable):
    """A slot cannot be created while a transaction is prepared."""

    condition = "PREPARED_TRANSACTION_BLOCKS"

    def __init__(self, slot: str, transactions: list[str]) -> None:
        super().__init__(
            f'the slot "{slot}" cannot be created while transactions are prepared: {", ".join(transactions)}',
            detail="A new slot waits for every transaction that has begun, and prepared ones wait for somebody.",
            hint=f"COMMIT PREPARED '{transactions[0]}' or ROLLBACK PREPARED '{transactions[0]}'; it is tried again.",
        )


def seeing_all(said: str) -> str:
    """Return what helps where policies would hide rows from the role, "" where that is not what is said."""
    if "row-level security" not in said:
        return ""
    return "A policy would hide rows from the role without a word: ALTER ROLE … BYPASSRLS, or let it own the table."


def ours(error: psycopg.Error, where: str) -> Exception:
    """Return an error of psycopg as one of ours; it never has a password."""
    state = error.sqlstate or ""
    said = _SECRET.sub(r"\1***", str(error.diag.message_primary or error).strip().splitlines()[0])
    if (
        state.startswith(_LOGIN)
        or "authentication failed" in said
        or "no password supplied" in said
        or _NO_ENTRY.search(said)
    ):
        return LoginRefused(where, said)
    if state == NO_RIGHT:
        return NotCapturable(
            f"{where}: {said}", hint=seeing_all(said) or "Grant the role what it needs: docs/postgres.md."
        )
    if isinstance(error, psycopg.OperationalError) or state.startswith(_LATER) or not state:
        return Unavailable(f"{where} does not answer: {said}")
    return NotCapturable(f"{where}: {said}")
