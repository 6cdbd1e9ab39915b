"""A schema registry: Confluent's API, which Apicurio, Karapace and Redpanda have as well."""

from __future__ import annotations

import base64
import json
import os
import ssl
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit
from urllib.request import Request, urlopen

from headrace.base.blame import OutsideError
from headrace.base.errors import InvalidPlan
from headrace.base.outside import Unavailable
from headrace.base.time import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable

_T = TypeVar("_T")
TRIES = 4
TIMEOUT_SECONDS = 10
_TYPE = "application/vnd.schemaregistry.v1+json"
_FROM_ENVIRONMENT = "env:"
_PASSING = (408, 429, 500, 502, 503, 504)


class RegistryRefused(OutsideError):
    """A schema registry refuses what it is asked."""

    condition = "REGISTRY_REFUSED"


class Schema(NamedTuple):
    """A schema as the registry has it."""

    text: str
    kind: str
    """"AVRO", "PROTOBUF" or "JSON"."""
    references: tuple[tuple[str, str, int], ...] = ()
    """Of other schemas: the name by which it is meant, the subject, and the version."""


@dataclass(frozen=True, slots=True)
class Registry:
    """Where a registry is. Values `env:NAME` are those of the environment, read in each process: no secret is kept."""

    url: str
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    ca: str | None = None
    """A file with the certificates that are trusted; None: the machine's."""

    def schema(self, number: int) -> Schema | None:
        """Return the schema with an id, None if there is none; it is asked for once by a process.

        Raises:
            Unavailable: the registry does not answer.
            RegistryRefused: it refuses.

        """
        known = _KNOWN.setdefault(self.url, {})
        if number not in known:
            found = self._asked("GET", f"/schemas/ids/{number}")
            if found is None:
                return None
            known[number] = self._understood(_schema, found)
        return known[number]

    def version(self, subject: str, version: int) -> Schema:
        """Return a version of a subject's schema."""
        found = self._asked("GET", f"/subjects/{quote(subject, safe='')}/versions/{version}")
        if found is None:
            raise RegistryRefused(f'the registry {self.place} has no version {version} of "{subject}"')
        return self._understood(_schema, found)

    def register(self, subject: str, text: str, kind: str) -> int:
        """Return the id of a schema, which is registered as the newest of the subject unless it is there.

        Raises:
            Unavailable: the registry does not answer.
            RegistryRefused: the schema is incompatible with the subject's former ones, or may not be registered.

        """
        registered = _REGISTERED.setdefault(self.url, {})
        if (subject, text) not in registered:
            body = {"schema": text} | ({} if kind == "AVRO" else {"schemaType": kind})
            found = self._asked("POST", f"/subjects/{quote(subject, safe='')}/versions", body)
            if found is None:
                raise RegistryRefused(f'the registry {self.place} does not take schemas for "{subject}"')
            registered[subject, text] = self._understood(lambda answer: int(answer["id"]), found)
        return registered[subject, text]

    @property
    def place(self) -> str:
        """Its address without credentials."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}{parts.path}"

    def _asked(self, method: str, path: str, body: object = None) -> Any:
        """Return the answer, None if there is no such thing; asked again where the failure may pass."""
        for attempt in range(TRIES):
            try:
                return self._answer(method, path, body)
            except HTTPError as error:
                if error.code == 404:
                    return self._absent(error)
                if error.code not in _PASSING:
                    raise self._refusal(error) from error
                why = f"it answers {error.code}"
            except (URLError, OSError, ValueError, HTTPException) as error:  # the last: it stops amid an answer
                why = str(getattr(error, "reason", error))
            if attempt + 1 < TRIES:
                SystemClock().sleep(0.1 * 4**attempt)
        raise Unavailable(
            f"the schema registry {self.place} does not answer: {why}", hint="Check the address of registry=."
        )

    def _understood(self, read: Callable[[Any], _T], answer: Any) -> _T:
        try:
            return read(answer)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise self._no_registry(answer) from error

    def _absent(self, error: HTTPError) -> None:
        """Refuse what is not found at all; where a registry has no such schema or subject, it says so."""
        text = error.read().decode("utf-8", "replace")
        try:
            number = int(json.loads(text)["error_code"])
        except (KeyError, TypeError, ValueError):
            number = 404
        if number // 100 != 404:
            raise self._no_registry(f"404 {text}") from error

    def _no_registry(self, answer: object) -> RegistryRefused:
        return RegistryRefused(
            f"what answers at {self.place} is no schema registry: {str(answer)[:200]}",
            hint="Check the address of registry=, with its path.",
        )

    def _answer(self, method: str, path: str, body: object) -> Any:
        request = Request(  # noqa: S310 -- the address is checked to be one of HTTP
            self.url.rstrip("/") + path, method=method, data=None if body is None else json.dumps(body).encode()
        )
        request.add_header("Accept", f"{_TYPE}, application/json")
        request.add_header("Content-Type", _TYPE)
        if self.username is not None:
            pair = f"{_value(self.username)}:{_value(self.password or '')}"
            request.add_header("Authorization", f"Basic {base64.b64encode(pair.encode()).decode()}")
        secure = ssl.create_default_context(cafile=self.ca) if self.url.startswith("https:") else None
        with urlopen(request, timeout=TIMEOUT_SECONDS, context=secure) as answer:  # noqa: S310 -- the same
            return json.load(answer)

    def _refusal(self, error: HTTPError) -> RegistryRefused:
        try:
            message = json.load(error).get("message", "")
        except (ValueError, AttributeError, OSError):
            message = ""
        hints = {
            401: "Give registry(url, username=…, password=…).",
            403: "Ask for the permission.",
            409: "The schema is incompatible with the former ones of the subject: give new columns a default, or "
            "use another subject.",
        }
        return RegistryRefused(
            f"the schema registry {self.place} refuses ({error.code})",
            detail=message[:500],
            hint=hints.get(error.code, ""),
        )


_KNOWN: dict[str, dict[int, Schema]] = {}
_REGISTERED: dict[str, dict[tuple[str, str], int]] = {}


def registry(url: str, *, username: str | None = None, password: str | None = None, ca: str | None = None) -> Registry:
    """Return a schema registry for `avro` and `protobuf`.

    Args:
        url: such as "https://registry:8081"; of Apicurio with the path "/apis/ccompat/v7".
        username: for basic authentication.
        password: the same; "env:NAME" is the value of an environment variable, so that no program has the secret.
        ca: a file with the certificates that are trusted.

    Raises:
        InvalidPlan: it is no address.

    """
    parts = urlsplit(url) if isinstance(url, str) else None
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidPlan(f"registry={url!r} is no address", hint='For example "http://localhost:8081".')
    if parts.username or parts.password:
        raise InvalidPlan(
            "the address of the registry has credentials", hint='Give registry(url, username=…, password="env:NAME").'
        )
    return Registry(url, username, password, ca)


def registry_of(given: str | Registry | None) -> Registry | None:
    """Return the registry that `registry=` means."""
    return registry(given) if isinstance(given, str) else given


def _schema(found: Any) -> Schema:
    references = tuple(
        (str(each["name"]), str(each["subject"]), int(each["version"])) for each in found.get("references") or ()
    )
    return Schema(str(found["schema"]), str(found.get("schemaType") or "AVRO"), references)


def _value(text: str) -> str:
    variable = text.removeprefix(_FROM_ENVIRONMENT)
    if variable == text:
        return text
    if variable not in os.environ:
        raise InvalidPlan(f"the environment has no variable {variable}, which the registry needs", hint="Set it.")
    return os.environ[variable]
