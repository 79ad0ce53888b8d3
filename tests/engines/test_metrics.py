"""Tests of metrics: counts of logged rounds on a page for Prometheus, and its privacy."""

import ast
import json
import logging
import re
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from support.patience import HANG
from support.shuffler_case import RUN, codes, make, opened

from fastfedrec.core.log import JsonFormatter, RoundTotals, log_round, logger
from fastfedrec.engines.metrics import Metrics


@pytest.fixture
def metrics():
    prometheus_client = pytest.importorskip("prometheus_client")
    assert prometheus_client
    level = logger.level
    with Metrics(0, gauges={"connections": lambda: 5}) as metrics:
        yield metrics
    logger.setLevel(level)
    assert metrics not in logger.handlers


def page(metrics):
    """Return the values of the page by their names with labels."""
    with urllib.request.urlopen(f"http://127.0.0.1:{metrics.port}/metrics", timeout=HANG) as answer:
        lines = [line for line in answer.read().decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


# ---- invariants -----------------------------------------------------------------------------------------------------


def test_rounds_of_a_shuffler_are_counted_when_they_end(tmp_path, metrics):
    shuffler = opened(tmp_path, [("north", codes(1))])
    shuffler.count_refusal("late")
    assert not any("shuffler" in name for name in page(metrics))  # nothing before the end, so no time of a message
    shuffler.open(RUN, 1)  # round 0 had too few users
    for name in ("north", "south"):
        shuffler.submit(RUN, 1, name, codes(1, 2, 3))
    shuffler.release(RUN, 1)
    shuffler.release(RUN, 1)  # repeated, and counted once
    shuffler.open(RUN, 2)
    values = page(metrics)
    assert values['fastfedrec_rounds_total{outcome="given up",process="shuffler"}'] == 1
    assert values['fastfedrec_rounds_total{outcome="released",process="shuffler"}'] == 1
    assert values['fastfedrec_answers_total{process="shuffler"}'] == 3
    assert values['fastfedrec_received_bytes_total{process="shuffler"}'] == 4 * (1 + 3 + 3)
    assert values['fastfedrec_refused_total{process="shuffler",reason="late"}'] == 1
    assert values['fastfedrec_round_seconds_count{process="shuffler"}'] == 2
    assert values['fastfedrec_last_round_timestamp_seconds{process="shuffler"}'] > 1.7e9
    assert values["fastfedrec_connections"] == 5
    assert values["process_resident_memory_bytes"] > 1e6
    assert not any("north" in name or RUN[:8] in name for name in values)


def test_other_log_records_are_not_counted(metrics):
    before = page(metrics)
    logger.info("a remark")
    after = page(metrics)
    assert {name for name in after if "fastfedrec" in name} == {name for name in before if "fastfedrec" in name}
    totals = RoundTotals(3, {"late": 2, "invalid": 1}, 1.25, 700)
    log_round("DPGram: round 1 of 1 is done", totals, process="server", round=1, outcome="answered")
    assert page(metrics)['fastfedrec_refused_total{process="server",reason="late"}'] == 2  # the control


def test_a_round_is_one_line_of_text_or_of_json(tmp_path, caplog):
    with caplog.at_level(logging.INFO, "fastfedrec"):
        shuffler = opened(tmp_path, [("north", codes(1)), ("south", codes(2))])
        for kind in ("late", "late", "full"):
            shuffler.count_refusal(kind)
        shuffler.release(RUN, 0)
        shuffler.open(RUN, 1)
        make(tmp_path / "other").open(RUN, 0)
    (record,) = caplog.records
    text = record.getMessage()
    assert text.startswith(f"shuffler: round 0 of run {RUN[:8]} is released; 2 answers, 3 refused (full 1, late 2), 0.")
    assert text.endswith(" s, 8 bytes")
    values = json.loads(JsonFormatter().format(record))
    assert values.pop("time").endswith("+00:00")
    assert 0 <= values.pop("seconds") < 60
    assert values == {
        "level": "INFO", "message": text, "event": "round", "process": "shuffler", "round": 0, "outcome": "released",
        "answers": 2, "refused": {"late": 2, "full": 1}, "bytes": 8,
    }  # fmt: skip
    assert "north" not in json.dumps(values)


def test_json_keeps_the_trace_of_an_error_on_its_line():
    try:
        raise ValueError("a\nb")
    except ValueError:
        record = logging.LogRecord("fastfedrec", logging.ERROR, "", 0, "failed: %s", ("x",), sys.exc_info())
    line = JsonFormatter().format(record)
    assert "\n" not in line
    assert "ValueError: a\nb" in json.loads(line)["exception"]


# ---- the page on alarms ---------------------------------------------------------------------------------------------

ROOT = Path(__file__).resolve().parents[2]
ALARMS = re.findall(
    r"^\| `(\w+)` \| (.*) \|.*\|$", (ROOT / "docs/how-to/watch-a-deployment.md").read_text(), re.MULTILINE
)
CASES = [
    (name, label, value)
    for name, alarm in ALARMS
    for label in ("outcome", "reason")
    if f"`{label}`" in alarm
    for value in re.findall(r'"([^"]+)"', alarm)
]


def emitted_texts():
    """Return the texts of outcomes and kinds in calls of the code that logs rounds and refuses messages."""
    texts = set()
    for path in [*(ROOT / "fastfedrec/engines").rglob("*.py"), ROOT / "fastfedrec/rounds/receiver.py"]:
        for node in ast.walk(ast.parse(path.read_text())):
            values = []
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("_cut", "_log_end", "count_refusal"):
                values = node.args
            elif isinstance(node, ast.keyword) and node.arg == "kind":
                values = [node.value]
            elif isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") in ("outcome", "_KINDS"):
                values = list(ast.walk(node.value))
            texts |= {value.value for value in values if isinstance(value, ast.Constant)}
    return texts


def test_each_outcome_and_reason_of_an_alarm_is_emitted():
    assert len(CASES) >= 10
    assert {value for _, _, value in CASES} <= emitted_texts()
    assert not {"overloaded", "timeout"} & emitted_texts()  # the control


@pytest.mark.parametrize(("name", "label", "value"), CASES)
def test_each_metric_of_an_alarm_changes_with_its_round(metrics, name, label, value):
    totals = RoundTotals(1, {value: 2} if label == "reason" else {}, 1.0, 10)
    before = page(metrics)
    log_round("a round", totals, process="shuffler", round=0, outcome=value if label == "outcome" else "released")
    after = page(metrics)
    labels = f'outcome="{value}",process="shuffler"' if label == "outcome" else f'process="shuffler",reason="{value}"'
    key = f"fastfedrec_{name}{{{labels}}}"
    assert after[key] - before.get(key, 0) == (1 if label == "outcome" else 2)


def test_the_time_of_the_last_round_is_a_metric_of_an_alarm(metrics):
    (name,) = {name for name, _ in ALARMS} - {name for name, _, _ in CASES}
    log_round("a round", RoundTotals(1, {}, 1.0, 10), process="shuffler", round=0, outcome="released")
    assert time.time() - page(metrics)[f'fastfedrec_{name}{{process="shuffler"}}'] < HANG


# ---- bad inputs -----------------------------------------------------------------------------------------------------


def test_bad_arguments(monkeypatch):
    pytest.importorskip("prometheus_client")
    for port in (-1, 70_000):
        with pytest.raises(ValueError, match="port must be"):
            Metrics(port)
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(ImportError, match=r"pip install 'fastfedrec\[metrics\]'"):
        Metrics(0)
