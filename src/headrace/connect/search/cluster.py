"""Where an OpenSearch is: `http://user:password@host:port`, its requests, and its failures as ours."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from opensearchpy import OpenSearch
from opensearchpy.exceptions import ConnectionError as NoConnection
from opensearchpy.exceptions import OpenSearchException, TransportError

from headrace.base.errors import InvalidPlan
from headrace.base.outside import AccessRefused, Unavailable

SECONDS = 60
_FROM_ENVIRONMENT = "env:"
_LATER = frozenset({408, 429, 500, 502, 503, 504})
_REFUSED = frozenset({401, 403})


class _Exact:
    """JSON for the client: numbers are read with all their digits; a text is sent as it is."""

    mimetype = "application/json"

    def loads(self, text: str) -> Any:
        return json.loads(text, parse_float=Decimal)

    def dumps(self, body: Any) -> str:
        return body if isinstance(body, str) else json.dumps(body)


class Refused(Exception):
    """The server has answered with a status that is none of ours to explain."""

    def __init__(self, status: int, said: str) -> None:
        super().__init__(f"{status}: {said}")
        self.status = status


@dataclass(frozen=True, slots=True)
class ClusterAddress:
    """A cluster. Printing it shows no password; `env:NAME` is that of the environment variable."""

    url: str = field(repr=False)

    @staticmethod
    def parse(text: str) -> ClusterAddress:
        """Return the address that a text names.

        Raises:
            InvalidPlan: it is none.

        """
        parts = urlsplit(text) if isinstance(text, str) else None
        if parts is None or parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/"):
            raise InvalidPlan(
                "this is no address of an OpenSearch", hint='For example "http://search.example.org:9200".'
            )
        unknown = [name for name, _ in parse_qsl(parts.query) if name != "ssl_ca"]
        if unknown:
            raise InvalidPlan(
                f'{ClusterAddress(text)}: there is no option "{unknown[0]}"', hint="There is ssl_ca=FILE."
            )
        return ClusterAddress(text)

    def __str__(self) -> str:
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"

    def open(self) -> Cluster:
        """Return a client; it connects when it is used.

        Raises:
            InvalidPlan: a variable of the environment is not there.

        """
        parts = urlsplit(self.url)
        user, _, password = (unquote(part) for part in parts.netloc.rpartition("@")[0].partition(":"))
        if password.startswith(_FROM_ENVIRONMENT):
            name = password.removeprefix(_FROM_ENVIRONMENT)
            if name not in os.environ:
                raise InvalidPlan(f"the password of {self} is to be that of ${name}, which is not set", hint="Set it.")
            password = os.environ[name]
        client = OpenSearch(
            str(self),
            http_auth=(user, password) if user else None,
            ca_certs=dict(parse_qsl(parts.query)).get("ssl_ca"),
            serializer=_Exact(),
            timeout=SECONDS,
            max_retries=0,
        )
        return Cluster(str(self), client)


class Cluster:
    """An open client."""

    def __init__(self, where: str, client: OpenSearch) -> None:
        self.where, self._client = where, client

    def ask(self, method: str, path: str, body: Any = None, **parameters: Any) -> Any:
        """Send a request and return its answer; None where what it names is not there.

        Raises:
            Unavailable: no node answers, or too many requests wait there.
            AccessRefused: user, password or rights are wrong.
            Refused: it is answered in another way.

        """
        try:
            return self._client.transport.perform_request(method, path, params=parameters, body=body)
        except NoConnection as error:
            raise Unavailable(f"{self.where} does not answer: {error.error}") from None
        except TransportError as error:
            status = error.status_code if isinstance(error.status_code, int) else 0
            said = f"{error.error}: {_reason(error.info)}"
            if status == 404:  # noqa: PLR2004 - HTTP's own number
                return None
            if status in _LATER:
                raise Unavailable(f"{self.where} does not answer: {status}: {said}") from None
            if status in _REFUSED:
                raise AccessRefused(
                    f"{self.where} refuses the user: {said}",
                    hint="The address needs the right password, and the user the rights to create and write the index.",
                ) from None
            raise Refused(status, said) from None
        except OpenSearchException as error:
            raise Unavailable(f"{self.where} does not answer: {error}") from None

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


def _reason(info: Any) -> str:
    error = info.get("error", info) if isinstance(info, dict) else info
    return str(error.get("reason", error) if isinstance(error, dict) else error)
