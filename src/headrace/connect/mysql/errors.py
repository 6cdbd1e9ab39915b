"""What can be wrong with a MariaDB that is captured, each with the next move; and its own errors as ours."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from headrace.base.blame import PlanError
from headrace.base.outside import Unavailable
from headrace.connect.capture.errors import NotCapturable

if TYPE_CHECKING:
    import pymysql

_LOGIN = frozenset({1044, 1045, 1049, 1251, 1698, 1820, 1862, 2059, 2061, 4151})
"""Access denied, an unknown database, an old password, a locked user, a way to log in that the client does not have."""
_LATER = frozenset({1040, 1053, 1077, 1152, 1158, 1159, 1160, 1161, 1184, 1203, 1205, 1213, 1226, 1927, 1969})
"""Too many connections, a shutdown, broken connections, locks, time limits; those of the client itself are others."""
_OF_CLIENT = range(2000, 3000)
_RIGHTS = frozenset({1142, 1143, 1227})
RIGHTS = "GRANT REPLICATION SLAVE ON *.* TO …; GRANT SELECT ON … TO …"


class LoginRefused(PlanError):
    """The server refuses the user, the password or the database."""

    condition = "LOGIN_REFUSED"

    def __init__(self, where: str, why: str) -> None:
        super().__init__(
            f"{where} refuses the login: {why}",
            hint="Correct the address. Its password may be env:NAME.",
        )


def ours(error: pymysql.Error, where: str) -> Exception:
    """Return an error of PyMySQL as one of ours; it never has a password."""
    code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    said = re.sub(r"\s+", " ", str(error.args[1] if len(error.args) > 1 else error)).strip()
    if code in _LOGIN:
        return LoginRefused(where, said)
    if code in _RIGHTS:
        return NotCapturable(f"{where}: {said}", hint=RIGHTS)
    if code == 0 or code in _LATER or code in _OF_CLIENT:
        return Unavailable(f"{where} does not answer: {said}")
    return NotCapturable(f"{where}: {said}")
