"""Where a Redis is: `redis://user:password@host:port/number`, or `rediss://` with TLS, and its failures as ours."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote, urlsplit, urlunsplit

import redis

from headrace.base.errors import InvalidPlan
from headrace.base.outside import AccessRefused, Unavailable
from headrace.connect.messages.address import place_of

if TYPE_CHECKING:
    from collections.abc import Iterator

SCHEMES = ("redis", "rediss", "unix")
SECONDS = 15
_FROM_ENVIRONMENT = "env:"
_LATER = ("READONLY", "LOADING", "MASTERDOWN", "BUSY", "OOM", "CLUSTERDOWN", "NOREPLICAS", "TRYAGAIN", "MISCONF")
_REFUSED = ("NOAUTH", "WRONGPASS", "NOPERM")


@dataclass(frozen=True, slots=True)
class RedisAddress:
    """A server. Printing it shows no password; a password `env:NAME` is that of the environment variable."""

    url: str = field(repr=False)

    @staticmethod
    def parse(text: str) -> RedisAddress:
        """Return the address that a text names.

        Raises:
            InvalidPlan: it is none.

        """
        if not isinstance(text, str) or urlsplit(text).scheme not in SCHEMES:
            raise InvalidPlan("this is no address of a Redis", hint='For example "redis://localhost:6379/0".')
        return RedisAddress(text)

    @property
    def place(self) -> str:
        """Return the address without user and password."""
        return place_of(self.url)

    @property
    def database(self) -> tuple[object, ...]:
        """Return the server and the number of its database, however the address says them."""
        found = redis.connection.parse_url(self.url)
        host, port = found.get("path") or found.get("host", "localhost").lower(), found.get("port", 6379)
        return host, port, int(found.get("db") or 0)

    def client(self) -> redis.Redis:
        """Return a client that does not retry: whoever calls does.

        Raises:
            InvalidPlan: a variable of the environment is not there.

        """
        parts = urlsplit(self.url)
        login, _, host = parts.netloc.rpartition("@")
        user, _, password = login.partition(":")
        if unquote(password).startswith(_FROM_ENVIRONMENT):
            name = unquote(password).removeprefix(_FROM_ENVIRONMENT)
            if name not in os.environ:
                raise InvalidPlan(f"the password of {self.place} is to be that of ${name}, which is not set")
            login = f"{user}:{quote(os.environ[name], safe='')}"
        whole = parts._replace(netloc=f"{login}@{host}" if login else host)
        options = {"socket_timeout": SECONDS, "socket_connect_timeout": SECONDS, "retry": None}
        return redis.Redis.from_url(urlunsplit(whole), **options)


@contextmanager
def failures(where: str) -> Iterator[None]:
    """Turn errors of the client into ours: what may pass, and what refuses the user; the others are not caught.

    Raises:
        Unavailable: the server does not answer, is loading, full, or a replica.
        AccessRefused: user, password or rights are wrong.

    """
    try:
        yield
    except redis.AuthenticationError as error:
        raise _refused(where, str(error)) from error
    except (redis.ConnectionError, redis.TimeoutError, OSError) as error:
        raise Unavailable(f"{where} does not answer: {type(error).__name__}: {error}") from error
    except redis.ResponseError as error:
        said = str(error)
        if isinstance(error, redis.ReadOnlyError | redis.exceptions.OutOfMemoryError) or said.startswith(_LATER):
            raise Unavailable(f"{where} takes no writes now: {said}") from error
        if isinstance(error, redis.exceptions.NoPermissionError) or said.startswith(_REFUSED):
            raise _refused(where, said) from error
        raise


def _refused(where: str, said: str) -> AccessRefused:
    return AccessRefused(
        f"{where} refuses the user: {said}",
        hint="The address needs the right password, and the user the rights for EVALSHA, SCRIPT, HSET, HMGET, SET, DEL "
        "and PEXPIRE on the keys of the prefix and on _headrace:*.",
    )
