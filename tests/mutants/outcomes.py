"""A pytest plugin that writes the outcome of each test to the file MUTANTS_OUTCOMES."""

import json
import os
from pathlib import Path

import pytest

PASSED, ASSERTED = "passed", "failed by an assertion"
_outcomes: dict[str, str] = {}


def classify(exception: BaseException, package: str) -> str:
    """Return whether an assertion of a test, or another exception, ended the test."""
    if isinstance(exception, BaseExceptionGroup):
        kinds = {classify(inner, package) for inner in exception.exceptions}
        return ASSERTED if kinds == {ASSERTED} else ", ".join(sorted(kinds - {ASSERTED}))
    if not isinstance(exception, AssertionError | pytest.fail.Exception):
        return f"broke: {type(exception).__name__}: {exception}".splitlines()[0]
    trace = exception.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    # An assertion inside the package is an error of the package, not a detection by a test.
    if trace is not None and trace.tb_frame.f_code.co_filename.startswith(package + os.sep):
        return f"broke: the package's own {type(exception).__name__}"
    return ASSERTED


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    name = item.nodeid
    if call.excinfo is not None and report.outcome == "failed":
        outcome = classify(call.excinfo.value, os.environ["MUTANTS_PACKAGE"])
        if call.when != "call":
            outcome = f"broke in its {call.when}: {type(call.excinfo.value).__name__}"
        if _outcomes.get(name, PASSED) == PASSED:
            _outcomes[name] = outcome
    elif report.outcome == "skipped":
        _outcomes[name] = "skipped"
    elif call.when == "call":
        _outcomes.setdefault(name, PASSED)


def pytest_collectreport(report):
    if report.outcome == "failed":
        _outcomes[report.nodeid] = "broke while it was collected"


def pytest_sessionfinish(session):
    Path(os.environ["MUTANTS_OUTCOMES"]).write_text(json.dumps(_outcomes))
