"""What the connectors of Amazon's services share: what their client, botocore, cannot do, as errors of ours."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    NoCredentialsError,
    NoRegionError,
    PartialCredentialsError,
    ProfileNotFound,
)

from headrace.base.broker_errors import LoginRefused
from headrace.base.outside import Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_NO_LOGIN = (NoCredentialsError, PartialCredentialsError, NoRegionError, ProfileNotFound)


@contextmanager
def failures(
    place: str, refused: Callable[[ClientError], Exception], *, lost: tuple[type[Exception], ...] = (BotoCoreError,)
) -> Iterator[None]:
    """Turn errors of the client into ours.

    Args:
        place: what the errors call the service and what is used there.
        refused: returns the error for a request that the service refuses.
        lost: errors that say that it does not answer.

    Raises:
        Unavailable: it does not answer.
        LoginRefused: there are no credentials, no region, or no such profile.

    """
    try:
        yield
    except ClientError as error:
        raise refused(error) from error
    except _NO_LOGIN as error:
        raise LoginRefused(
            f"{place} cannot be asked: {error}",
            hint="Give region=, and credentials: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile or a role.",
        ) from error
    except lost as error:
        raise Unavailable(f"{place} does not answer: {type(error).__name__}: {error}") from error


def code_of(error: ClientError) -> str:
    """Return the code of an error."""
    return str(error.response.get("Error", {}).get("Code", ""))


def said_by(error: ClientError) -> str:
    """Return the code of an error, and what it says."""
    return f"{code_of(error)}: {error.response.get('Error', {}).get('Message', '')}"


def server_failed(error: ClientError) -> bool:
    """Return whether the service itself failed, so that it may pass."""
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)) >= 500  # noqa: PLR2004 -- HTTP's own
