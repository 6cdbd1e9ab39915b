"""Where a database is: `postgresql://user@host:port/database?option=value`, as libpq takes it."""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

import psycopg

from headrace.base.errors import InvalidPlan, did_you_mean
from headrace.connect.postgres.errors import ours

if TYPE_CHECKING:
    from collections.abc import Iterator

SCHEMES = ("postgresql", "postgres")
_FROM_ENVIRONMENT = "env:"
_SETTINGS = {
    "datestyle": "ISO,YMD",
    "intervalstyle": "iso_8601",
    "timezone": "UTC",
    "extra_float_digits": "3",
    "bytea_output": "hex",
    "client_encoding": "UTF8",
    "statement_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "row_security": "off",
}
"""Texts of values are the same whatever the server, the database or the role prefers; and a statement that would not
see rows, by a policy, fails instead."""
_UNLESS_GIVEN = {"connect_timeout": "15", "application_name": "headrace", "keepalives_idle": "30"}


@dataclass(frozen=True, slots=True)
class PostgresAddress:
    """A database. Printing it shows no secrets.

    A password `env:NAME` is that of the environment variable when a connection is opened, in each process. Without a
    password, libpq looks for one: PGPASSWORD, then the file ~/.pgpass.
    """

    url: str = field(repr=False)

    @staticmethod
    def parse(text: str) -> PostgresAddress:
        """Return the address that a text names.

        Raises:
            InvalidPlan: it is none, or has an option that libpq does not know.

        """
        parts = urlsplit(text) if isinstance(text, str) else None
        if parts is None or parts.scheme not in SCHEMES or not parts.path.strip("/"):
            shown = PostgresAddress(text).place if parts is not None else repr(text)
            raise InvalidPlan(
                f"{shown} is no address of a PostgreSQL database", hint='For example "postgresql://ada@localhost/shop".'
            )
        address = PostgresAddress(text)
        known = {each.keyword.decode() for each in psycopg.pq.Conninfo.get_defaults()} | {"ssl"}
        for name in address.given:
            if name not in known:
                raise InvalidPlan(
                    f'{address}: there is no option "{name}"', hint=did_you_mean(name, sorted(known)) or "See libpq."
                )
        return address

    @property
    def given(self) -> dict[str, str]:
        """Return the options in the address."""
        return dict(parse_qsl(urlsplit(self.url).query, keep_blank_values=True))

    @property
    def place(self) -> str:
        """Return host, port and database: what is the same for every user."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"

    def __str__(self) -> str:
        parts = urlsplit(self.url)
        user = parts.netloc.rpartition("@")[0].partition(":")[0]
        return f"{parts.scheme}://{f'{user}@' if user else ''}{parts.netloc.rpartition('@')[2]}{parts.path}"

    @contextmanager
    def connected(self, **options: Any) -> Iterator[psycopg.Connection]:
        """Connect for as long as the block runs; each statement commits.

        Raises:
            Unavailable: the server does not answer, also in the midst of the block.
            LoginRefused: it refuses the user or the database.
            NotCapturable: it refuses a statement.

        """
        try:
            with psycopg.connect(self._resolved(), autocommit=True, **self._options(options)) as connection:
                yield connection
        except psycopg.Error as error:
            raise ours(error, str(self)) from error

    def open(self, **options: Any) -> psycopg.Connection:
        """Return a connection; each statement commits. It raises what `connected` does."""
        try:
            return psycopg.connect(self._resolved(), autocommit=True, **self._options(options))
        except psycopg.Error as error:
            raise ours(error, str(self)) from error

    def _resolved(self) -> str:
        parts, options = urlsplit(self.url), self.given
        login, _, host = parts.netloc.rpartition("@")
        user, _, password = login.partition(":")
        named = unquote(password).removeprefix(_FROM_ENVIRONMENT)
        if named != unquote(password):
            password = quote(_variable(named), safe="")
        if options.get("password", "").startswith(_FROM_ENVIRONMENT):
            options["password"] = _variable(options["password"].removeprefix(_FROM_ENVIRONMENT))
        login = f"{user}:{password}" if password else user
        netloc = f"{login}@{host}" if login else host
        return urlunsplit((parts.scheme, netloc, parts.path, urlencode(options, quote_via=quote), ""))

    def _options(self, more: dict[str, Any]) -> dict[str, Any]:
        settings = " ".join(f"-c {name}={value}" for name, value in _SETTINGS.items() if name != "client_encoding")
        unless_given = {name: value for name, value in _UNLESS_GIVEN.items() if name not in self.given}
        return (
            unless_given
            | {
                "options": f"{self.given.get('options', '')} {settings}".strip(),
                "client_encoding": _SETTINGS["client_encoding"],
            }
            | more
        )


def split_table(name: str) -> tuple[str, str]:
    """Return schema and name of a table named `schema.table` or `table` (then of the schema public).

    Raises:
        InvalidPlan: it is no name of a table.

    """
    found = (
        re.fullmatch(r'(?:(?:"([^"]+)"|([\w$]+))\.)?(?:"([^"]+)"|([\w$]+))', name) if isinstance(name, str) else None
    )
    if found is None:
        raise InvalidPlan(f"{name!r} is no table of PostgreSQL", hint='For example "public.customers".')
    return found[1] or found[2] or "public", found[3] or found[4]


def _variable(name: str) -> str:
    if name not in os.environ:
        raise InvalidPlan(f"password=env:{name}: the environment has no variable {name}", hint="Set it.")
    return os.environ[name]
