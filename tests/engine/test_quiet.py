"""What Python's side of Spark logs when a JVM is lost is not for the user, who gets one error of ours."""

import logging
from types import SimpleNamespace

import pytest

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("traces", [False, True], ids=["plain", "traced"])
def test_py4j_logs_a_broken_callback_only_where_traces_were_asked_for(traces, monkeypatch, caplog):
    from headrace.engine.spark.failures import quiet

    monkeypatch.delenv("HEADRACE_TRACE", raising=False)
    if traces:
        monkeypatch.setenv("HEADRACE_TRACE", "1")
    loggers = [logging.getLogger(name) for name in (None, "py4j.clientserver", "py4j.java_gateway")]
    kept = [list(logger.filters) for logger in loggers]
    for logger in loggers:
        logger.filters.clear()
    try:
        quiet(SimpleNamespace())
        py4j = logging.getLogger("py4j.clientserver")
        record = py4j.makeRecord(py4j.name, logging.ERROR, "/lib/py4j/clientserver.py", 648, "a callback", (), None)
        py4j.handle(record)
        logging.getLogger("mine").error("kept")
    finally:
        for logger, filters in zip(loggers, kept, strict=True):
            logger.filters[:] = filters
    assert [each.message for each in caplog.records] == (["a callback"] if traces else []) + ["kept"]
