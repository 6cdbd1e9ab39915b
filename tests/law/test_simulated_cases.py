"""Cases that the simulation found and that no other test shows, as it printed them."""

from headrace.testing.simulation import Case, Output, Step, check


def test_windows_over_a_table_read_only_the_columns_that_they_need_of_a_choice_of_columns():
    """Seed 24025200."""
    failure = check(
        Case(
            steps=(
                Step(
                    name="t",
                    inputs=(),
                    code='app.table("t", SCHEMA, key="id", event_time="ts", out_of_order="9 days", partitions=1)',
                    sql="SELECT * FROM t_current",
                ),
                Step(
                    name="x1",
                    inputs=("t",),
                    code='{0}.with_columns(v="CAST(coalesce(v, 0) AS bigint)")',
                    sql="SELECT id, k, g, CAST(coalesce(v, 0) AS BIGINT) AS v, ts, _seq, _w FROM {0}",
                ),
                Step(
                    name="x2",
                    inputs=("x1",),
                    code='{0}.group_by("k").window(hr.cumulating("10 seconds", "5 seconds", grace="9 '
                    'days")).agg(id="min(id)", g="CAST(count(*) AS int)", v="CAST(sum(v) - count(*) AS '
                    'bigint)").named("{me}")',
                    sql="SELECT k, window_start, window_end, min(id) AS id, CAST(count(*) AS INT) AS g, CAST(sum(v) - "
                    "count(*) AS BIGINT) AS v FROM (SELECT * FROM (SELECT *, ts - ts % 10000000 AS window_start, "
                    "ts - ts % 10000000 + (n + 1) * 5000000 AS window_end FROM {0} CROSS JOIN (VALUES (0), (1)) "
                    "AS hops(n) WHERE ts < ts - ts % 10000000 + (n + 1) * 5000000)) GROUP BY k, window_start, "
                    "window_end",
                ),
            ),
            outputs=(Output(name="o_x2", step="x2", kind="topic", waits=False, sql=None),),
            actions=(("send", "t", ((5, "é", 0, 0, 1767225625000),)),),
            shards=1,
            seed=24025200,
        )
    )
    assert failure is None, failure
