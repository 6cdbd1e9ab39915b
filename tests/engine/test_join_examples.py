"""The examples with joins of streams give what a batch query over their generated input gives."""

from __future__ import annotations

import math
import runpy
from collections import Counter, defaultdict
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from headrace.testing import Driver

EXAMPLES = Path(__file__).parents[2] / "examples"
MINUTE = timedelta(minutes=1)


def example(name):
    """Return an example's app, what it is called by, and its input."""
    program = runpy.run_path(str(EXAMPLES / f"{name}.py"))
    return program["app"], program, runpy.run_path(str(EXAMPLES / f"{name}_input.py"))["records"]


def feed(driver, records, size):
    for start in range(0, len(records), size):
        for topic in {topic for topic, _ in records}:
            driver.send(topic, *(row for each, row in records[start : start + size] if each == topic))
        driver.step()
    driver.run()


def timed(records):
    """Return the rows of each topic, their times read."""
    made = defaultdict(list)
    for topic, row in records:
        made[topic].append({**row, "at": datetime.fromisoformat(row["at"])})
    return made


@pytest.mark.parametrize("size", [150, 5_000])
def test_the_click_through_rate(size):
    """Searches without a click count as shown, in the minute of the search; with one, in the minute of each click."""
    app, _, records = example("click_through")
    sent = list(records(500))
    clicks, expected = defaultdict(list), defaultdict(lambda: [0, 0])
    made = timed(sent)
    for click in made["clicks"]:
        clicks[click["search_id"]].append(click["at"])
    for search in made["searches"]:
        followed = [at for at in clicks[search["search_id"]] if at - search["at"] <= 60 * MINUTE]
        for at in followed or [search["at"]]:
            group = expected[search["query"], max(at, search["at"]).replace(second=0, microsecond=0)]
            group[0] += 1
            group[1] += bool(followed)
    with Driver(app, shards=2) as driver:
        feed(driver, sent, size)
        first = driver.view("ctr_by_query")
        assert first, "clicks are counted at once"
        assert all(row["ctr"] == 1 for row in first), "a search without a click is not known before an hour is over"
        driver.finish()
        view = driver.view("ctr_by_query")
        assert driver.read("late_searches") == []
    assert {(row["query"], row["window_start"]): [row["shown"], row["clicked"]] for row in view} == dict(expected)
    assert all(row["ctr"] == row["clicked"] / row["shown"] for row in view)
    assert {row["ctr"] for row in view} > {0.0, 1.0}


def test_a_search_that_comes_much_too_late_goes_to_its_topic():
    app, _, records = example("click_through")
    sent = list(records(50))
    with Driver(app, shards=2) as driver:
        feed(driver, sent, 50)
        late = {"search_id": "x", "user": "u", "query": "hats"}
        for topic, row in (("searches", late), ("clicks", {"search_id": "y", "url": "/"})):
            driver.send(topic, {**row, "at": "2026-01-31 14:00"})
        driver.run()
        driver.send("searches", {**late, "search_id": "late", "at": "2026-01-31 10:00"})
        driver.run()
        assert [row["search_id"] for row in driver.read("late_searches")] == ["late"]


def km(one, other):
    lat, lon = (math.radians(other[name] - one[name]) for name in ("lat", "lon"))
    inner = (
        math.sin(lat / 2) ** 2
        + math.cos(math.radians(one["lat"])) * math.cos(math.radians(other["lat"])) * math.sin(lon / 2) ** 2
    )
    return 12742 * math.asin(math.sqrt(inner))


def test_purchases_far_from_the_phone_and_purchases_without_one():
    app, _, records = example("fraud")
    sent = list(records(400))
    made = timed(sent)
    suspicions, unseen = {}, set()
    for bought in made["purchases"]:
        near = [p for p in made["locations"] if p["user"] == bought["user"] and abs(p["at"] - bought["at"]) <= MINUTE]
        far = [km(bought, place) for place in near if km(bought, place) > 100]
        if far:
            suspicions[bought["purchase_id"]] = (len(far), round(max(far)))
        if not near:
            unseen.add(bought["purchase_id"])
    with Driver(app, shards=2) as driver:
        feed(driver, sent, 500)
        driver.finish()
        view = driver.view("suspicions")
        alone = Counter(row["purchase_id"] for row in driver.read("unseen"))
        assert driver.read("too_late_to_say") == []
    assert {row["purchase_id"]: (row["seen"], row["km"]) for row in view} == suspicions
    assert alone == Counter(unseen)
    assert len(suspicions) > 10
    assert len(unseen) > 10
