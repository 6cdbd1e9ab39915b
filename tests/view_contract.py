"""What every store of views keeps: a file of tests imports these, with its store as the fixture `views`."""

from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.base.errors import InvalidName, UnknownView, ViewChanged, ViewOutOfStep
from headrace.base.schema import parse
from headrace.views.store import ViewDescription, Views

COUNTS = parse("word string, n bigint")


def delta(*rows, schema=COUNTS):
    """Make a delta from rows of which the last value is the weight."""
    columns = zip(*rows, strict=True) if rows else [[] for _ in range(len(schema) + 1)]
    full = schema.append(pa.field("_weight", pa.int64()))
    return pa.table([pa.array(list(c), f.type) for c, f in zip(columns, full, strict=True)], schema=full)


def rows(read):
    return [tuple(row.values()) for row in read.to_pylist()]


WORDS = st.sampled_from(["a", "b", None])


@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(st.tuples(WORDS, st.integers(0, 2), st.sampled_from([1, 2, -1])), max_size=5), max_size=5))
def test_a_bag_is_the_sum_of_its_deltas(views, epochs):
    expected = Counter()
    views.reset()
    views.declare("v", COUNTS, None)
    for epoch, changes in enumerate(epochs):
        total = Counter(expected)
        for word, n, weight in changes:
            total[word, n] += weight
        if min(total.values(), default=0) >= 0:
            expected = total
            views.apply(epoch, {"v": delta(*changes)})
    assert Counter(rows(views.read("v"))) == +expected
    assert views.damage() == {}


def test_the_store_keeps_the_contract(views):
    store: Views = views
    assert store.names() == []


def test_with_a_key_rows_come_change_and_go(views):
    views.declare("counts", COUNTS, ("word",))
    views.apply(0, {"counts": delta(("b", 1, 1), ("a", 1, 1))})
    assert rows(views.read("counts")) == [("a", 1), ("b", 1)]
    views.apply(1, {"counts": delta(("b", 1, -1), ("a", 1, -1), ("a", 2, 1))})
    assert rows(views.read("counts")) == [("a", 2)]
    views.apply(2, {"counts": delta(("a", 3, 1), ("c", 1, 1))})
    assert rows(views.read("counts")) == [("a", 3), ("c", 1)]


def test_a_null_is_a_key_like_any_other(views):
    schema = parse("a string, b int, n int")
    views.declare("v", schema, ("a", "b"))
    views.apply(0, {"v": delta((None, None, 1, 1), (None, 1, 1, 1), ("x", None, 1, 1), schema=schema)})
    views.apply(1, {"v": delta((None, None, 2, 1), ("x", None, 2, 1), (None, 1, 1, -1), schema=schema)})
    assert rows(views.read("v")) == [(None, None, 2), ("x", None, 2)]


def test_the_empty_key_is_a_view_of_one_row(views):
    schema = parse("total bigint")
    views.declare("v", schema, ())
    views.apply(0, {"v": delta((1, 1), schema=schema)})
    views.apply(1, {"v": delta((1, -1), (2, 1), schema=schema)})
    assert rows(views.read("v")) == [(2,)]
    views.apply(2, {"v": delta((3, 1), schema=schema)})
    assert rows(views.read("v")) == [(3,)]
    views.apply(3, {"v": delta((3, -1), schema=schema)})
    assert rows(views.read("v")) == []


def test_a_view_whose_every_column_is_key(views):
    schema = parse("a int, b int")
    views.declare("v", schema, ("b", "a"))
    views.apply(0, {"v": delta((1, 2, 1), (2, 1, 1), schema=schema)})
    views.apply(1, {"v": delta((1, 2, 1), schema=schema)})
    assert rows(views.read("v")) == [(2, 1), (1, 2)]


def test_a_bag_counts_equal_rows(views):
    views.declare("v", COUNTS, None)
    views.apply(0, {"v": delta(("a", 1, 1), ("a", 1, 1), (None, 1, 2), ("b", 1, 1))})
    views.apply(1, {"v": delta(("a", 1, -1), (None, 1, -1), ("b", 2, 1))})
    assert rows(views.read("v")) == [(None, 1), ("a", 1), ("b", 1), ("b", 2)]


def test_an_epoch_counts_once(views):
    views.declare("v", COUNTS, None)
    for _ in range(2):
        views.apply(0, {"v": delta(("a", 1, 1))})
        views.apply(3, {"v": delta(("b", 1, 1))})
        views.apply(2, {"v": delta(("c", 1, 1))})
    assert (views.applied(), rows(views.read("v"))) == (3, [("a", 1), ("b", 1)])


def test_an_epoch_is_applied_to_all_views_or_to_none(views):
    views.declare("first", COUNTS, ("word",))
    views.declare("last", COUNTS, ("word",))
    views.apply(0, {"first": delta(("a", 1, 1)), "last": delta(("a", 1, 1))})
    with pytest.raises(ViewOutOfStep) as failed:
        views.apply(1, {"first": delta(("a", 2, 1)), "last": delta(("b", 1, -1))})
    assert str(failed.value).splitlines()[0] == (
        '[VIEW_OUT_OF_STEP] epoch 1 withdraws 1 row that the view "last" does not have'
    )
    assert "verify FILE --repair" in failed.value.hint
    assert (views.applied(), rows(views.read("first"))) == (0, [("a", 1)])
    with pytest.raises(UnknownView):
        views.apply(1, {"first": delta(("a", 2, 1)), "nowhere": delta()})
    assert (views.applied(), rows(views.read("first"))) == (0, [("a", 1)])


def test_a_bag_from_which_a_strange_row_is_withdrawn_says_so(views):
    views.declare("v", COUNTS, None)
    with pytest.raises(ViewOutOfStep, match="withdraws 2 rows that the view"):
        views.apply(0, {"v": delta(("a", 1, 1), ("a", 1, -2), ("b", 1, -1))})


def test_a_view_that_changed_is_refused_with_what_changed(views):
    views.declare("v", COUNTS, ("word",))
    with pytest.raises(ViewChanged) as failed:
        views.declare("v", parse("word string, n int, at timestamp"), ("word", "at"))
    assert str(failed.value) == (
        '[VIEW_CHANGED] the view "v" is stored with other columns or another key\n'
        'Detail: the column "at" is new; the column "n" was bigint and is now int; '
        "the key was (word) and is now (word, at).\n"
        "Hint: Give the view another name, or drop it and recompute it: headrace reset FILE."
    )
    with pytest.raises(ViewChanged, match=r"another key"):
        views.declare("v", COUNTS, None)
    with pytest.raises(ViewChanged, match=r"other columns"):
        views.declare("v", parse("word string"), ("word",))
    assert views.describe("v") == ViewDescription(COUNTS, ("word",), 0)


def test_a_name_that_is_not_allowed_is_refused(views):
    with pytest.raises(InvalidName) as failed:
        views.declare("my view", COUNTS, None)
    assert str(failed.value) == (
        "[INVALID_NAME] 'my view' is not allowed as the name of a view\n"
        "Detail: Letters, digits and _ are allowed, up to 200 of them; the first is not a digit.\n"
        'Hint: Try "my_view".'
    )


def test_an_unknown_view_is_named_with_its_neighbour(views):
    with pytest.raises(UnknownView, match="there is no view") as failed:
        views.read("counts")
    assert failed.value.detail == "The store has no view yet."
    views.declare("counts", COUNTS, None)
    with pytest.raises(UnknownView) as failed:
        views.read("count")
    assert failed.value.hint == 'Did you mean "counts"?'


def test_a_dropped_view_can_come_back_in_another_form(views):
    views.declare("v", COUNTS, ("word",))
    views.declare("w", COUNTS, None)
    views.apply(0, {"v": delta(("a", 1, 1)), "w": delta(("a", 1, 1), ("b", 1, 1), ("b", 1, -1))})
    views.drop("v")
    assert views.names() == ["w"]
    with pytest.raises(UnknownView):
        views.drop("v")
    views.declare("v", parse("other int"), None)
    assert rows(views.read("v")) == []
    assert views.applied() == 0


def test_reset_forgets_views_and_epochs(views):
    views.reset()
    views.declare("v", COUNTS, ("word",))
    views.apply(7, {"v": delta(("a", 1, 1))})
    views.reset()
    assert (views.names(), views.applied()) == ([], -1)
    views.declare("v", parse("other int"), None)
    views.apply(0, {})
    assert views.applied() == 0


def test_a_snapshot_stays_while_epochs_pass(views):
    views.declare("first", COUNTS, ("word",))
    views.declare("last", COUNTS, ("word",))
    views.apply(0, {"first": delta(("a", 1, 1)), "last": delta(("a", 1, 1))})
    with views.snapshot() as then:
        views.apply(1, {"first": delta(("a", 2, 1)), "last": delta(("a", 2, 1))})
        assert (then.applied(), rows(then.read("first")), rows(then.read("last"))) == (0, [("a", 1)], [("a", 1)])
        assert (then.names(), then.describe("last").rows) == (["first", "last"], 1)
    assert (views.applied(), rows(views.read("first"))) == (1, [("a", 2)])
