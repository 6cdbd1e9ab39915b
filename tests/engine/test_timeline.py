"""The example of the social timeline: the book's four events, random ones, a celebrity."""

from __future__ import annotations

import runpy
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from budget import examples
from headrace.testing import Driver

EXAMPLE = Path(__file__).parents[2] / "examples" / "timeline.py"
PEOPLE = "abcd"


def example():
    return runpy.run_path(str(EXAMPLE))["app"]


def tweet(number, author):
    return {"id": number, "author": author, "text": f"{author} says {number}", "at": number * 1000}


def timelines(driver):
    return {(row["follower"], row["id"]) for row in driver.view("timelines")}


def test_a_tweet_a_deletion_a_follow_and_an_unfollow():
    with Driver(example()) as driver:
        driver.send("follows", {"follower": "ann", "followee": "bob"}, {"follower": "cem", "followee": "bob"})
        driver.send("tweets", tweet(1, "bob"), tweet(2, "dora"))
        driver.run()
        assert timelines(driver) == {("ann", 1), ("cem", 1)}
        driver.send("follows", {"follower": "ann", "followee": "dora"})
        driver.run()
        assert timelines(driver) == {("ann", 1), ("ann", 2), ("cem", 1)}
        driver.delete("tweets", id=1)
        driver.run()
        assert timelines(driver) == {("ann", 2)}
        driver.delete("follows", follower="ann", followee="dora")
        driver.run()
        assert timelines(driver) == set()


EVENTS = st.one_of(
    st.tuples(st.just("tweet"), st.sampled_from(PEOPLE), st.integers(0, 20)),
    st.tuples(st.just("delete"), st.sampled_from(PEOPLE), st.integers(0, 20)),
    st.tuples(st.just("follow"), st.sampled_from(PEOPLE), st.sampled_from(PEOPLE)),
    st.tuples(st.just("unfollow"), st.sampled_from(PEOPLE), st.sampled_from(PEOPLE)),
)


@settings(max_examples=examples(6), deadline=None)
@given(epochs=st.lists(st.lists(EVENTS, max_size=8), max_size=6))
def test_after_every_epoch_the_timeline_is_the_join(epochs):
    tweets: dict[int, str] = {}
    follows: set[tuple[str, str]] = set()
    with Driver(example(), shards=2) as driver:
        for events in epochs:
            for event in events:
                happens(driver, tweets, follows, event)
            driver.step()
            wanted = {(who, number) for number, author in tweets.items() for who, whom in follows if whom == author}
            assert timelines(driver) == wanted


def happens(driver, tweets, follows, event):
    verb, who, what = event
    if verb == "tweet":
        tweets[what] = who
        driver.send("tweets", tweet(what, who))
    elif verb == "delete":
        tweets.pop(what, None)
        driver.delete("tweets", id=what)
    elif verb == "follow":
        follows.add((who, what))
        driver.send("follows", {"follower": who, "followee": what})
    else:
        follows.discard((who, what))
        driver.delete("follows", follower=who, followee=what)


def test_a_celebrity_tweets_to_100_000_followers():
    fans = 100_000
    with Driver(example(), shards=2) as driver:
        driver.send("follows", *({"follower": f"fan {i}", "followee": "star"} for i in range(fans)))
        driver.send("tweets", tweet(1, "star"), tweet(2, "nobody"))
        driver.run()
        assert len(driver.view("timelines")) == fans
        driver.send("tweets", tweet(3, "nobody"))
        driver.step()
        driver.delete("tweets", id=1)
        driver.run()
        assert driver.view("timelines") == []
