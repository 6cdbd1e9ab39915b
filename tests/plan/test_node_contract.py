"""What every kind of node promises, shown on the apps of `plan_apps`: a new kind needs an example there."""

from __future__ import annotations

import dataclasses
import inspect
import json

import pyarrow as pa
import pytest
from plan_apps import APPS

from headrace.engine.lowering.walk import lowered
from headrace.plan import nodes
from headrace.plan.nodes import ROW_TIME, Description, Join, Late, Node, Stateful


def kinds(base):
    """Return every concrete kind of node of the package; other tests may define kinds of their own."""
    for kind in base.__subclasses__():
        if not inspect.isabstract(kind) and kind.__module__.startswith("headrace."):
            yield kind
        yield from kinds(kind)


KINDS = sorted({kind.__name__: kind for kind in kinds(Node)}.items())


@pytest.fixture(scope="module")
def examples():
    """The nodes of all apps, by the name of their kind."""
    found = {}
    for make in APPS.values():
        for node in make().plan().nodes:
            found.setdefault(type(node).__name__, []).append(node)
    return found


@pytest.fixture(params=[name for name, _ in KINDS])
def some(request, examples):
    """All nodes of one kind."""
    assert request.param in examples, f"no app of tests/plan/plan_apps.py has a {request.param}: add one"
    return examples[request.param]


def test_a_kind_is_a_public_name_of_the_room():
    assert [name for name, _ in KINDS if name not in nodes.__all__] == []


@pytest.mark.parametrize("kind", dict(KINDS).values(), ids=dict(KINDS))
def test_a_kind_has_a_lowering(kind):
    assert lowered.dispatch(kind) is not lowered.dispatch(object)


@pytest.mark.parametrize("kind", dict(KINDS).values(), ids=dict(KINDS))
def test_a_kind_names_its_verb(kind):
    assert kind.verb.isidentifier()


def test_a_kind_without_a_description_cannot_be_made():
    @dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
    class Silent(Node):
        verb = "silent"

    with pytest.raises(TypeError, match="describe"):
        Silent(schema=pa.schema([]))


def test_a_stateful_kind_without_an_identity_cannot_be_made():
    @dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
    class Forgetful(Stateful):
        verb = "forgetful"
        partition_keys = ((),)

        def describe(self):
            return Description()

    with pytest.raises(TypeError, match="identity"):
        Forgetful(schema=pa.schema([]))


def test_a_node_cannot_be_changed(some):
    for node in some:
        with pytest.raises(dataclasses.FrozenInstanceError):
            node.name = "other"


def test_a_node_is_described_in_one_line_of_text(some):
    for node in some:
        described = node.describe()
        texts = [described.detail, described.window, described.emit, described.state]
        assert all(text is None or (isinstance(text, str) and "\n" not in text) for text in texts)
        assert described.detail or len(node.ups) > 1
        assert node.shown_verb


def test_a_node_describes_its_state_if_it_keeps_any(some):
    for node in some:
        assert node.stateful == isinstance(node, Stateful) == (node.describe().state is not None)


def test_what_a_node_says_of_columns_is_of_its_own_columns(some):
    for node in some:
        columns = set(node.schema.names)
        assert columns.issuperset(node.key or ())
        assert columns.issuperset(node.not_null)
        assert columns.issuperset(node.sealed)
        assert node.time_column in {None, ROW_TIME, *columns}
        assert node.event_time_column in {None, *columns}


def test_columns_have_names_that_differ(some):
    for node in some:
        assert len({name.lower() for name in node.schema.names}) == len(node.schema)


def test_a_node_that_withdraws_rows_is_a_table(some):
    for node in some:
        assert node.is_table or node.append_only


def test_a_stream_has_no_key(some):
    for node in some:
        assert node.is_table or node.key is None


def test_a_stateless_node_leaves_rows_where_they_are_or_nobody_knows_where(some):
    for node in some:
        if not node.stateful:
            above = tuple(node.ups[0].schema.names[:1]) if node.ups else ("nothing",)
            assert set(node.schema.names).issuperset(node.partition_after(above) or ())
            assert node.partition_after(None) is None


def test_walking_ends_at_the_node_and_begins_at_its_sources(some):
    for node in some:
        walked = list(node.walk())
        assert walked[-1] is node
        assert not walked[0].ups
        assert len({id(step) for step in walked}) == len(walked)
        places = {id(step): i for i, step in enumerate(walked)}
        assert all(places[id(up)] < places[id(step)] for step in walked for up in step.ups)


STATEFUL = [name for name, kind in KINDS if issubclass(kind, Stateful)]


@pytest.mark.parametrize("name", STATEFUL)
def test_an_identity_survives_json(name, examples):
    for node in examples[name]:
        assert json.loads(json.dumps(node.identity())) == node.identity()
        assert node.identity()


@pytest.mark.parametrize("name", STATEFUL)
def test_a_stateful_node_is_partitioned_by_columns_of_each_input(name, examples):
    for node in examples[name]:
        assert len(node.partition_keys) == len(node.ups)
        assert len({len(columns) for columns in node.partition_keys}) == 1
        for up, columns in zip(node.ups, node.partition_keys, strict=True):
            assert set(up.schema.names).issuperset(columns)
        every = tuple(range(len(node.partition_keys[0])))
        assert set(node.schema.names).issuperset(node.partition_keys_after(every) or ())


@pytest.mark.parametrize("name", STATEFUL)
def test_what_is_said_of_late_rows_is_of_their_columns(name, examples):
    for node in examples[name]:
        late = set(node.late_schema.names)
        assert late.issuperset(node.late_sealed)
        assert node.late_reason
        assert node.hold >= 0


@pytest.mark.parametrize("name", STATEFUL)
def test_a_node_that_emits_by_time_alone_also_detects_late_rows(name, examples):
    """Rows that are given out for good cannot be taken back for one that is late."""
    for node in examples[name]:
        assert node.detects_late or not (node.emits_on_watermark and node.append_only)


def test_late_rows_are_facts_with_the_columns_that_their_step_says(examples):
    for late in examples[Late.__name__]:
        assert late.append_only
        assert not late.is_table
        assert late.schema == late.of.late_schema
        assert late.of.detects_late


def test_no_two_kinds_of_join_are_stored_under_one_name():
    stored = [kind.kind for name, kind in KINDS if issubclass(kind, Join)]
    assert len(set(stored)) == len(stored)
