"""The stateful operators by name: how the plan, which knows no kernel, says what it wants to be run."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.kernels.op import StatefulOp


def operator(name: str) -> Callable[..., StatefulOp]:
    """Return an operator by the file in this room and its class there, such as "dedupe.Dedupe"."""
    file, _, name_inside = name.rpartition(".")
    found: Callable[..., StatefulOp] = getattr(import_module(f"headrace.kernels.{file}"), name_inside)
    return found
