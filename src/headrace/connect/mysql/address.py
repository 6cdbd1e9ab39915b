"""Where a database is: `mysql://user@host:port/database?option=value`."""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlsplit

import pymysql

from headrace.base.errors import InvalidPlan
from headrace.connect.mysql.errors import ours

if TYPE_CHECKING:
    from collections.abc import Iterator

SCHEMES = ("mysql", "mariadb")
OPTIONS = ("ssl_ca", "ssl_cert", "ssl_key")
"""Files for TLS; with `ssl_ca` the server must show a certificate of it, for its host."""
_FROM_ENVIRONMENT = "env:"
_PORT = 3306
_CONNECT_SECONDS, _ANSWER_SECONDS = 15, 600
_SESSION = (
    "SET SESSION time_zone = '+00:00', sql_mode = '', net_write_timeout = 600, tx_isolation = 'REPEATABLE-READ', "
    "max_statement_time = 0, idle_transaction_timeout = 0, idle_write_transaction_timeout = 0"
)
"""Texts of values are the same whatever the server prefers; and no epoch is too long for it."""


@dataclass(frozen=True, slots=True)
class MysqlAddress:
    """A database. Printing it shows no secrets. A password `env:NAME` is that of the environment variable."""

    url: str = field(repr=False)

    @staticmethod
    def parse(text: str) -> MysqlAddress:
        """Return the address that a text names.

        Raises:
            InvalidPlan: it is none.

        """
        parts = urlsplit(text) if isinstance(text, str) else None
        if parts is None or parts.scheme not in SCHEMES or not parts.path.strip("/") or not parts.hostname:
            shown = str(MysqlAddress(text)) if parts is not None else repr(text)
            raise InvalidPlan(
                f"{shown} is no address of a MariaDB database", hint='For example "mysql://ada@localhost/shop".'
            )
        unknown = [name for name, _ in parse_qsl(parts.query) if name not in OPTIONS]
        if unknown:
            raise InvalidPlan(
                f'{MysqlAddress(text)}: there is no option "{unknown[0]}"', hint=f"Options are {', '.join(OPTIONS)}."
            )
        return MysqlAddress(text)

    @property
    def server(self) -> str:
        """Return host and port: what has one log."""
        parts = urlsplit(self.url)
        return f"mysql://{parts.hostname}:{parts.port or _PORT}"

    @property
    def database(self) -> str:
        """Return the name of the database."""
        return unquote(urlsplit(self.url).path.strip("/"))

    def __str__(self) -> str:
        parts = urlsplit(self.url)
        user = parts.netloc.rpartition("@")[0].partition(":")[0]
        return f"{parts.scheme}://{f'{user}@' if user else ''}{parts.netloc.rpartition('@')[2]}{parts.path}"

    def open(self) -> pymysql.Connection[Any]:
        """Return a connection; each statement commits.

        Raises:
            Unavailable: the server does not answer.
            LoginRefused: it refuses the user or the database.

        """
        parts = urlsplit(self.url)
        login = parts.netloc.rpartition("@")[0].partition(":")
        try:
            connection = pymysql.connect(
                host=parts.hostname,
                port=parts.port or _PORT,
                user=unquote(login[0]) or None,
                password=_password(unquote(login[2])),
                database=self.database,
                charset="utf8mb4",
                autocommit=True,
                connect_timeout=_CONNECT_SECONDS,
                read_timeout=_ANSWER_SECONDS,
                write_timeout=_ANSWER_SECONDS,
                **self._tls(),
            )
            with connection.cursor() as cursor:
                cursor.execute(_SESSION)
        except pymysql.Error as error:
            raise ours(error, str(self)) from error
        return connection

    @contextmanager
    def connected(self) -> Iterator[pymysql.Connection[Any]]:
        """Connect for as long as the block runs; it raises what `open` does, also in the midst of the block.

        Raises:
            NotCapturable: the server refuses a statement.

        """
        connection = self.open()
        try:
            yield connection
        except pymysql.Error as error:
            raise ours(error, str(self)) from error
        finally:
            if connection.open:
                connection.close()

    def _tls(self) -> dict[str, Any]:
        options: dict[str, Any] = dict(parse_qsl(urlsplit(self.url).query))
        return options | ({"ssl_verify_cert": True, "ssl_verify_identity": True} if "ssl_ca" in options else {})


def split_table(name: str, database: str) -> tuple[str, str]:
    """Return database and name of a table named `database.table` or `table`.

    Raises:
        InvalidPlan: it is no name of a table.

    """
    found = (
        re.fullmatch(r"(?:(?:`([^`]+)`|([\w$]+))\.)?(?:`([^`]+)`|([\w$]+))", name) if isinstance(name, str) else None
    )
    if found is None:
        raise InvalidPlan(f"{name!r} is no table of MariaDB", hint='For example "customers".')
    return found[1] or found[2] or database, found[3] or found[4]


def _password(given: str) -> str:
    named = given.removeprefix(_FROM_ENVIRONMENT)
    if named == given:
        return given
    if named not in os.environ:
        raise InvalidPlan(f"password env:{named}: the environment has no variable {named}", hint="Set it.")
    return os.environ[named]
