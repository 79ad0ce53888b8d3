"""The demo's fits: the cost of each in its trust model, and sentences that agree with the figures."""

import math

import pytest

from fastfedrec import DPLCF, FMFLDP, DPGram, Key, Popularity, datasets
from fastfedrec.accounting.views import TRUST_VIEWS
from fastfedrec.studies.demo import comparison
from fastfedrec.studies.demo.comparison import Result, Run, line_up, measure, verdicts
from fastfedrec.systems.private_recommender.recipes import plan_run


def row(trust, system, value, epsilon=math.inf, setting=""):
    return Result(trust, system, setting or system, epsilon, dict.fromkeys(comparison.METRICS, value), None, None, 0.0)


# ---- invariants -----------------------------------------------------------------------------------------------------


def test_each_system_costs_its_target_in_its_trust_model():
    runs = line_up(50_000, 1000)
    for trust, systems in comparison.TARGETS.items():
        for system, targets in systems.items():
            models = [run.model for run in runs if run.trusts == (trust,) and type(run.model).__name__ == system]
            ledgers = [plan_run(model, 50_000, 1000, comparison.DELTA).ledger for model in models]
            costs = [ledger.epsilon(TRUST_VIEWS[trust]) for ledger in ledgers]
            assert len(costs) == len(targets)
            assert all(0.98 * target < cost <= target for cost, target in zip(costs, targets, strict=True))
    assert [type(run.model) for run in runs if len(run.trusts) == 2] == [FMFLDP]
    assert next(type(run.model) for run in runs if run.trusts == ("none",)) is Popularity
    plain = next(run.model for run in runs if type(run.model) is DPLCF)
    assert 0.999 * 5000 < 1000 * plain.epsilon <= 5000


@pytest.mark.ignores_values
def test_results_have_costs_traffic_and_metrics():
    data = datasets.generate_implicit(1500, 200, key=Key.from_seed(1), mean_interactions=30)
    runs = [
        Run(Popularity(), ("none",)), Run(DPGram(epsilon=2.0), ("central",)),
        Run(FMFLDP(n_rounds=2, n_reports=3), ("shuffle", "local")),
    ]  # fmt: skip
    rows = measure(data, key=Key.from_seed(1), noise_key=Key.from_seed(2), show_progress=False, runs=runs)
    assert [(r.trust, r.system) for r in rows] == [
        ("none", "Popularity"), ("central", "DPGram"), ("shuffle", "FMFLDP"), ("local", "FMFLDP")
    ]  # fmt: skip
    free, central, shuffled, local = rows
    assert free.epsilon == math.inf
    assert central.epsilon == runs[1].model.ledger_.epsilon("public")
    assert local.epsilon == 2 * 3 * 2.5
    assert shuffled.epsilon < local.epsilon
    assert shuffled.metrics == local.metrics
    assert local.bytes_up == runs[2].model.communication_.to_dict()["upload_per_client"]
    assert free.bytes_up is None
    assert all(0 <= value <= 1 for r in rows for value in r.metrics.values())


@pytest.mark.parametrize(
    ("private", "expected"),
    [(0.50, "2.0 times as much as that list"), (0.10, "less than that list"), (0.251, "no clear difference from")],
)
def test_the_sentences_agree_with_the_figures(private, expected):
    results = [
        row("none", "Popularity", 0.25), row("none", "EASE", 0.6), row("central", "DPGram", private, 1.0),
        row("central", "DPGram", 0.6, 50.0), row("shuffle", "FMFLDP", 0.3, 4.18, "x"),
        row("local", "FMFLDP", 0.3, 5e3, "x"),
    ]  # fmt: skip
    sentences = verdicts(results, n_tested=10_000)
    assert sentences[0].startswith("Without privacy, EASE")
    assert "60.0% of the users" in sentences[0]
    assert sentences[1].startswith("With a trusted server, at a true epsilon of 1, DPGram has")
    assert expected in sentences[1]
    assert sentences[2].startswith("Behind a shuffler")
    assert not any(
        text.startswith("Without a trusted party") for text in sentences
    )  # no system there has a useful epsilon
    assert "to 5,000 against a server" in sentences[3]
    assert "4.18 if a shuffler" in sentences[3]
