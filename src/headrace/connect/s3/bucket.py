"""A bucket, or the keys of one that begin with a prefix, as a place of files. Its errors become ours.

Credentials are found where Amazon's tools find them: the environment, a profile, a role.
"""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from hashlib import blake2b
from typing import IO, TYPE_CHECKING, Any

from botocore.config import Config
from botocore.exceptions import ClientError
from botocore.loaders import Loader
from botocore.session import Session

from headrace.base.broker_errors import BrokerFailed, LoginRefused, QueueMissing
from headrace.base.outside import AccessRefused, Unavailable
from headrace.base.time import MICROS
from headrace.connect import aws
from headrace.connect.files.places import NewFile, OpenPlace, Stored

if TYPE_CHECKING:
    from collections.abc import Iterator

SECONDS = 30
IN_MEMORY = 8 << 20
_LOADER = Loader()
"""It reads megabytes of descriptions, once for all clients."""
_EXISTS = "PreconditionFailed"
_GONE = frozenset({"NoSuchKey", "PreconditionFailed", "InvalidRange", "404"})
_LOGIN = frozenset(
    {"ExpiredToken", "InvalidAccessKeyId", "InvalidToken", "SignatureDoesNotMatch", "TokenRefreshRequired"}
)
_LATER = frozenset(
    {
        "ConditionalRequestConflict",  # somebody puts or removes the same key at this moment
        "InternalError",
        "NoSuchKey",  # the same
        "OperationAborted",
        "RequestTimeout",
        "ServiceUnavailable",
        "SlowDown",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """The keys of a bucket below a prefix, of them those that fit a pattern."""

    bucket: str
    prefix: str
    pattern: str = "*"
    region: str | None = None
    endpoint: str | None = None
    profile: str | None = None

    @property
    def identity(self) -> str:
        """The bucket and the prefix."""
        return f"s3://{self.bucket}/{self.prefix}"

    @property
    def where(self) -> str:
        """The bucket and the prefix."""
        return f"{self.identity}{f' at {self.endpoint}' if self.endpoint else ''}"

    def check(self) -> None:
        """Ask for the first key; raises as `failures` does."""
        with self.failures():
            self.client().list_objects_v2(Bucket=self.bucket, Prefix=self.prefix, MaxKeys=1)

    def open(self) -> OpenPlace:
        """Return it for use.

        Raises:
            LoginRefused: there is no such profile.

        """
        return _OpenBucket(self)

    def client(self) -> Any:
        """Return a client, which threads may share."""
        config = Config(connect_timeout=SECONDS, read_timeout=SECONDS, retries={"max_attempts": 1})
        with self.failures():
            session = Session(profile=self.profile)
            session.register_component("data_loader", _LOADER)
            return session.create_client("s3", region_name=self.region, endpoint_url=self.endpoint, config=config)

    @contextmanager
    def failures(self) -> Iterator[None]:
        """Turn errors of the client into ours.

        Raises:
            Unavailable: S3 does not answer, or is asked too often.
            LoginRefused: there are no credentials, or wrong ones.
            AccessRefused: they may not do this.
            QueueMissing: there is no such bucket.
            BrokerFailed: it refuses the request.

        """
        with aws.failures(self.where, self._refused):
            yield

    def _refused(self, error: ClientError) -> Exception:
        code, said = aws.code_of(error), aws.said_by(error)
        if code == "NoSuchBucket":
            return QueueMissing(f"there is no bucket {self.bucket}: {said}", hint="Create it: aws s3 mb.")
        if code in _LOGIN:
            return LoginRefused(f"{self.where} refuses the credentials: {code}", hint="They may have expired.")
        if code in {"AccessDenied", "403"}:
            return AccessRefused(
                f"{self.where} does not let these credentials do this: {said}",
                hint="They need s3:ListBucket and s3:GetObject to read, s3:PutObject and s3:DeleteObject to write.",
            )
        if code in _LATER or aws.server_failed(error):
            return Unavailable(f"{self.where}: {said}")
        return BrokerFailed(f"{self.where} refuses a request: {said}")


class _OpenBucket(OpenPlace):
    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self._client = bucket.client()

    def files(self, *, below: str = "", after: str = "") -> Iterator[Stored]:
        """Return its objects, in the order of their keys; one that ends with a slash plays a folder, and is none."""
        prefix = self._bucket.prefix
        more: dict[str, str] = {"StartAfter": prefix + after} if after else {}
        while True:
            with self._bucket.failures():
                page = self._client.list_objects_v2(Bucket=self._bucket.bucket, Prefix=prefix + below, **more)
            for each in page.get("Contents", []):
                name = each["Key"].removeprefix(prefix)
                if not name.endswith("/") and (below or fnmatchcase(name, self._bucket.pattern)):
                    version = f"{name}\n{each['ETag']}".encode()
                    changed = round(each["LastModified"].timestamp() * MICROS)
                    known = blake2b(version, digest_size=10).hexdigest()
                    yield Stored(name, known, each["Size"], changed, complete=True)
            if not page.get("IsTruncated"):
                return
            more = {"ContinuationToken": page["NextContinuationToken"]}

    def read(self, file: Stored, start: int, size: int) -> bytes:
        if start >= file.size or not size:
            return b""
        with self._bucket.failures():
            try:
                answer = self._client.get_object(
                    Bucket=self._bucket.bucket,
                    Key=self._bucket.prefix + file.name,
                    Range=f"bytes={start}-{min(start + size, file.size) - 1}",
                )
                body: bytes = self._checked(file, answer).read()
            except ClientError as error:
                if aws.code_of(error) in _GONE:
                    raise FileNotFoundError(file.name) from error
                raise
        return body

    def _checked(self, file: Stored, answer: dict[str, Any]) -> Any:
        """Return the body of an answer, if it is of the object that was listed."""
        version = f"{file.name}\n{answer['ETag']}".encode()
        if blake2b(version, digest_size=10).hexdigest() != file.version:
            answer["Body"].close()
            raise FileNotFoundError(file.name)
        return answer["Body"]

    def new(self, below: str) -> NewFile:
        """Return a file of this machine, which is put as one object."""
        del below
        return _NewObject(self._bucket, self._client)

    def remove(self, name: str) -> None:
        with self._bucket.failures():
            self._client.delete_object(Bucket=self._bucket.bucket, Key=self._bucket.prefix + name)


class _NewObject(NewFile):
    def __init__(self, bucket: Bucket, client: Any) -> None:
        self._bucket, self._client = bucket, client
        self.file: IO[bytes] = tempfile.SpooledTemporaryFile(IN_MEMORY, prefix="headrace-")  # noqa: SIM115 -- closed at the end of the block

    def create(self, name: str) -> bool:
        """Put it; S3 refuses to replace an object where it is asked to."""
        self.file.seek(0)
        with self._bucket.failures():
            try:
                self._client.put_object(
                    Bucket=self._bucket.bucket, Key=self._bucket.prefix + name, Body=self.file, IfNoneMatch="*"
                )
            except ClientError as error:
                if aws.code_of(error) == _EXISTS:
                    return False
                raise
        return True
