"""Where a broker is: `scheme://user:password@host:port/path?option=value`, and secrets that nothing shows."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit, urlunsplit

from headrace.base.errors import InvalidPlan

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

FROM_ENVIRONMENT = "env:"


class Login(NamedTuple):
    """Who logs in; printing it would show the password."""

    user: str
    password: str


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """A broker. Printing it shows no password; a password `env:NAME` is that of the environment variable."""

    url: str = field(repr=False)

    @staticmethod
    def parse(text: str, *, schemes: Sequence[str], example: str) -> BrokerAddress:
        """Return the address that a text names.

        Raises:
            InvalidPlan: it is none.

        """
        if not names_host(text, schemes):
            raise InvalidPlan(f"this is no address with {' or '.join(schemes)}", hint=f'For example "{example}".')
        return BrokerAddress(text)

    @property
    def scheme(self) -> str:
        """The part before `://`."""
        return urlsplit(self.url).scheme

    @property
    def host(self) -> str:
        """The host's name."""
        return urlsplit(self.url).hostname or ""

    def port(self, default: int) -> int:
        """Return the port, the default if it has none."""
        return urlsplit(self.url).port or default

    @property
    def path(self) -> str | None:
        """What follows the host, decoded and without its first slash; None where nothing does, not even the slash."""
        path = urlsplit(self.url).path
        return unquote(path.removeprefix("/")) if path else None

    @property
    def options(self) -> Mapping[str, str]:
        """The options after the question mark."""
        return dict(parse_qsl(urlsplit(self.url).query, keep_blank_values=True))

    @property
    def place(self) -> str:
        """The address without user, password and options, for people and for identities."""
        return place_of(self.url)

    def login(self, *, user: str = "", password: str = "") -> Login:
        """Return who logs in, as given here where the address says nothing.

        Raises:
            InvalidPlan: a variable of the environment is not there.

        """
        parts = urlsplit(self.url)
        if parts.username is None and parts.password is None:
            return Login(user, password)
        found = secret(unquote(parts.password or ""), of=f"the password of {self.place}")
        return Login(unquote(parts.username or ""), found)

    def hidden(self, text: str) -> str:
        """Return a text of others, such as an error, without the password."""
        try:
            password = self.login().password
        except InvalidPlan:
            return text
        return text.replace(password, "***") if password else text


def names_host(text: object, schemes: Collection[str]) -> bool:
    """Return whether a text is a URL with one of these schemes and a host."""
    if not isinstance(text, str):
        return False
    try:
        parts = urlsplit(text)
        return parts.scheme in schemes and bool(parts.hostname) and parts.port != 0
    except ValueError:  # the port is no number, or a bracket is open
        return False


def place_of(url: str) -> str:
    """Return a URL without user, password and options."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def secret(given: str, *, of: str) -> str:
    """Return a secret as given, or that of the environment variable where it is `env:NAME`.

    Raises:
        InvalidPlan: the variable is not there.

    """
    name = given.removeprefix(FROM_ENVIRONMENT)
    if name == given:
        return given
    if name not in os.environ:
        raise InvalidPlan(f"{of} is to be that of ${name}, which is not set", hint="Set it.")
    return os.environ[name]
