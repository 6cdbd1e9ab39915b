"""How the tests of the law play an input: cut into epochs, with the deltas of a table summed on the way."""

from __future__ import annotations

from collections import Counter

from headrace.testing import Driver


def play(driver, sent, sizes, *, topic="t"):
    """Send rows and tombstones of `topic`, cut into epochs of these sizes (0 is an empty one), the rest in one."""
    at = 0
    for size in [*sizes, len(sent)]:
        if at < len(sent):
            for row in sent[at : at + size] if any("_deleted" in row for row in sent) else ():
                driver.send(topic, row)
            if not any("_deleted" in row for row in sent):
                driver.send(topic, *sent[at : at + size])
            driver.step()
        at += size


class Deltas:
    """A sink that sums the deltas it is given, and refuses one that withdraws what is not there."""

    def __init__(self):
        self.sum: Counter[str] = Counter()

    def write(self, epoch, rows):
        """Add a delta."""
        for row in rows.to_pylist():
            weight = row.pop("_weight")
            row.pop("_time")
            self.sum[repr(row)] += weight
        assert not [row for row, weight in self.sum.items() if weight < 0 or weight > 1], epoch


def results(app, table, sent, sizes, *, emit):
    """Play an app and return the rows of its table; final ones come at the end alone. Its deltas add up to them."""
    table.to_view("out")
    deltas = Deltas()
    table.to(deltas)
    with Driver(app, shards=2) as driver:
        play(driver, sent, sizes)
        if emit == "final":
            assert driver.view("out") == []
            driver.finish()
        made = driver.view("out")
    assert sum(deltas.sum.values()) == len(made)
    return made
