"""What is wrong is said at the line that declares it: the step, the part, and the next move."""

import pytest
from adversaries import SCHEMA

from headrace.base.errors import PlanError
from headrace.base.schema import parse
from headrace.expressions import aggregates, condition, scalar


def error_of(make, text):
    with pytest.raises(PlanError) as caught:
        make(text, SCHEMA, step="paid")
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("amuont + 1", ['[UNKNOWN_COLUMN] step "paid" has no column "amuont"', "Its columns are: i, j"]),
        ("pear.a", ['[UNKNOWN_COLUMN] step "paid" has no column "pear"', 'Did you mean "pair"?']),
        ("pair.c", ['has no column "pair.c"']),
        ("uper(s)", ['[UNKNOWN_FUNCTION] step "paid": there is no function "uper"', '"upper"', "app.function"]),
        ("mask(s)", ["[UNSUPPORTED_FUNCTION]", "mask()", "not supported", "map_batches", "app.read"]),
        ("explode(ints)", ["[UNSUPPORTED_FUNCTION]", ".explode(column, as_)"]),
        ("row_number() over (order by i)", ["[UNSUPPORTED_FUNCTION]", "window function", ".top("]),
        ("(select 1)", ["[UNSUPPORTED_FUNCTION]", "subquery"]),
        ("rand()", ["[NONDETERMINISTIC]", "rand()", "has another result each time", "event time"]),
        ("localtimestamp", ["[NONDETERMINISTIC]", "depends on when it is computed"]),
        ("i and p", ["[WRONG_TYPE]", '"i AND p"', "(int, boolean)"]),
        ("s + t", ["[WRONG_TYPE]", "string + string", "||"]),
        ("p = 1", ["[WRONG_TYPE]", "boolean, int"]),
        ("upper(ints)", ["[WRONG_TYPE]", "upper does not take (array<int>)"]),
        ("substring(s)", ["[WRONG_TYPE]", "substring takes 2 to 3, not 1 arguments"]),
        ("str_to_map(i)", ["[WRONG_TYPE]", "str_to_map does not take (int)"]),
        ("cast(i as date)", ["[WRONG_TYPE]", "int cannot be cast to date"]),
        ("cast(i as money)", ["money"]),
        ("counts = counts", ["[WRONG_TYPE]", "cannot compare a map"]),
        ("w * w", ["[WRONG_TYPE]", "more than 38 digits", "decimal(18,4)"]),
        ("try_add(i, s)", ["[WRONG_TYPE]", "a text is not taken here", "try_cast(x as double)"]),
        ("transform(ints, (a, b, c) -> a)", ["the function in transform takes 1 or 2 parameters, not 3"]),
        ("filter(ints, x -> x + 1)", ["the function in filter returns int, not boolean"]),
        ("aggregate(ints, 0L, (a, x) -> x)", ["returns int, but it starts with bigint", "Cast the start"]),
        ("upper(x -> x)", ["upper does not take (function)"]),
        ("get_json_object(s, '$.*')", ["the path '$.*' is not supported", "without wildcards"]),
        ("from_utc_timestamp(at, 'Europe/Nowhere')", ["'Europe/Nowhere' is no zone", "'Europe/Berlin'"]),
        ("schema_of_json(s)", ["[UNSUPPORTED_FUNCTION]", "get_json_object"]),
        ("from_json(s, t)", ["schema of from_json must be a constant text"]),
        ("from_json(s, 'a nothing')", ["'a nothing' is no schema", "'id int, name string'"]),
        ("from_json(s, 'a map<int,string>')", ["keys of type string, not int"]),
        ("to_json(s)", ["a struct, an array or a map, not string"]),
        ("hash(counts)", ["a map has no hash"]),
        ("xxhash64(w)", ["decimal(38,10) have no hash here", "Cast it to string"]),
        ("hash()", ["hash takes 1 or more"]),
        ("reveal(s)", ["[UNSUPPORTED_FUNCTION]", "after forget", "before it is appended"]),
        ("format_number(d, 2)", ["format_number(cast(x as decimal(18,2)), 2)"]),
        ("null", ["[WRONG_TYPE]", "void", "cast(null as string)"]),
        ("at - at2", ["[WRONG_TYPE]", "interval", "no column can have"]),
        ("s rlike '(?=a)'", ["look-around"]),
        (r"s like 'a\\b'", ["escapes only %, _"]),
        ("date_format(at, 'QQQ')", ["'QQQ'", "Supported are"]),
        ("sum(i)", ["[INVALID_EXPRESSION]", "sum is an aggregate", ".agg("]),
        ("i +", ["[INVALID_EXPRESSION]", "something is missing", "at character 3"]),
        ("i i2 j", ["[INVALID_EXPRESSION]", '"j" was not expected at character 6']),
        ("upper(s", ["[INVALID_EXPRESSION]"]),
        ("", ["[INVALID_EXPRESSION]", "no expression"]),
        ("select 1", ["[INVALID_EXPRESSION]", "not one expression"]),
        ("i as n", ["[INVALID_EXPRESSION]", "n='i'"]),
        ("*", ["[INVALID_EXPRESSION]", "count(*)"]),
        ("interval 1 month 1 day", ["months"]),
        ("date '2023-02-29'", ["is no date"]),
    ],
)
def test_what_is_wrong_is_said_with_the_step_and_the_part(text, parts):
    message = error_of(scalar, text)
    assert 'step "paid"' in message
    assert [part for part in parts if part not in message] == [], message


def test_a_condition_must_be_boolean():
    message = error_of(condition, "i + 1")
    assert "[WRONG_TYPE] step \"paid\": the condition 'i + 1' is int, not boolean" in message


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("i", ["[UNGROUPED_COLUMN]", '"i" is outside of an aggregate', "max_by(i, time)"]),
        ("sum(i) + j", ["[UNGROUPED_COLUMN]", '"j"']),
        ("sum(nope)", ['[UNKNOWN_COLUMN] step "paid" has no column "nope"']),
        ("nope", ["[UNKNOWN_COLUMN]"]),
        ("sum(count(*))", ["[INVALID_EXPRESSION]", "cannot be inside sum", "two steps"]),
        ("first(i)", ["[UNSUPPORTED_FUNCTION]", "max_by"]),
        ("product(i)", ["[UNSUPPORTED_FUNCTION]", "not yet"]),
        ("sum(i) over (partition by s)", ["window function"]),
        ("sum(p)", ["[WRONG_TYPE]", "sum does not take (boolean)"]),
        ("sum(*)", ["count(*)"]),
        ("max_by(i)", ["takes 2, not 1"]),
        ("stddev(distinct i)", ["does not take distinct"]),
        ("sum(i) filter (where i)", ["the filter is int, not boolean"]),
        ("max(counts)", ["cannot compare a map"]),
        ("median(p)", ["median does not take (boolean)"]),
        ("percentile(i)", ["percentile takes 2, not 1 arguments"]),
        ("percentile(i, 0.5, 2)", ["percentile takes 2, not 3", "several rows"]),
        ("percentile(i, i)", ["must be a constant"]),
        ("percentile(i, array(0.5, 1.5))", ["between 0 and 1, not 1.5"]),
        ("percentile_cont(i, 0.5)", ["percentile_cont needs the order", "within group (order by"]),
        ("percentile_cont(0.5) within group (order by i, j)", ["ordered by one value"]),
        ("sum(i) within group (order by i)", ["sum does not take within group"]),
        ("mode(distinct i)", ["mode does not take distinct"]),
        ("mode(counts)", ["cannot compare a map"]),
        ("median(median(i))", ["cannot be inside median"]),
        ("grouping(i)", ["[UNSUPPORTED_FUNCTION]", "grouping sets, rollup or cube"]),
        ("corr(i)", ["corr takes 2, not 1"]),
        ("bit_or(p)", ["bit_or does not take (boolean)"]),
        ("listagg(bin)", ["listagg takes text, not binary", "hex(x)"]),
        ("listagg(s, t)", ["delimiter of listagg must be a constant text"]),
        ("listagg(s, ',', ';')", ["a text and a delimiter, not 3"]),
        ("listagg(distinct s) within group (order by t)", ["[INVALID_EXPRESSION]", "ordered by these values"]),
        ("string_agg(s) within group (order by counts)", ["cannot compare a map"]),
        ("listagg(max(s))", ["cannot be inside listagg"]),
    ],
)
def test_an_aggregation_that_cannot_be_is_refused(text, parts):
    message = error_of(lambda text, schema, step: aggregates({"x": text}, schema, parse("s string"), step=step), text)
    assert [part for part in parts if part not in message] == [], message


def test_a_name_in_any_case_must_fit_one_column():
    schema = parse("Id int, ID int, id int, Name string, NAME string")
    assert scalar("id", schema, step="paid").columns == {"id"}
    with pytest.raises(PlanError, match="may be any of the columns Name, NAME"):
        scalar("name", schema, step="paid")
