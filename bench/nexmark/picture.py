"""A picture of the figures: events a second of each query, ours and Spark's streaming."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.nexmark.line import Line

WIDE, HIGH, LEFT, BOTTOM, TOP = 960, 360, 50, 40, 30
SERIES = (("in process", "#2f6f9f"), ("on Spark", "#6fb1d9"), ("Spark's own streaming", "#d08a3c"))


def picture(lines: Sequence[Line]) -> str:
    """Return it as SVG: bars of millions of events a second."""
    rates = [[_rate(line, seconds) for seconds in (line.in_process, line.on_spark, line.spark)] for line in lines]
    most = max((rate for row in rates for rate in row if rate), default=1.0)
    step = (WIDE - LEFT - 10) / max(1, len(lines))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDE}" height="{HIGH}" font-family="sans-serif">',
        f'<text x="{LEFT}" y="16" font-size="13">Nexmark: millions of events a second</text>',
    ]
    parts += [
        f'<rect x="{420 + 150 * at}" y="6" width="10" height="10" fill="{color}"/>'
        f'<text x="{434 + 150 * at}" y="15" font-size="11">{name}</text>'
        for at, (name, color) in enumerate(SERIES)
    ]
    for mark in range(5):
        value = most * mark / 4
        parts.append(
            f'<line x1="{LEFT}" x2="{WIDE - 10}" y1="{_y(value, most):.1f}" y2="{_y(value, most):.1f}" stroke="#ddd"/>'
            f'<text x="{LEFT - 6}" y="{_y(value, most) + 4:.1f}" font-size="10" text-anchor="end">{value:.1f}</text>'
        )
    for place, (line, row) in enumerate(zip(lines, rates, strict=True)):
        x = LEFT + place * step
        for at, rate in enumerate(row):
            if rate:
                top = _y(rate, most)
                parts.append(
                    f'<rect x="{x + 3 + at * (step - 6) / 3:.1f}" y="{top:.1f}" width="{(step - 8) / 3:.1f}" '
                    f'height="{HIGH - BOTTOM - top:.1f}" fill="{SERIES[at][1]}"/>'
                )
        parts.append(
            f'<text x="{x + step / 2:.1f}" y="{HIGH - BOTTOM + 14}" font-size="10" text-anchor="middle">'
            f"{line.query}</text>"
        )
    return "\n".join([*parts, "</svg>", ""])


def _rate(line: Line, seconds: float | None) -> float | None:
    return line.rows / seconds / 1e6 if seconds else None


def _y(value: float, most: float) -> float:
    return HIGH - BOTTOM - value / most * (HIGH - BOTTOM - TOP)
