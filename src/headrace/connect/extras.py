"""Connectors whose client is an extra: what needs it is imported when it is first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from headrace.base.errors import InvalidPlan

if TYPE_CHECKING:
    from collections.abc import Mapping


def of_extra(package: str, files: Mapping[str, str], name: str, *, what: str, extra: str = "") -> Any:
    """Return a public name of a connector's package, for its `__getattr__`.

    Args:
        package: `__name__` of the package.
        files: by public name the file in it that has the name.
        name: the name.
        what: what needs the client, for the error.
        extra: the extra that has the client; as a rule it is named as the package is.

    Raises:
        AttributeError: it is no public name.
        InvalidPlan: the client is not installed.

    """
    if name not in files:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f"{package}.{files[name]}"), name)
    except ImportError as error:
        raise InvalidPlan(
            f"{what} needs a package that is not there: {error.name}",
            hint=f'pip install "headrace[{extra or package.rpartition(".")[2]}]"',
        ) from error
