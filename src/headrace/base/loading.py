"""Programs that the command line loads: they describe their app, and do not run it."""

from __future__ import annotations

import sys

from headrace.base.errors import InvalidPlan

MODULE = "__headrace__"
"""The name of a program's module while the command line loads it; it is in `sys.modules` only then."""


def refuse_while_loading(call: str) -> None:
    """Refuse to run an app while its program is loaded: a command that only looks at it would never end.

    Raises:
        InvalidPlan: the program is being loaded.

    """
    if MODULE in sys.modules:
        raise InvalidPlan(
            f"the program calls {call} while it is loaded",
            hint=f'Put it under a test, so that commands can look at the app: if __name__ == "__main__": {call}',
        )
