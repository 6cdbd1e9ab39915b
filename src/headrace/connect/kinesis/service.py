"""A stream of Kinesis: its client, and its failures as ours. Credentials are found where Amazon's tools find them."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from headrace.base.broker_errors import BrokerFailed, LoginRefused, QueueMissing
from headrace.base.errors import InvalidArgument
from headrace.base.outside import AccessRefused, Unavailable
from headrace.connect import aws

if TYPE_CHECKING:
    from collections.abc import Iterator

SECONDS = 30
THROTTLED = frozenset({"ProvisionedThroughputExceededException", "LimitExceededException", "KMSThrottlingException"})
_LATER = THROTTLED | {
    "InternalFailure",
    "InternalServerError",
    "RequestTimeout",
    "ResourceInUseException",
    "ServiceUnavailable",
    "Throttling",
    "ThrottlingException",
}
_LOGIN = frozenset(
    {
        "ExpiredTokenException",
        "IncompleteSignature",
        "InvalidClientTokenId",
        "InvalidSignatureException",
        "MissingAuthenticationTokenException",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KinesisService:
    """Where a stream is. It has no secrets: Amazon's client finds them in the environment, a profile or a role."""

    stream: str
    region: str | None
    endpoint: str | None
    profile: str | None

    def __post_init__(self) -> None:
        """Check it.

        Raises:
            InvalidArgument: there is no stream.

        """
        if not isinstance(self.stream, str) or not self.stream:
            raise InvalidArgument(f"{self.stream!r} is no name of a stream")

    @property
    def place(self) -> str:
        """The stream, and where it is."""
        return f"the stream {self.stream} of Kinesis{f' at {self.endpoint}' if self.endpoint else ''}"

    @property
    def named(self) -> dict[str, str]:
        """How requests name the stream."""
        return {"StreamARN" if self.stream.startswith("arn:") else "StreamName": self.stream}

    def client(self) -> Any:
        """Return a client, which threads may share.

        Raises:
            LoginRefused: there is no region, or no such profile.

        """
        config = Config(
            connect_timeout=SECONDS, read_timeout=SECONDS, retries={"max_attempts": 1}, max_pool_connections=20
        )
        with self.failures():
            session = boto3.Session(profile_name=self.profile, region_name=self.region)
            return session.client("kinesis", endpoint_url=self.endpoint, config=config)

    @contextmanager
    def failures(self) -> Iterator[None]:
        """Turn errors of the client into ours.

        Raises:
            Unavailable: Kinesis does not answer, or is asked too often.
            LoginRefused: there are no credentials, or wrong ones.
            AccessRefused: they may not do this.
            QueueMissing: there is no such stream.
            BrokerFailed: it refuses the request.

        """
        with aws.failures(self.place, self._refused, lost=(BotoCoreError, OSError)):
            yield

    def _refused(self, error: ClientError) -> Exception:
        code, said = aws.code_of(error), aws.said_by(error)
        if code == "ResourceNotFoundException":
            return QueueMissing(
                f"there is no such thing: {self.place}: {said}", hint="Create it: aws kinesis create-stream."
            )
        if code in _LOGIN:
            return LoginRefused(
                f"{self.place} refuses the credentials: {code}", hint="Check them; they may have expired."
            )
        if code in {"AccessDeniedException", "AccessDenied", "KMSAccessDeniedException"}:
            return AccessRefused(
                f"{self.place} does not let these credentials do this: {said}",
                hint="They need kinesis:ListShards, GetShardIterator, GetRecords and DescribeStreamSummary to read, "
                "PutRecords to write.",
            )
        if code in _LATER or aws.server_failed(error):
            return Unavailable(f"{self.place}: {said}")
        return BrokerFailed(f"{self.place} refuses a request: {said}")
