"""Where a Cassandra is: `cassandra://user:password@host,host:port/keyspace`, and its failures as ours."""

from __future__ import annotations

import os
import ssl
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import cassandra
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable
from cassandra.policies import DCAwareRoundRobinPolicy, TokenAwarePolicy

from headrace.base.errors import InvalidPlan
from headrace.base.outside import AccessRefused, Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

SCHEMES = ("cassandra", "cassandras")
SECONDS = 30
PORT = 9042
_FROM_ENVIRONMENT = "env:"


@dataclass(frozen=True, slots=True)
class CassandraAddress:
    """A keyspace of a cluster. Printing it shows no password; `env:NAME` is that of the environment variable."""

    url: str = field(repr=False)

    @staticmethod
    def parse(text: str) -> CassandraAddress:
        """Return the address that a text names.

        Raises:
            InvalidPlan: it is none, or names no keyspace.

        """
        parts = urlsplit(text) if isinstance(text, str) else None
        if parts is None or parts.scheme not in SCHEMES or not parts.path.strip("/"):
            raise InvalidPlan(
                "this is no address of a keyspace of Cassandra", hint='For example "cassandra://db.example.org/shop".'
            )
        port = CassandraAddress(text).hosts[1]
        if port and not port.isdecimal():
            raise InvalidPlan(f'"{port}" is no port', hint='For example "cassandra://db.example.org:9042/shop".')
        return CassandraAddress(text)

    @property
    def keyspace(self) -> str:
        """The keyspace."""
        return unquote(urlsplit(self.url).path.strip("/"))

    @property
    def place(self) -> str:
        """The address without user and password."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}/{self.keyspace}"

    @property
    def hosts(self) -> tuple[str, str]:
        """The hosts, separated by commas, and the port, empty where none is given."""
        hosts = urlsplit(self.url).netloc.rpartition("@")[2]
        name, _, port = hosts.partition(":") if hosts.count(":") == 1 else (hosts, "", "")
        return name, port

    def cluster(self) -> Cluster:
        """Return a client of the cluster, which is not connected yet.

        Raises:
            InvalidPlan: a variable of the environment is not there.

        """
        parts = urlsplit(self.url)
        login = parts.netloc.rpartition("@")[0]
        user, _, password = (unquote(part) for part in login.partition(":"))
        if password.startswith(_FROM_ENVIRONMENT):
            name = password.removeprefix(_FROM_ENVIRONMENT)
            if name not in os.environ:
                raise InvalidPlan(f"the password of {self.place} is to be that of ${name}, which is not set")
            password = os.environ[name]
        hosts, port = self.hosts
        profile = ExecutionProfile(
            load_balancing_policy=TokenAwarePolicy(DCAwareRoundRobinPolicy()),
            consistency_level=cassandra.ConsistencyLevel.LOCAL_QUORUM,
            request_timeout=SECONDS,
        )
        return Cluster(
            hosts.split(","),
            port=int(port or PORT),
            auth_provider=PlainTextAuthProvider(user, password) if user else None,
            ssl_context=ssl.create_default_context() if parts.scheme == "cassandras" else None,
            execution_profiles={EXEC_PROFILE_DEFAULT: profile},
            connect_timeout=SECONDS,
            control_connection_timeout=SECONDS,
        )


@contextmanager
def failures(where: str) -> Iterator[None]:
    """Turn errors of the client into ours; what refuses rows is not caught.

    Raises:
        Unavailable: no node answers, or too few of those that have the rows.
        AccessRefused: user, password or rights are wrong.

    """
    try:
        yield
    except (cassandra.AuthenticationFailed, cassandra.Unauthorized) as error:
        raise _refused(where, str(error)) from None
    except NoHostAvailable as error:
        causes: list[Any] = list(error.errors.values())
        if any(isinstance(each, cassandra.AuthenticationFailed) for each in causes):
            raise _refused(where, str(causes[0])) from None
        raise Unavailable(f"{where} does not answer: {causes[0] if causes else error}") from None
    except (cassandra.OperationTimedOut, cassandra.RequestExecutionException, OSError) as error:
        raise Unavailable(f"{where} does not answer: {type(error).__name__}: {error}") from None


def _refused(where: str, said: str) -> AccessRefused:
    return AccessRefused(
        f"{where} refuses the user: {said}",
        hint="The address needs the right password, and the user the rights CREATE, SELECT and MODIFY on the keyspace.",
    )
