"""Advice for secure aggregation: systems and figures of a trusted server with the same noise."""

import json
import math
import re

import pytest
from naive.accounting import shares as naive
from scipy import optimize
from systems.private_recommender.test_choice import corner

from fastfedrec.systems.private_recommender.choice import advise


@pytest.mark.parametrize(("n_items", "system"), [(500, "DPGram"), (20_000, "DPSubspace")])
def test_honest_nodes_get_the_systems_of_a_trusted_server_at_the_same_cost(n_items, system):
    answers = {h: advise(20_000, n_items, 2.0, "aggregator", honest_fraction=h) for h in (0.5, 0.7)}
    central = advise(20_000, n_items, 2.0, "central")
    for honest, answer in answers.items():
        best = answer.best
        assert (best.system, best.parameters["honest_fraction"]) == (system, honest)
        # Only the noise of each node depends on the share, so that the figure against the server is the same.
        assert best.epsilon == pytest.approx(central.best.epsilon, rel=1e-3)
        assert best.epsilon_alone == math.inf
        assert {offer.system for offer in (*answer.offers, *answer.popularities)} <= {"DPGram", "DPSubspace", "Random"}
        assert f"If fewer than {100 * honest:.0f}% of the nodes are honest" in answer.summary()


def test_honest_nodes_have_the_figures_of_a_server_with_their_noise(tmp_path):
    def epsilon_of(mu):
        return float(naive.epsilon(mu**2, 1e-6))

    # Of 20,000 nodes 19,000 answer, and 13,000 shares count.  Sums of the 19,000 are scaled to all nodes.
    mu = optimize.bisect(lambda mu: epsilon_of(mu) - 2.0, 0.01, 2.0)
    equal = epsilon_of(mu * math.sqrt(13_000 * 19_000) / 20_000)
    rows = [
        *corner(19_000, 0.97 * equal, 0.60, 0.50), *corner(19_000, 1.01 * equal, 0.70, 0.50),
        *corner(20_000, 0.97 * equal, 0.80, 0.50), *corner(19_000, 2.0, 0.90, 0.50),
    ]  # fmt: skip
    measured = tmp_path / "advice.json"
    header = {"source": "made up", "code": "0", "machine": "none", "n_threads": 1, "delta": 1e-6}
    measured.write_text(json.dumps(header | {"rows": rows}))
    answer = advise(20_000, 300, 2.0, "aggregator", honest_fraction=0.7, measured=measured)
    assert (answer.best.system, answer.best.expected, answer.best.n_measured) == ("DPGram", 0.60, 19_000)
    # With all nodes honest and none absent the noise is the one of a trusted server.
    answer = advise(20_000, 300, 2.0, "aggregator", honest_fraction=1.0, dropout_fraction=0.0, measured=measured)
    assert answer.best.expected == advise(20_000, 300, 2.0, "central", measured=measured).best.expected == 0.90


@pytest.mark.parametrize(
    ("n_users", "honest", "dropout", "remedy"),
    [
        (5_000, 0.7, 0.9, "lower dropout_fraction to 0.6998, or raise honest_fraction"),
        (3, 0.5, 0.05, "lower dropout_fraction to 0, or raise honest_fraction"),
        (3, 0.3, 0.05, "nodes; raise honest_fraction"),
    ],
)
def test_dropouts_that_may_leave_no_honest_node_are_refused_with_a_fraction_that_works(
    n_users, honest, dropout, remedy
):
    with pytest.raises(ValueError, match=f"with dropout_fraction {dropout:g} of {n_users} nodes") as error:
        advise(n_users, 500, 2.0, "aggregator", honest_fraction=honest, dropout_fraction=dropout)
    assert str(error.value).endswith(remedy)
    if works := re.search("dropout_fraction to ([0-9.]+)", remedy):
        advise(n_users, 500, 2.0, "aggregator", honest_fraction=honest, dropout_fraction=float(works[1]))


def test_an_offer_without_honest_nodes_has_a_summary():
    advice = advise(900, 80, 2.0, "aggregator", honest_fraction=0.7, delta=1e-30)
    assert advice.best.system == "Random"
    assert "Use Random; this fits it" in advice.summary(details=True)
    assert [remark for remark in advice.remarks if re.match("DPGram: `delta` must be above .*; pass a larger", remark)]
