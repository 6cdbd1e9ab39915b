"""Signatures of webhooks: HMAC-SHA-256 of the body, as GitHub, Stripe and Standard Webhooks send it."""

from __future__ import annotations

import base64
import binascii
import hmac
from contextlib import suppress
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Scheme = Literal["github", "stripe", "standard"]
SCHEMES: tuple[Scheme, ...] = ("github", "stripe", "standard")
TOLERANCE_SECONDS = 300
"""A signature with a time is refused when it is so much older or newer: an old request cannot be sent again."""
_PREFIX = "whsec_"


def refusal(scheme: Scheme, secrets: Sequence[str], headers: Mapping[str, str], body: bytes, now: int) -> str | None:
    """Return why a request is not signed with one of the secrets, None if it is.

    Args:
        scheme: where the signature is, and of what.
        secrets: several while a secret is changed.
        headers: by any case.
        body: as it was sent.
        now: the instant, in microseconds.

    """
    if scheme == "github":
        given = headers.get("X-Hub-Signature-256")
        if given is None:
            return "it has no header X-Hub-Signature-256"
        return _verdict(given.removeprefix("sha256="), [_hex(secret, body) for secret in secrets])
    name = "Stripe-Signature" if scheme == "stripe" else "webhook-signature"
    given = headers.get(name)
    if given is None:
        return f"it has no header {name}"
    if scheme == "stripe":
        fields = [part.partition("=") for part in given.split(",")]
        time = next((value for key, _, value in fields if key.strip() == "t"), "")
        found = [value for key, _, value in fields if key.strip() == "v1"]
        right = [_hex(secret, _bytes(time) + b"." + body) for secret in secrets]
    else:
        time, found = headers.get("webhook-timestamp", ""), [part.removeprefix("v1,") for part in given.split()]
        signed = _bytes(f"{headers.get('webhook-id', '')}.{time}.") + body
        right = [_base64(secret, signed) for secret in secrets]
    if not time.isdecimal() or abs(now // 1_000_000 - int(time)) > TOLERANCE_SECONDS:
        return "its signature has no time, or one of more than five minutes ago or ahead"
    verdicts = [_verdict(each, right) for each in found]
    return None if None in verdicts else "its signature is of another secret or body"


def signed(scheme: Scheme, secret: str, body: bytes, *, id: str, now: int) -> dict[str, str]:  # noqa: A002 -- the header's word
    """Return the headers that sign a body."""
    time = str(now // 1_000_000)
    if scheme == "github":
        return {"X-Hub-Signature-256": f"sha256={_hex(secret, body)}"}
    if scheme == "stripe":
        return {"Stripe-Signature": f"t={time},v1={_hex(secret, time.encode() + b'.' + body)}"}
    signature = _base64(secret, f"{id}.{time}.".encode() + body)
    return {"webhook-id": id, "webhook-timestamp": time, "webhook-signature": f"v1,{signature}"}


def _verdict(given: str, right: Sequence[str]) -> str | None:
    fits = [hmac.compare_digest(_bytes(given), each.encode()) for each in right]
    return None if any(fits) else "its signature is of another secret or body"


def _bytes(header: str) -> bytes:
    """Return a header as it was sent, text or not."""
    return header.encode("utf-8", "surrogateescape")


def _hex(secret: str, body: bytes) -> str:
    return hmac.digest(secret.encode(), body, "sha256").hex()


def _base64(secret: str, body: bytes) -> str:
    """Sign as Standard Webhooks do: a secret `whsec_…` is base64."""
    key = secret.encode()
    if secret.startswith(_PREFIX):
        with suppress(binascii.Error):
            key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    return base64.b64encode(hmac.digest(key, body, "sha256")).decode()
