"""Names of Spark's that the table does not have: refused by name, with the reason where there is one."""

from __future__ import annotations

NONDETERMINISTIC_HINT = (
    "Use the event time, or put the value into the record when it is sent: a replay must give the same result."
)
_BY_REASON = {
    "depends on when it is computed": """
        localtimestamp current_time
    """,
    "has another result each time": "rand random randn uuid shuffle randstr uniform",
    "depends on where it runs": "monotonically_increasing_id spark_partition_id input_file_name",
    "depends on who runs it": "current_user user session_user current_catalog current_database current_schema",
}
NONDETERMINISTIC = {name: reason for reason, names in _BY_REASON.items() for name in names.split()}

_REASONS = {
    "it depends on the order of the rows, which a group does not have;"
    " use max_by(value, time) or min_by(value, time), or .over(…), where rows have an order": """
        first last any_value first_value last_value
    """,
    "not yet": """
        count_min_sketch histogram_numeric try_sum try_avg product hll_sketch_agg
    """,
    "it says which columns are grouped; use it in app.sql with grouping sets, rollup or cube": "grouping grouping_id",
    "it is a window function; use .group_by(…).over(…), .top(…) or .window(…)": """
        row_number rank dense_rank percent_rank ntile lag lead nth_value cume_dist
    """,
    "it makes rows; use .explode(column, as_)": "explode explode_outer posexplode posexplode_outer inline stack",
    "use .window(hr.tumbling(…)) or another window": "window session_window window_time",
    "it depends on the zone of the session, which here is UTC": "current_timezone",
    "its result has no type that a column can have; use case when … with a cast that raises, or on_error": """
        raise_error assert_true
    """,
    "an interval of months and days has no type here; use make_dt_interval or make_ym_interval": """
        make_interval try_make_interval
    """,
    "Spark's lenient readers are not computed here; take fields out with get_json_object, split or regexp_extract": """
        json_tuple schema_of_json from_csv schema_of_csv from_xml schema_of_xml parse_url try_parse_url
        xpath xpath_boolean xpath_double xpath_float xpath_int xpath_long xpath_number xpath_short xpath_string
    """,
    "text of whole structs is not written here; put it together with concat_ws or format_string": """
        to_csv to_xml
    """,
    "variants are no type of a column here": """
        parse_json try_parse_json variant_get try_variant_get is_variant_null to_variant_object schema_of_variant
    """,
    "it calls code outside of the plan": "java_method reflect try_reflect",
    "its patterns of numbers are not read or written here; use cast, round and format_number": """
        to_char to_varchar to_number try_to_number conv
    """,
}
REFUSED = {name: reason for reason, names in _REASONS.items() for name in names.split()}

_OTHERS = """
    aes_decrypt aes_encrypt bitmap_bit_position bitmap_count bround bucket collate collation days exp2 hours
    is_valid_utf8 make_time make_utf8 make_valid_utf8 mask months normalize_nfc sentences soundex split_to_map
    time_diff time_trunc to_time try_aes_decrypt try_to_binary try_to_time try_validate_utf8 validate_utf8 version
    years
"""
SPARK = frozenset(_OTHERS.split())
