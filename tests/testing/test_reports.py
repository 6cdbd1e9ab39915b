import execnet
from _pytest.reports import TestReport


def test_a_worker_of_xdist_can_send_a_report_of_what_is_no_utf_8(request):
    odd = "a name of a file: \udcff"
    report = TestReport("test_odd", ("", 0, ""), {}, "failed", odd, "call", sections=[("Captured log call", odd)])
    sent = request.config.hook.pytest_report_to_serializable(config=request.config, report=report)
    found = execnet.loads(execnet.dumps(sent))
    assert (found["longrepr"], found["sections"]) == (
        r"a name of a file: \udcff",
        [("Captured log call", found["longrepr"])],
    )
