"""`search_stream`: 100,000 documents of 100 words pass 100,000 stored queries, 1 % of which change before each epoch.

Expected: 100,000 documents a minute of processor time, so on one core, reading the topic, matching and the sink
included. Reported: Tantivy, asked the other way round, an index in memory of each epoch's documents and every query
asked of it. The rival only counts what it finds, has no queries that change, and parses them before the time that
counts. What it costs is a query's price times all queries, however few the documents are; ours follows the documents.
Words follow Zipf's law in documents; in queries rare ones are more frequent. Two words, alternatives, phrases, and
words that must not be there. Both find as many pairs.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

import headrace as hr
from bench.figure import Figure, Skipped, compare_times, same
from headrace.testing import Driver

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from bench.setting import Setting

DOCUMENTS, QUERIES, CHANGED, EPOCHS, LENGTH, VOCABULARY = 100_000, 100_000, 0.01, 5, 100, 50_000
SKEW = 0.3
SMALL = 20
"""So many times fewer documents has a small epoch."""
A_MINUTE = 100_000
SEED = 20261124
_LETTERS = "etaoinshrdlucmfwypvbgk"


class Sink:
    """Counts what comes out."""

    pairs = 0

    def write(self, epoch: int, rows: pa.Table) -> None:  # noqa: ARG002 -- what a sink is given
        """Count the rows of an epoch."""
        self.pairs += rows.num_rows


class Dataset:
    """Documents and queries that follow from a seed."""

    def __init__(self, setting: Setting) -> None:
        self.random = np.random.default_rng(SEED)
        self.words = np.array([_word(number) for number in range(VOCABULARY)])
        self.queries = [self._query(number) for number in range(setting.rows(QUERIES))]
        self.count = setting.rows(DOCUMENTS // EPOCHS)

    def _drawn(self, shape: tuple[int, ...], skew: float) -> npt.NDArray[np.str_]:
        weights = 1 / np.arange(1, VOCABULARY + 1) ** skew
        drawn: npt.NDArray[np.str_] = self.words[self.random.choice(VOCABULARY, shape, p=weights / weights.sum())]
        return drawn

    def _query(self, number: int) -> str:
        if not number % 1000:
            self._some = self._drawn((1000, 3), SKEW)
        one, two, three = self._some[number % 1000]
        two = two if two != one else three + "s"  # of two equal alternatives Tantivy makes an option
        forms = (f"{one} {two}", f"({one} OR {two}) {three}", f'"{one} {two}"', f"{one} {two} -{three}")
        return forms[(0, 0, 0, 0, 0, 1, 1, 2, 3, 3)[number % 10]]

    def documents(self, count: int) -> list[str]:
        """Return so many documents."""
        return [" ".join(words) for words in self._drawn((count, LENGTH), 1.0)]

    def rows(self, numbers: Sequence[int]) -> pa.Table:
        """Return queries as rows of the table."""
        return pa.table({"id": pa.array(numbers, pa.int64()), "query": [self.queries[number] for number in numbers]})


def run(setting: Setting) -> list[Figure | Skipped]:
    """Measure epochs of ours and of theirs in turn: large ones, then small ones."""
    dataset, sink = Dataset(setting), Sink()
    app = hr.App("search", shards=1)
    stream = app.stream("documents", "id bigint, text string")
    stream.search(app.table("queries", "id bigint, query string", key="id"), text="text").to(sink)
    rival = _Tantivy(dataset.queries) if _installed() else None
    figures: list[Figure | Skipped] = []
    with Driver(app, shards=1) as driver:
        driver.log.topic("queries").append(dataset.rows(range(len(dataset.queries))))
        setting.say(f"stored {len(dataset.queries):,} queries in {_timed(driver.step):.2f} s of processor time")
        for count in (dataset.count, dataset.count // SMALL):
            mine, theirs = [], []
            for _ in range(1 + EPOCHS):
                texts, before = dataset.documents(count), sink.pairs
                mine.append(_epoch(driver, dataset, texts))
                if rival is not None:
                    same("pairs", sink.pairs - before, rival.pairs(texts))
                    theirs.append(rival.took)
                setting.say(f"{count:,} documents, {sink.pairs - before:,} pairs: {mine[-1]:.2f} s, {theirs[-1:]}")
            figures += _figures(f"{count:,} documents pass {len(dataset.queries):,} queries", count, mine, theirs)
    return figures


def _epoch(driver: Driver, dataset: Dataset, texts: Sequence[str]) -> float:
    """Change some queries and let documents pass; return the processor time."""
    count = len(dataset.queries)
    changed = dataset.random.choice(count, round(count * CHANGED), replace=False)
    driver.log.topic("queries").append(dataset.rows(changed.tolist()))
    driver.log.topic("documents").append(pa.table({"id": np.arange(len(texts)), "text": texts}))
    return _timed(driver.step)


def _figures(what: str, count: int, mine: list[float], theirs: list[float]) -> list[Figure | Skipped]:
    """Return the figures of epochs, the first one left out."""
    rate = count * EPOCHS / sum(mine[1:]) * 60
    figure = Figure(
        bench="search_stream",
        what=f"an epoch: {what}, processor time of one core: documents a minute over the target",
        rival=f"the target of {A_MINUTE:,} a minute",
        ratio=rate / A_MINUTE,
        must=">= 1",
        ours=rate,
        theirs=A_MINUTE,
        unit="a minute",
        runs=EPOCHS,
    )
    if not theirs:
        return [figure, Skipped(bench="search_stream", rival="Tantivy", reason="it is not installed")]
    against = compare_times(
        "search_stream",
        what=f"an epoch: {what}, processor time",
        rival="Tantivy: an index in memory of the epoch's documents, every query asked of it, and counted",
        must=None,
        ours=mine[1:],
        theirs=theirs[1:],
        unit="s",
    )
    return [figure, against]


def _installed() -> bool:
    try:
        import tantivy  # noqa: F401 -- whether it is there
    except ImportError:
        return False
    return True


class _Tantivy:
    """The rival."""

    def __init__(self, queries: Sequence[str]) -> None:
        import tantivy

        self.tantivy, self.took = tantivy, 0.0
        self.schema = tantivy.SchemaBuilder().add_text_field("text", stored=False).build()
        parser = tantivy.Index(self.schema)
        self.queries = [parser.parse_query(query, ["text"], conjunction_by_default=True) for query in queries]

    def pairs(self, texts: Sequence[str]) -> int:
        """Return how many pairs of documents and queries there are."""
        began = time.process_time()
        index = self.tantivy.Index(self.schema)
        writer = index.writer(heap_size=200_000_000, num_threads=1)
        for text in texts:
            writer.add_document(self.tantivy.Document(text=text))
        writer.commit()
        writer.wait_merging_threads()
        index.reload()
        searcher = index.searcher()
        found = sum(searcher.search(query, limit=1, count=True).count for query in self.queries)
        self.took = time.process_time() - began
        return found


def _timed(step: object) -> float:
    began = time.process_time()
    step()  # type: ignore[operator] # a method of the driver
    return time.process_time() - began


def _word(number: int) -> str:
    """Return a word: the later, the longer."""
    word, rest = "", number + 1
    while rest:
        rest, letter = divmod(rest, len(_LETTERS))
        word += _LETTERS[letter]
    return word + "aeiou"[number % 5] * (number > 200) + "st" * (number > 5000)
