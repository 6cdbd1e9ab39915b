"""What a demo reports: lines of text, and tables. The command line prints them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class ReportTable:
    """Rows to show under a title, in the order given; of each row the columns named."""

    title: str
    columns: tuple[str, ...]
    rows: list[dict[str, Any]]


Report = Iterator[str | ReportTable]
