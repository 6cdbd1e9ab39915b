"""Nexmark's events, made in columns: of 50 events one is a person, three are auctions, 46 are bids.

An event's values follow from the seed and its number, so any part can be made alone. Half of the bids go to the auction
that is hot at the moment, three quarters come from the bidder who is, and three quarters of the auctions are of the hot
seller, as in the benchmark's own generator. Times are those of `RATE` events a second.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from bench.words import join, words

if TYPE_CHECKING:
    from collections.abc import Iterator

FIRST_US = 1_767_225_600_000_000  # 2026-01-01
RATE = 10_000
SCHEMAS = {
    "person": "id bigint, name string, emailAddress string, creditCard string, city string, state string, "
    "dateTime timestamp, extra string",
    "auction": "id bigint, itemName string, description string, initialBid bigint, reserve bigint, "
    "dateTime timestamp, expires timestamp, seller bigint, category bigint, extra string",
    "bid": "auction bigint, bidder bigint, price bigint, channel string, url string, dateTime timestamp, extra string",
}
OUT_OF_ORDER = "4 seconds"
"""How far event times may be behind: a second more than `LATEST_US`."""
LATEST_US = 3_000_000
CHUNK = 100_000
"""Events of a chunk; a multiple of 50."""

_EVERY, _AUCTIONS, _BIDS = 50, 3, 46
_FIRST_ID, _LEAD, _ACTIVE, _IN_FLIGHT, _HOT = 1_000, 10, 1_000, 100, 100
_CHANNELS = 10_000
_FIRST_NAMES = ["Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter"]
_LAST_NAMES = ["Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris"]
_CITIES = ["Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Redmond", "Seattle", "Kent",
           "Cheyenne"]  # fmt: skip
_STATES = ["AZ", "CA", "ID", "OR", "WA", "WY"]
_HOT_CHANNELS = ["Google", "Facebook", "Baidu", "Apple"]


class Events(NamedTuple):
    """A chunk: the events of each stream in the order of arrival."""

    person: pa.Table
    auction: pa.Table
    bid: pa.Table


@dataclass(frozen=True)
class Generator:
    """Makes events.

    Args:
        seed: what the values follow from.
        disorder: the fraction of events whose time is up to three seconds behind their place.
        coarse: prices are multiples of this; a large one makes ties.

    """

    seed: int = 20260131
    disorder: float = 0.0
    coarse: int = 1

    def chunks(self, events: int) -> Iterator[Events]:
        """Yield the first `events` events, some at a time."""
        for first in range(0, events, CHUNK):
            yield self.chunk(first, min(first + CHUNK, events))

    def chunk(self, first: int, last: int) -> Events:
        """Return the events from number `first` (a multiple of 50) to before `last`."""
        random = np.random.default_rng([self.seed, first])
        number = np.arange(first, last, dtype=np.int64)
        at = FIRST_US + number * 1_000_000 // RATE
        if self.disorder:
            behind = np.where(random.random(len(at)) < self.disorder, random.integers(1, LATEST_US, len(at)), 0)
            at = np.maximum(at - behind, FIRST_US)
        place = number % _EVERY
        persons, auctions = place == 0, (place > 0) & (place <= _AUCTIONS)
        bids = place > _AUCTIONS
        return Events(
            self._persons(random, number[persons], at[persons]),
            self._auctions(random, number[auctions], at[auctions]),
            self._bids(random, number[bids], at[bids]),
        )

    def _persons(self, random: np.random.Generator, number: np.ndarray, at: np.ndarray) -> pa.Table:  # type: ignore[type-arg]
        count = len(number)
        digits = [pa.array(random.integers(1000, 10000, count)).cast(pa.string()) for _ in range(4)]
        return pa.table(
            {
                "id": _FIRST_ID + number // _EVERY,
                "name": join(_any(random, _FIRST_NAMES, count), " ", _any(random, _LAST_NAMES, count)),
                "emailAddress": join(words(random, count, 7, 7), "@", words(random, count, 5, 5), ".com"),
                "creditCard": join(digits[0], " ", digits[1], " ", digits[2], " ", digits[3]),
                "city": _any(random, _CITIES, count),
                "state": _any(random, _STATES, count),
                "dateTime": _times(at),
                "extra": words(random, count, 30, 90),
            }
        )

    def _auctions(self, random: np.random.Generator, number: np.ndarray, at: np.ndarray) -> pa.Table:  # type: ignore[type-arg]
        count = len(number)
        first_bid = self._prices(random, count)
        # about as long as it takes until as many auctions were opened as are open at once
        length_us = 1_000 * random.integers(1, 2 * _IN_FLIGHT * _EVERY // _AUCTIONS * 1_000 // RATE + 1, count)
        return pa.table(
            {
                "id": _FIRST_ID + _last_auction(number),
                "itemName": words(random, count, 4, 20),
                "description": words(random, count, 20, 100),
                "initialBid": first_bid,
                "reserve": first_bid + self._prices(random, count),
                "dateTime": _times(at),
                "expires": _times(at + length_us),
                "seller": _FIRST_ID
                + np.where(random.random(count) < 0.75, number // _EVERY // _HOT * _HOT, _some_person(random, number)),
                "category": 10 + random.integers(0, 5, count),
                "extra": words(random, count, 30, 70),
            }
        )

    def _bids(self, random: np.random.Generator, number: np.ndarray, at: np.ndarray) -> pa.Table:  # type: ignore[type-arg]
        count = len(number)
        last = _last_auction(number)
        least = np.maximum(last - _IN_FLIGHT, 0)
        some = least + (random.random(count) * (last - least + 1 + _LEAD)).astype(np.int64)
        auction = np.where(random.random(count) < 0.5, last // _HOT * _HOT, some)
        hot = number // _EVERY // _HOT * _HOT + 1
        bidder = np.where(random.random(count) < 0.75, hot, _some_person(random, number))
        channel = np.where(
            random.random(count) < 0.5,
            random.integers(0, len(_HOT_CHANNELS), count),
            random.integers(len(_HOT_CHANNELS), _CHANNELS, count),
        )
        channels, urls = _channels()
        return pa.table(
            {
                "auction": _FIRST_ID + auction,
                "bidder": _FIRST_ID + bidder,
                "price": self._prices(random, count),
                "channel": channels.take(pa.array(channel)),
                "url": urls.take(pa.array(channel)),
                "dateTime": _times(at),
                "extra": words(random, count, 10, 40),
            }
        )

    def _prices(self, random: np.random.Generator, count: int) -> np.ndarray:  # type: ignore[type-arg]
        prices = np.rint(10.0 ** (random.random(count) * 6) * 100).astype(np.int64)
        return prices // self.coarse * self.coarse


def _last_auction(number: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
    """Return the number of the newest auction at each event; that of an auction is its own."""
    place = np.minimum(number % _EVERY, _AUCTIONS)
    return np.maximum(number // _EVERY * _AUCTIONS + place - 1, 0)


def _some_person(random: np.random.Generator, number: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
    """Return a person of the newest thousand, or one that comes soon."""
    known = number // _EVERY + 1
    active = np.minimum(known, _ACTIVE)
    return known - active + (random.random(len(number)) * (active + _LEAD)).astype(np.int64)


def _channels() -> tuple[pa.Array, pa.Array]:
    """Return the names of all channels and their addresses: the same for every seed."""
    random = np.random.default_rng(0)
    paths = [words(random, _CHANNELS, 5, 5) for _ in range(3)]
    ids = random.integers(0, 2**31, _CHANNELS)
    # the hot channels and one in ten of the others are known by name alone
    known = random.random(_CHANNELS) < 0.1
    known[: len(_HOT_CHANNELS)] = True
    tails = pa.array(["" if known[i] else f"&channel_id={ids[i]}" for i in range(_CHANNELS)])
    urls = join("https://www.nexmark.com/", paths[0], "/", paths[1], "/", paths[2], "/item.htm?query=1", tails)
    return pa.array([*_HOT_CHANNELS, *(f"channel-{i}" for i in range(len(_HOT_CHANNELS), _CHANNELS))]), urls


def _any(random: np.random.Generator, values: list[str], count: int) -> pa.Array:
    return pa.array(values).take(pa.array(random.integers(0, len(values), count)))


def _times(micros: np.ndarray) -> pa.Array:  # type: ignore[type-arg]
    return pa.array(micros, pa.timestamp("us", "UTC"))
