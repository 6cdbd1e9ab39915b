"""The words of the house: those that were retired stay out."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from test_house import HOUSE, PACKAGE, Function, place, sources, tree, verdict

if TYPE_CHECKING:
    from pathlib import Path

# words that were retired, with what replaced them: one word is one idea, and it is the field's word
RETIRED = {
    "made": "the thing's own name",
    "told": "identity_columns, …",
    "told_by": "identity_columns",
    "asked": "probe, AggregateSpec",
    "near": "lookup, band_lookup",
    "meeting": "JoinSpec, JoinBuilder",
    "Meeting": "JoinSpec, JoinBuilder",
    "tally": "match_counts",
    "MET": "MATCHES",
    "CROSSED": "MATCH_CHANGED",
    "VersionJoin": "AsOfJoin",
    "Dating": "AsOfJoin",
    "Judge": "SplitLate",
    "Best": "PartialTop",
    "InForce": "EffectiveTimes",
    "Asked": "AggregateSpec",
    "judges": "detects_late",
    "judged": "late, split",
    "closes": "emits_on_watermark",
    "appends": "append_only",
    "wakes": "clock_epoch_due",
    "settled": "needs_no_epoch",
    "Promise": "SourceWatermark",
    "promise": "watermark",
    "promises": "watermarks",
    "Cuts": "EpochBoundaries",
    "Slice": "OffsetRange",
    "slices": "ranges",
    "bury": "stage_dead_letters",
    "Said": "JoinOptions",
    "steady": "require_deterministic",
    "Loss": "ResetImpact",
    "Piece": "Accumulator, SegmentEntry, ReadTask, …",
}
RETIRED_PROSE = re.compile(
    r"\btold (?:by|apart)\b|\bwhat (?:it|they) gives?\b|\brows near what\b|\bwhat meets\b|\bgives? out\b|\bgave out\b"
)


def identifiers(path: Path) -> list[tuple[ast.AST, str]]:
    """Give every name that a file makes or uses: variables, parameters, attributes, functions, classes."""
    found: list[tuple[ast.AST, str]] = []
    for node in ast.walk(tree(path)):
        name = getattr(node, "id", None) or getattr(node, "arg", None) or getattr(node, "attr", None)
        if isinstance(node, Function | ast.ClassDef):
            name = node.name
        if isinstance(name, str):
            found.append((node, name))
    return found


def test_retired_words_stay_out():
    broken = []
    for path in sources(PACKAGE):
        from_elsewhere = {"Slice"} if "expressions" in path.parts else set()  # sqlglot's word
        broken += [
            f"{place(path, node)}: {name}: say {RETIRED[name]}"
            for node, name in identifiers(path)
            if name in RETIRED and name not in from_elsewhere
        ]
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if RETIRED_PROSE.search(line):
                broken.append(f"{place(path)}:{number}: {line.strip()[:100]}")
    for page in [HOUSE / "README.md", *sorted((HOUSE / "docs").glob("*.md"))]:
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
            if RETIRED_PROSE.search(line):
                broken.append(f"{place(page)}:{number}: {line.strip()[:100]}")
    verdict("Retired words stay out: docs and code speak the field's language.", broken)
