"""Whether traces were asked for: errors of ours are shown without the traces of Python and Java below them."""

from __future__ import annotations

import os

VARIABLE = "HEADRACE_TRACE"


def traced() -> bool:
    """Whether the environment asks for traces: `HEADRACE_TRACE=1`."""
    return os.environ.get(VARIABLE, "0") not in ("", "0")
