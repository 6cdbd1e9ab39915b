"""What object stores refuse, as the clients of lakes tell it: in the texts of their errors alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.base.broker_errors import LoginRefused
from headrace.base.outside import AccessRefused
from headrace.connect.store import StoreRefused

if TYPE_CHECKING:
    from headrace.base.blame import OutsideError

_MISSING = ("nosuchbucket", "containernotfound")
_LOGIN = ("invalidaccesskeyid", "signaturedoesnotmatch", "invalidtoken", "authenticationfailed")
_RIGHTS = ("accessdenied", "authorizationpermissionmismatch")


def refusal(where: str, said: str, *, epoch: int) -> OutsideError | None:
    """Return the error of a store that will not do what it was asked, however often; None if it may later.

    Args:
        where: what people call the table.
        said: the text of its client's error: with Amazon's codes, as its C++ client spells them too, or Azure's.
        epoch: what it was asked to take; below 0, before the first one.

    """
    codes = said.replace("_", "").lower()
    if any(code in codes for code in _MISSING):
        return StoreRefused(where, f"there is no such bucket: {said}", epoch=epoch)
    if any(code in codes for code in _LOGIN):
        return LoginRefused(f"{where}: its store refuses the credentials: {said}", hint="They may have expired.")
    if any(code in codes for code in _RIGHTS):
        hint = "They need to list, read, write and delete objects below its address."
        return AccessRefused(f"{where}: its store does not let these credentials do this: {said}", hint=hint)
    return None
