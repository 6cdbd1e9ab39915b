"""How the records of topics are written: what `format=` and `key_format=` take, checked."""

from __future__ import annotations

from typing import Any, NamedTuple

from headrace.base.errors import InvalidPlan, did_you_mean

FORMATS = ("json", "text", "binary", "csv", "cloudevents", "debezium")
"""The formats that have names; `connect/formats` has what reads them."""


class Formats(NamedTuple):
    """The formats of values and of keys: a name, a format itself, or None where nothing was said."""

    format: Any = None
    key_format: Any = None

    def checked(self) -> Formats:
        """Return it.

        Raises:
            InvalidPlan: one is not known.

        """
        for name, given in self._asdict().items():
            if given is not None and given not in FORMATS and not callable(getattr(given, "decode_records", None)):
                raise InvalidPlan(
                    f"{name}={given!r} is not known",
                    detail=f"Known are: {', '.join(FORMATS)}.",
                    hint=did_you_mean(str(given), FORMATS),
                )
        return self


NO_FORMATS = Formats()
