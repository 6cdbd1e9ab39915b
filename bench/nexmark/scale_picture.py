"""A picture of how queries scale: a panel each for cores, events and shards, a line a query and carrier."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.nexmark.point import ON_SPARK

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.nexmark.point import Scaled

WIDE, HIGH, TOP, BOTTOM, LEFT, RIGHT = 320, 300, 46, 40, 44, 16
FONT = 'font-family="sans-serif" font-size="11"'
PANELS = ("cores", "events", "shards")
COLORS = ("#2f6f9f", "#d08a3c", "#4d9a5b", "#a3476b", "#6b5ca5", "#7a7a7a")


def picture(points: Sequence[Scaled]) -> str:
    """Return it as SVG: million events a second, zero at the bottom; a dashed line is on Spark."""
    names = list(dict.fromkeys(point.query for point in points))
    most = max((point.rate for point in points), default=1.0)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDE * len(PANELS)}" height="{HIGH}" {FONT}>',
        f'<text x="{LEFT}" y="16" font-size="13">Million events a second; dashed: on Spark</text>',
    ]
    parts += [
        f'<text x="{400 + 60 * at}" y="16" fill="{COLORS[at % len(COLORS)]}">{name}</text>'
        for at, name in enumerate(names)
    ]
    for place, panel in enumerate(PANELS):
        parts += _panel(points, names, panel, most, WIDE * place)
    return "\n".join([*parts, "</svg>", ""])


def _panel(points: Sequence[Scaled], names: Sequence[str], panel: str, most: float, left: float) -> list[str]:
    values = sorted({getattr(point, panel) for point in points})
    base = {name: _usual(points, name) for name in PANELS if name != panel}
    step = (WIDE - LEFT - RIGHT) / max(1, len(values))
    across = {value: left + LEFT + step * (at + 0.5) for at, value in enumerate(values)}
    parts = [
        f'<text x="{left + LEFT}" y="{TOP - 8}" font-weight="bold">{panel}</text>',
        *(
            f'<line x1="{left + LEFT}" x2="{left + WIDE - RIGHT}" y1="{_y(most * mark / 4, most):.1f}" '
            f'y2="{_y(most * mark / 4, most):.1f}" stroke="#ddd"/>'
            f'<text x="{left + LEFT - 6}" y="{_y(most * mark / 4, most) + 4:.1f}" text-anchor="end">'
            f"{most * mark / 4:.1f}</text>"
            for mark in range(5)
        ),
        *(
            f'<text x="{x:.1f}" y="{HIGH - BOTTOM + 16}" text-anchor="middle">{_short(value)}</text>'
            for value, x in across.items()
        ),
    ]
    for carrier in dict.fromkeys(point.carrier for point in points):
        for at, name in enumerate(names):
            line = {
                getattr(point, panel): point.rate
                for point in points
                if (point.query, point.carrier) == (name, carrier)
                and all(getattr(point, other) == value for other, value in base.items())
            }
            places = [(across[value], _y(line[value], most)) for value in values if value in line]
            color = COLORS[at % len(COLORS)]
            dashed = ' stroke-dasharray="5 4"' if carrier == ON_SPARK else ""
            drawn = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
            parts.append(f'<polyline points="{drawn}" fill="none" stroke="{color}" stroke-width="2"{dashed}/>')
            parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{color}"/>' for x, y in places]
    return parts


def _usual(points: Sequence[Scaled], name: str) -> int:
    """Return the value that the other panels start from: most points have it."""
    values = [getattr(point, name) for point in points]
    return max(set(values), key=values.count)


def _y(value: float, most: float) -> float:
    return HIGH - BOTTOM - value / most * (HIGH - BOTTOM - TOP)


def _short(value: int) -> str:
    return f"{value / 1e6:g} M" if value >= 1_000_000 else f"{value / 1e3:g} k" if value >= 1_000 else str(value)
