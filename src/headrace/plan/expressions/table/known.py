"""Names of Spark's that the table does not have: refused by name, with the reason where there is one."""

from __future__ import annotations

NONDETERMINISTIC_HINT = (
    "Use the event time, or put the value into the record when it is sent: a replay must give the same result."
)
_BY_REASON = {
    "depends on when it is computed": """
        current_timestamp now localtimestamp current_date curdate current_time
    """,
    "gives another result each time": "rand random randn uuid shuffle randstr uniform",
    "depends on where it runs": "monotonically_increasing_id spark_partition_id input_file_name",
    "depends on who runs it": "current_user user session_user current_catalog current_database current_schema",
}
NONDETERMINISTIC = {name: reason for reason, names in _BY_REASON.items() for name in names.split()}

_REASONS = {
    "it depends on the order of the rows, which a group does not have;"
    " use max_by(value, time) or min_by(value, time)": "first last any_value first_value last_value",
    "not yet": """
        approx_count_distinct approx_percentile percentile_approx percentile median mode percentile_cont
        percentile_disc count_min_sketch histogram_numeric approx_top_k skewness kurtosis corr covar_pop covar_samp
        regr_slope regr_r2 bit_and bit_or bit_xor try_sum try_avg product listagg string_agg grouping grouping_id
        hll_sketch_agg
    """,
    "it is a window function; use .group_by(…).top(…) or .window(…)": """
        row_number rank dense_rank percent_rank ntile lag lead nth_value cume_dist
    """,
    "it makes rows; use .explode(column, as_)": "explode explode_outer posexplode posexplode_outer inline stack",
    "use .window(hr.tumbling(…)) and its kin": "window session_window window_time",
    "the hashes of the JVM are not computed here; use md5 or sha2": "hash xxhash64",
}
REFUSED = {name: reason for reason, names in _REASONS.items() for name in names.split()}

_OTHERS = """
    aes_decrypt aes_encrypt assert_true bitmap_bit_position bitmap_count bround bucket collate collation conv
    current_timezone days exp2 from_csv from_json from_xml get_json_object hours is_valid_utf8 is_variant_null
    java_method json_array_length json_object_keys json_tuple make_interval make_time make_utf8 make_valid_utf8 mask
    months normalize_nfc parse_json parse_url raise_error reflect schema_of_csv schema_of_json schema_of_variant
    sentences soundex split_to_map time_diff time_trunc to_char to_csv to_json to_number to_time to_varchar
    to_variant_object to_xml try_aes_decrypt try_make_interval try_parse_json try_parse_url try_reflect
    try_to_binary try_to_number try_to_time try_validate_utf8 try_variant_get validate_utf8 variant_get version
    xpath xpath_boolean xpath_double xpath_float xpath_int xpath_long xpath_number xpath_short xpath_string years
"""
SPARK = frozenset(_OTHERS.split())
