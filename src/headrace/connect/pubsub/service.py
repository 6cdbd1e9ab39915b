"""Pub/Sub: its clients, and its failures as ours. Credentials are found where Google's tools find them."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import grpc
from google.api_core import exceptions as failed
from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError, RefreshError
from google.pubsub_v1 import PublisherClient, SubscriberClient

from headrace.base.broker_errors import BrokerFailed, LoginRefused, QueueMissing
from headrace.base.errors import InvalidArgument
from headrace.base.outside import AccessRefused, Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

EMULATOR = "PUBSUB_EMULATOR_HOST"
SECONDS = 30.0
_UNLIMITED = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
# gRPC shares connections of one address between the channels of a process, and with them how long to wait after a
# failure: a new channel would fail at once by the wait of one that is closed, or of another feed's.
_OF_ITS_OWN = ("grpc.use_local_subchannel_pool", 1)
_LATER = (
    failed.ServerError,
    failed.Aborted,
    failed.Cancelled,
    failed.DeadlineExceeded,
    failed.ResourceExhausted,
    failed.RetryError,
    failed.TooManyRequests,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PubSubService:
    """Where a topic or subscription is: `path` is `projects/P/topics/T` or `projects/P/subscriptions/S`.

    `credentials` is a file; without one Google's client finds them. `endpoint` is another address than Google's;
    `http://host:port` is one of an emulator, without TLS and credentials.
    """

    path: str
    endpoint: str | None
    credentials: str | None

    @staticmethod
    def named(kind: str, name: str, *, endpoint: str | None, credentials: str | None) -> PubSubService:
        """Return the place of a topic or subscription.

        Args:
            kind: "topics" or "subscriptions".
            name: its path, `projects/P/<kind>/N`.
            endpoint: as above.
            credentials: as above.

        Raises:
            InvalidArgument: it is no such path.

        """
        parts = name.split("/") if isinstance(name, str) else []
        if len(parts) != 4 or parts[0] != "projects" or parts[2] != kind or not all(parts):  # noqa: PLR2004
            raise InvalidArgument(f"{name!r} is not of the form projects/PROJECT/{kind}/NAME")
        return PubSubService(path=name, endpoint=endpoint, credentials=credentials)

    @property
    def place(self) -> str:
        """What people call it."""
        return f"{self.path} of Pub/Sub"

    def publisher(self) -> Any:
        """Return a client that publishes.

        Raises:
            LoginRefused: there are no credentials.

        """
        return self._client(PublisherClient)

    def subscriber(self) -> Any:
        """Return a client that receives.

        Raises:
            LoginRefused: there are no credentials.

        """
        return self._client(SubscriberClient)

    def _client(self, kind: Any) -> Any:
        emulator = os.environ.get(EMULATOR)
        plain = self.endpoint or (f"http://{emulator}" if emulator else "")
        with self.failures():
            if plain.startswith("http://"):
                channel = grpc.insecure_channel(plain.removeprefix("http://"), options=[*_UNLIMITED, _OF_ITS_OWN])
                return kind(transport=kind.get_transport_class("grpc")(channel=channel))
            how: dict[str, Any] = {"transport": _apart(kind.get_transport_class("grpc"))}
            how["client_options"] = {"api_endpoint": self.endpoint} if self.endpoint else {}
            if self.credentials is not None:
                return kind.from_service_account_file(self.credentials, **how)
            return kind(**how)

    @contextmanager
    def failures(self) -> Iterator[None]:
        """Turn errors of the client into ours.

        Raises:
            Unavailable: Pub/Sub does not answer, or is called too often.
            LoginRefused: there are no credentials, or wrong ones.
            AccessRefused: they may not do this.
            QueueMissing: there is no such topic or subscription.
            BrokerFailed: it refuses the request.

        """
        try:
            yield
        except failed.NotFound as error:
            raise QueueMissing(
                f"there is no {self.place}", hint=f"Create it: gcloud pubsub {self.path.split('/')[2]} create."
            ) from error
        except (failed.Unauthenticated, DefaultCredentialsError, RefreshError, FileNotFoundError) as error:
            raise LoginRefused(
                f"{self.place} has no valid credentials: {error}",
                hint="Set GOOGLE_APPLICATION_CREDENTIALS, log in by gcloud, or give credentials=FILE.",
            ) from error
        except failed.PermissionDenied as error:
            raise AccessRefused(
                f"{self.place} does not let these credentials do this: {error.message}",
                hint="They need the role roles/pubsub.subscriber to read, roles/pubsub.publisher to write.",
            ) from error
        except _LATER as error:
            raise Unavailable(f"{self.place} does not answer: {error}") from error
        except failed.GoogleAPICallError as error:
            raise BrokerFailed(f"{self.place} refuses a request: {error}") from error
        except (GoogleAuthError, OSError, grpc.RpcError) as error:
            raise Unavailable(f"{self.place} does not answer: {type(error).__name__}: {error}") from error


def _apart(transport: Any) -> Any:
    class Apart(transport):  # type: ignore[misc]  # each client has a transport of its own
        @classmethod
        def create_channel(cls, *args: Any, options: Any = (), **how: Any) -> Any:
            return super().create_channel(*args, options=[*options, _OF_ITS_OWN], **how)

    return Apart
