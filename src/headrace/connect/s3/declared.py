"""The words: objects of a bucket in and out."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict, Unpack
from urllib.parse import urlsplit

from headrace.base.arguments import a_text, a_whole_number
from headrace.base.errors import InvalidArgument, InvalidPlan
from headrace.base.time import MICROS, duration
from headrace.connect.files.incoming import FilesFeed
from headrace.connect.files.rolled import MAX_AGE, MAX_BYTES, RollingFiles, rolling_to
from headrace.connect.formats import format_named
from headrace.connect.s3.bucket import Bucket

if TYPE_CHECKING:
    from datetime import timedelta


LARGEST = 5_000_000_000


class Service(TypedDict, total=False):
    """Which S3 it is.

    `region`: of Amazon; that of the environment or the profile by default. `endpoint`: the URL of another server.
    `profile`: of the shared credentials; credentials are otherwise those of the environment or a role.
    """

    region: str
    endpoint: str
    profile: str


def objects(
    url: str,
    pattern: str = "*",
    *,
    format: str = "json",  # noqa: A002 -- as in App.stream
    header: bool = False,
    ordered: bool = False,
    every: str | timedelta = "5 seconds",
    follow: bool = True,
    **service: Unpack[Service],
) -> FilesFeed:
    """Return a feed that lands the lines of all objects below a prefix, also of new ones: each exactly once.

    The position is which objects were read and how far, stored with each append. An object is known by its key and its
    content: one that is replaced by another content is read anew. Objects are read in the order of their keys. A line
    that cannot be decoded goes to `<topic>.dead`.

    Trap: the position names every object that is there, 70 bytes each. Where there are more than some thousand, remove
    them when they are old, or use `ordered`.

    Args:
        url: `s3://bucket/prefix/`.
        pattern: which keys, behind the prefix, such as `"*.jsonl"`; `*` also means slashes.
        format: the format of a line: "json" or "csv".
        header: whether the first line of each object is left out.
        ordered: keys only grow, such as those with a date, so the last one is position enough. An object that appears
            later and whose key sorts before one that was read is never landed.
        every: how often new objects are looked for; each time is a request for every 1,000 keys, which costs money.
        follow: False: land what is there, then end.
        service: region, endpoint and profile.

    Raises:
        InvalidPlan: the URL names no bucket, or the format is not known.
        InvalidTime: `every` is no duration.

    """
    look = a_whole_number(duration(every, what="every"), "every", least=1) / MICROS
    format_named(format)
    place = bucket_of(url, pattern=a_text(pattern, "pattern"), service=service)
    return FilesFeed(place=place, format=format, header=header, follow=follow, ordered=ordered, every=look)


def rolling(
    url: str,
    *,
    format: str = "json",  # noqa: A002 -- as in App.stream
    max_bytes: int = MAX_BYTES,
    max_age: str | timedelta = MAX_AGE,
    **service: Unpack[Service],
) -> RollingFiles:
    """Return a sink that writes objects: each row is in one object, exactly once, as `files.rolling` writes files.

    S3 must refuse to replace an object where it is asked to (`If-None-Match: *`), as Amazon's and MinIO do.

    Args:
        url: `s3://bucket/prefix/`.
        format: "json" (a line a row), "csv" or "parquet".
        max_bytes: at which size an object ends; S3 takes 5 GB at once.
        max_age: how long after its first row an object ends.
        service: region, endpoint and profile.

    Raises:
        InvalidPlan: the URL names no bucket.
        InvalidArgument: an option has an impossible value.
        InvalidTime: `max_age` is no duration.

    """
    if isinstance(max_bytes, int) and max_bytes > LARGEST:
        raise InvalidArgument(f"max_bytes={max_bytes} is not possible", hint=f"S3 takes {LARGEST:,} bytes at once.")
    return rolling_to(bucket_of(url, service=service), format=format, max_bytes=max_bytes, max_age=max_age)


def bucket_of(url: str, *, service: Service, pattern: str = "*") -> Bucket:
    """Return the keys that a URL names.

    Raises:
        InvalidPlan: it names no bucket, or an option is not known.

    """
    parts = urlsplit(url) if isinstance(url, str) else None
    if parts is None or parts.scheme != "s3" or not parts.netloc or "@" in parts.netloc or parts.query:
        raise InvalidPlan("this is no address of a bucket", hint='For example "s3://bucket/orders/".')
    if unknown := [name for name in service if name not in Service.__annotations__]:
        raise InvalidPlan(f"{unknown[0]}= is not known", hint=f"Known are: {', '.join(Service.__annotations__)}.")
    prefix = parts.path.removeprefix("/")
    prefix = f"{prefix}/" if prefix and not prefix.endswith("/") else prefix
    return Bucket(bucket=parts.netloc, prefix=prefix, pattern=pattern, **service)
