"""The tests of windows, tables, joins and changelogs, with the app's topics in Kafka: one suite, two transports.

They are the functions of tests/engine, with the same expectations. Those that look into the embedded log are left out,
and those of `DIFFERS`. The suite runs `SOME`; `make prove` runs all.
"""

from __future__ import annotations

import importlib.util
import inspect
import re
import sys
from pathlib import Path

import pytest

from headrace.dsl.app import TOPICS_VARIABLE

ENGINE = Path(__file__).parents[1] / "engine"
SOME = {
    "test_windows": "a_correction|final_gives_one|late_for_some",
    "test_tables": "last_record_of_a_key_wins|a_group_whose_rows|null_in_the_key_is_a_dead|row_without_a_key",
    "test_table_joins": "vector_of_tables_with_one_key$|foreign_key|other_epoch",
    "test_stream_joins": "vectors_in_one_epoch",
    "test_lookup_joins": "all_in_one_epoch|arrival_decides",
    "test_version_joins": "vector",
    "test_changelogs": "test",
    "test_sessions": "grow_merge",
    "test_sliding": "three_rows",
    "test_top": "only_rows_that_enter",
    "test_dedupe": "first_in_event_time",
    "test_table_windows": "leaves_the_window",
}
"""Which tests of a module the suite runs: those whose names match."""
DIFFERS = {
    "test_a_topic_whose_records_of_one_key_have_no_order_is_refused": "a topic of Kafka does not say what its key is",
    "test_a_delete_without_a_time_has_that_of_the_row_it_deletes": "in Kafka every record has a time, tombstones too",
}
LOOKS_INTO_THE_LOG = re.compile(r"\.log\b|Log\(|private|on_the_disk|\bcompact")


def loaded(module):
    sys.path.insert(0, str(ENGINE))
    try:
        spec = importlib.util.spec_from_file_location(f"on_kafka_{module}", ENGINE / f"{module}.py")
        made = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(made)
    finally:
        sys.path.remove(str(ENGINE))
    return made


def about_topics(module):
    """Yield the tests of a module that are about topics wherever they are."""
    for name, test in vars(loaded(module)).items():
        if name.startswith("test_") and name not in DIFFERS and not LOOKS_INTO_THE_LOG.search(inspect.getsource(test)):
            yield name, test


@pytest.fixture(params=["in process", pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.prove])])
def carrier(request):
    if request.param == "spark":
        request.getfixturevalue("spark")
    return request.param


drive = loaded("conftest").drive


@pytest.fixture(autouse=True)
def topics_in_kafka(broker, monkeypatch):
    monkeypatch.setenv(TOPICS_VARIABLE, broker.address)


def marked(test, *, prove):
    """Return another function with the marks of a test, perhaps also `prove`: a mark on the test itself would stay."""
    copy = type(test)(test.__code__, test.__globals__, test.__name__, test.__defaults__, test.__closure__)
    own = [thinned(mark) for mark in getattr(test, "pytestmark", ())]
    copy.pytestmark = [*own, *([pytest.mark.prove] if prove else [])]
    return copy


def thinned(mark):
    """Return a mark that leaves the last case of a matrix in the suite: transports do not differ by kinds of joins."""
    if mark.name != "parametrize":
        return mark
    names, (*others, last) = mark.args[0], mark.args[1]
    single = isinstance(names, str) and "," not in names
    return pytest.mark.parametrize(names, [*(long(case, single=single) for case in others), last], **mark.kwargs).mark


def long(case, *, single):
    """Return a case of `parametrize` marked `prove`."""
    if isinstance(case, type(pytest.param())):
        return pytest.param(*case.values, marks=[*case.marks, pytest.mark.prove], id=case.id)
    return pytest.param(*((case,) if single else case), marks=pytest.mark.prove)


globals().update(
    {
        f"{name}__{module.removeprefix('test_')}": marked(each, prove=not re.search(some, name))
        for module, some in SOME.items()
        for name, each in about_topics(module)
    }
)
