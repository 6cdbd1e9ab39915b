"""The rows of keys that match a pattern, in time linear in the rows, whatever the pattern and however long it may last.

From the last row of a key to the first, it is computed of each place of the automaton how early a match can end that
has the row there; one that may go on with rows to come ends behind the last row. Then a match is read off from its
first row on: each row goes to the preferred place from which a match can end in time.

The code is plain Python over lists or arrays; numba compiles it where it is installed.

`automaton` is the bit of each place's symbol, where the steps from each place begin, and the steps; the steps of the
last place are those of the first row. `memory` is for the ends of two blocks, which blocks these are, the ends behind
each block, and the earliest end of a match from each row of a key.
"""

from __future__ import annotations

from typing import Any

import numpy as np

BLOCK = 1024
"""So many rows have their ends in memory at a time; those of others are computed again, from the row behind them."""
NEVER = 1 << 60


def load(masks: Any, automaton: Any, memory: Any, block: int, span: tuple[int, int]) -> int:
    """Return where in memory the ends of a block are; compute them, if they are not there, from its last row back.

    `span` is the number of the key's first row, and how many it has.
    """
    first, n = span
    bits, offsets, steps = automaton
    ends, loaded, behind, _ = memory
    places = len(bits)
    base = (block % 2) * (BLOCK + 1) * places
    if loaded[block % 2] == block:
        return base
    loaded[block % 2] = block
    low, high = block * BLOCK, min((block + 1) * BLOCK, n)
    for place in range(places):
        ends[base + (high - low) * places + place] = behind[block * places + place]
    for i in range(high - 1, low - 1, -1):
        here = base + (i - low) * places
        mask = masks[first + i]
        for place in range(places):
            best = NEVER
            if mask & bits[place]:
                for step in range(offsets[place], offsets[place + 1]):
                    to = steps[step]
                    best = min(best, i if to == places else ends[here + places + to])
            ends[here + place] = best
    return base


def look_back(masks: Any, automaton: Any, memory: Any, first: int, n: int) -> None:
    """Compute the ends behind each block of a key's rows, and the earliest end of a match from each row."""
    bits, offsets, steps = automaton
    ends, loaded, behind, earliest = memory
    places = len(bits)
    loaded[0] = loaded[1] = -1
    blocks = (n + BLOCK - 1) // BLOCK
    for place in range(places):
        behind[(blocks - 1) * places + place] = n
    for block in range(blocks - 1, -1, -1):
        base = load(masks, automaton, memory, block, (first, n))
        if block:
            for place in range(places):
                behind[(block - 1) * places + place] = ends[base + place]
        for i in range(block * BLOCK, min((block + 1) * BLOCK, n)):
            best = NEVER
            for step in range(offsets[places], offsets[places + 1]):
                if steps[step] != places:
                    best = min(best, ends[base + (i - block * BLOCK) * places + steps[step]])
            earliest[i] = best


def read_off(masks: Any, automaton: Any, memory: Any, span: Any, out: Any) -> tuple[int, bool]:
    """Write the rows and places of the preferred match into `out`; return the row behind it, and whether it has ended.

    `span` is the first row of the match in its key, the last one that it may have (that behind the key's: rows to come,
    too), the number of the key's first row, how many it has, and where in `out` to write.
    """
    _, offsets, steps = automaton
    found, at = out
    i, limit, first, n, count = span
    places = len(offsets) - 2
    place = places
    while True:
        base = 0
        if i < n:
            base = load(masks, automaton, memory, i // BLOCK, (first, n)) + (i % BLOCK) * places
        chosen = places
        for step in range(offsets[place], offsets[place + 1]):
            chosen = steps[step]
            if chosen == places or (memory[0][base + chosen] if i < n else n) <= limit:
                break
        if chosen == places or i == n:
            return i, chosen == places
        found[count], at[count] = first + i, chosen
        place = chosen
        count += 1
        i += 1


def walk(table: Any, automaton: Any, memory: Any, rule: Any) -> Any:
    """Find the matches of all keys.

    Args:
        table: the symbols that each row meets, as bits; its time; whether it is known what begins at it, which is
            changed; and where each key's rows begin, with the number of rows at the end.
        automaton: as above.
        memory: as above.
        rule: the watermark, how long a match may last, and whether the rows of a match may be in others.

    Returns:
        The rows of matches with their places; where each match begins in these; and of each key the first row of which
        it is not known yet what begins at it.

    """
    masks, times, done, begins = table
    watermark, within, overlapping = rule
    undecided = np.empty(len(begins) - 1, np.int64)
    found, at, matches = np.empty(1024, np.int64), np.empty(1024, np.int64), np.empty(1024, np.int64)
    rows, count = 0, 0
    for key in range(len(begins) - 1):
        first, n = begins[key], begins[key + 1] - begins[key]
        look_back(masks, automaton, memory, first, n)
        start, edge, undecided[key] = 0, 0, n
        while start < n:
            limit = n
            if watermark > times[first + start] + within:
                while edge < n and times[first + edge] <= times[first + start] + within:
                    edge += 1
                limit = edge - 1
            if done[first + start] or memory[3][start] > limit:
                done[first + start] = 1
                start += 1
                continue
            if rows + n - start > len(found):
                found, at = longer(found, rows, n - start), longer(at, rows, n - start)
            behind, ended = read_off(masks, automaton, memory, (start, limit, first, n, rows), (found, at))
            if ended:
                if count == len(matches):
                    matches = longer(matches, count, 1)
                matches[count] = rows
                count += 1
                rows += behind - start
                done[first + start] = 1
            else:
                undecided[key] = min(undecided[key], start)
                if not overlapping:
                    break
            start = start + 1 if overlapping else behind
    return found[:rows], at[:rows], matches[:count], undecided


def longer(array: Any, used: int, more: int) -> Any:
    """Return an array with room for more after those that are used."""
    copied = np.empty(max(2 * len(array), used + more), np.int64)
    copied[:used] = array[:used]
    return copied
