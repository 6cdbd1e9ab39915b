"""Amazon S3, and what speaks its protocol: new objects come in, each once; rows go out as objects of a size or an age.

Needs the extra: `pip install headrace[s3]`. Nothing outside this folder knows Amazon's client, which is imported when
it is used.
"""

from typing import TYPE_CHECKING, Any

from headrace.connect.extras import of_extra

if TYPE_CHECKING:
    from headrace.connect.s3.declared import objects, rolling

__all__ = ["objects", "rolling"]
_FILES = {"objects": "declared", "rolling": "declared"}


def __getattr__(name: str) -> Any:
    """Import what needs Amazon's client when it is first used."""
    return of_extra(__name__, _FILES, name, what="S3")
