"""What `headrace run --profile` says: where the time of a run went."""

from __future__ import annotations

from typing import Any

from headrace.cli.output import say, say_json, say_rows


def say_profile(profile: dict[str, Any], *, as_json: bool) -> None:
    """Print the profile of a run: see `Profile.shown`."""
    if as_json:
        say_json({"event": "profile", **profile}, indent=None)
        return
    seconds, tasks = profile["seconds"], profile["tasks"]
    whole, busy = sum(seconds.values()), sum(tasks.values())
    say(f"{profile['epochs']} epochs with {profile['rows']:,} rows took {whole:.2f} s")
    parts = {f"in tasks: {part}": spent for part, spent in tasks.items()}
    outside = {part: spent for part, spent in seconds.items() if part != "levels"}
    outside["elsewhere: planning, scheduling, waiting"] = profile["elsewhere"]
    shown = [(part, spent, busy) for part, spent in parts.items()] + [
        (part, spent, whole) for part, spent in outside.items()
    ]
    rows = [
        {"part": part, "seconds": f"{spent:.3f}", "share": f"{spent / of:.0%}" if of else "-"}
        for part, spent, of in shown
    ]
    say_rows(rows, ["part", "seconds", "share"])
