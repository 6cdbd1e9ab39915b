"""Where the time of an app goes, since its start: `headrace run --profile` shows it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.kernels.task import Report


@dataclass
class Profile:
    """Seconds by part. Tasks run side by side, so theirs may add up to more than the epochs took.

    A step without state is computed where its rows are used, and counts there.
    """

    shards: int
    epochs: int = 0
    rows: int = 0
    levels: float = 0.0
    """From planning an epoch until its last report has come."""
    seconds: dict[str, float] = field(default_factory=dict)
    tasks: dict[str, float] = field(default_factory=dict)

    def ran(self, rows: int, seconds: float, reports: Sequence[Report]) -> None:
        """Add an epoch whose levels have run."""
        self.epochs += 1
        self.rows += rows
        self.levels += seconds
        for report in reports:
            for part, spent in report.spent.items():
                self.tasks[part] = self.tasks.get(part, 0.0) + spent

    def spend(self, part: str, seconds: float) -> None:
        """Add what the driver did between the levels of two epochs."""
        self.seconds[part] = self.seconds.get(part, 0.0) + seconds

    def shown(self) -> dict[str, Any]:
        """Return it as plain values.

        Returns:
            `epochs`, `rows`; `seconds` of the epochs: `levels`, `commit`, `publish`; `tasks`: seconds of all tasks by
            part, the longest first: `read`, `step NAME`, `exchange`, `state` (opening and writing it), `staging`;
            `elsewhere`: what is left of `levels` if tasks shared the shards evenly: planning, scheduling, waiting.

        """
        busy = sum(self.tasks.values())
        return {
            "epochs": self.epochs,
            "rows": self.rows,
            "seconds": {"levels": self.levels, **self.seconds},
            "tasks": dict(sorted(self.tasks.items(), key=lambda part: -part[1])),
            "elsewhere": max(0.0, self.levels - busy / self.shards),
        }
