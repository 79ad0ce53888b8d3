"""The parties that add noise to sums: the shares of nodes, the secure sum that carries them, and the fit's one draw."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.data import of_sets
from support.noise_case import spread_is
from support.significance import ALPHA

from fastfedrec import DPGram, DPSubspace, Key
from fastfedrec.accounting import Gaussian, GaussianShares, RoundTraffic
from fastfedrec.audit import audit
from fastfedrec.engines.aggregation import (
    AggregationNode,
    AggregationPlan,
    AggregationServer,
    Identity,
    simulate_secure_sum,
)
from fastfedrec.mechanisms import LayeredGaussian
from fastfedrec.systems import projection_rounds
from fastfedrec.systems._noise_source import NodeNoise, ServerNoise
from fastfedrec.systems._noisy_sum import _MAX_STDDEV
from fastfedrec.systems.gram import dp_gram_rounds
from fastfedrec.systems.gram.dp_gram_rounds import UNIT, GramState, PairSum, ShareSum
from fastfedrec.systems.projection_rounds import ProjectionSum, SubspaceState

N_ITEMS = 6
ROWS = [{0, 1, 2}, {1, 3}, {0, 4, 5}, {2}, set(), {1, 2, 3, 4}, {0, 5}, {3, 4}]
CENTRE = np.array([900, 200, 300, 800, 100, 0])
ENCODER = np.arange(18, dtype=np.int16).reshape(N_ITEMS, 3) - 9
DRAW = LayeredGaussian(2.0**36)
KEY = Key.from_seed(1)
ROUNDS = {
    "shares": (ShareSum(DRAW, KEY, 0.0), GramState(0 * CENTRE)),
    "pairs": (PairSum(DRAW, KEY, 0.0), GramState(CENTRE)),
    "projections": (
        ProjectionSum(DRAW, KEY, 0.0, number=0),
        SubspaceState((CENTRE // 4).astype(np.int32), ENCODER),
    ),
}


def sums_of(system, state, rows):
    (sums,) = system.local_round(state, of_sets(rows, N_ITEMS), KEY, 0).arrays.values()
    return sums.ravel()


# ---- oracle ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("absent", [set(), {2, 5}])
@pytest.mark.parametrize("name", ROUNDS)
def test_the_protocol_sums_the_integers_of_a_fit(name, absent):
    """Check that masked nodes of one user give the fit's sums plus their shares, with dropouts before their vector."""
    system, state = ROUNDS[name]
    values = np.stack([sums_of(system, state, [row]) for row in ROWS])
    shares = np.stack([
        DRAW.sample(values.shape[1], key=Key.from_seed(node), purpose="share") for node in range(len(ROWS))
    ])  # fmt: skip
    plan = AggregationPlan(
        "test", 0, n_values=values.shape[1], max_sum=2**62, degree=6, threshold=4, min_answers=len(ROWS) - len(absent)
    )
    total, n_answers = simulate_secure_sum(plan, values + shares, key=Key.from_seed(9), dropouts={"mask": absent})
    answered = [node for node in range(len(ROWS)) if node not in absent]
    assert n_answers == len(answered)
    expected = sums_of(system, state, [ROWS[node] for node in answered]) + shares[answered].sum(axis=0)
    np.testing.assert_array_equal(total, expected)
    # The noise has no effect on the difference from the noise, which is the exact sum that the server never sees.
    assert (total != sums_of(system, state, [ROWS[node] for node in answered])).all()


@pytest.mark.parametrize("honest", [0.5, 0.7, 1.0])
@pytest.mark.parametrize("model", [DPGram(2.0), DPSubspace(2.0, n_columns=3)], ids=str)
def test_the_draws_that_count_have_the_noise_of_a_trusted_server(model, honest):
    """Check each planned round against the round of a trusted server, which has the same privacy budget."""
    data = of_sets(ROWS * 20, N_ITEMS)
    secure = type(model)(**model.get_params() | {"aggregation": "secure", "honest_fraction": honest})
    n_counted = 152 - (160 - int(honest * 160))
    for one, other in zip(model._plan(data, KEY), secure._plan(data, KEY), strict=True):
        counted = Fraction(other.system.noise.stddev) ** 2 * n_counted
        assert one.system.noise.stddev**2 <= counted * (1 + Fraction(1, 2**30))
        assert float(counted) == pytest.approx(float(one.system.noise.stddev) ** 2, rel=1e-9)
        # The sums of 152 nodes are scaled to 160.
        width = one.system.width * math.sqrt(152 / n_counted) * 160 / 152
        assert other.system.width == pytest.approx(width, rel=1e-9)
        event = other.system.round_event(160)
        assert event.noise_multiplier == other.system.noise.noise_multiplier(other.system._unit)
        assert (event.n_nodes, event.n_answers, event.honest_fraction) == (160, 152, honest)
        assert event.distance >= other.system.noise.total_variation_of_shares(other.system.n_sums(other.state), 160)


# ---- invariants -----------------------------------------------------------------------------------------------------


@given(n_nodes=st.integers(3, 10**7), honest=st.floats(0.3, 1.0), dropout=st.floats(0.0, 0.2))
def test_costs_of_the_shares_that_count_add_up_to_the_budget(n_nodes, honest, dropout):
    n_answers = n_nodes - math.ceil(dropout * n_nodes)
    n_counted = n_answers - (n_nodes - int(honest * n_nodes))
    if n_counted < 1:
        with pytest.raises(ValueError, match="honest_fraction must leave honest nodes after all dropouts"):
            NodeNoise.planned(n_nodes, honest, dropout)
        return
    source = NodeNoise.planned(n_nodes, honest, dropout)
    assert source.n_counted == n_counted
    assert source.width == pytest.approx(math.sqrt(n_answers) * n_nodes / n_answers)
    # A share of cost mu / sqrt(n) is 1 / mu times as wide as the contribution, and variances add up.
    mu = source.mu_of_draw(0.1)
    assert 0.1**2 * (1 - 1e-11) <= mu**2 / n_counted <= 0.1**2


@pytest.mark.parametrize(
    ("n_users", "unit"), [(dp_gram_rounds.MAX_USERS, UNIT), (projection_rounds.MAX_USERS, projection_rounds.UNIT)]
)
def test_sums_and_noise_fit_into_64_bits(n_users, unit):
    """Check the largest sums that a plan allows, so that the sum modulo 2^64 is the sum itself."""
    # A draw beyond 40 standard deviations has a probability below any distance that is charged.
    assert n_users * unit + 40 * _MAX_STDDEV < 2**63


def test_a_server_adds_one_draw_whatever_the_number_of_clients():
    source = ServerNoise()
    assert source.width == source.mu_of_draw(1.0) == 1
    assert source.noise_of(DRAW, 3, "sums") is source.noise_of(DRAW, 0, "sums") is DRAW
    assert source.total_variation(DRAW, 7) == DRAW.total_variation_of(7)
    fields = {"neighboring": "zero_out", "sampling": "none"}
    assert source.event(2.0, "sums", fields) == Gaussian(2.0, "Gaussian noise on sums", **fields)


def test_sums_of_the_nodes_that_answered_estimate_the_sums_of_all():
    sums = np.array([950, -3, 0, 2**61])
    scaled = NodeNoise(1000, 900, 0.7).scale(sums, 950)
    np.testing.assert_array_equal(scaled[:3], [1000, -3, 0])
    assert scaled[3] == pytest.approx(2**61 / 0.95)
    assert NodeNoise(1000, 900, 0.7).scale(sums, 1000) is ServerNoise().scale(sums, 950) is sums


def test_the_public_sees_the_noise_of_all_nodes_that_answered():
    source, fields = NodeNoise.planned(1000, 0.7, 0.05), {"neighboring": "zero_out", "sampling": "none"}
    event = source.event(2.0, "sums", fields)
    assert event == GaussianShares(
        2.0, "Gaussian noise in shares on sums", n_nodes=1000, n_answers=950, honest_fraction=0.7, adding_fraction=1.0,
        **fields,
    )  # fmt: skip
    assert (event._n_shares(event.honest_fraction), event._n_shares(event.adding_fraction)) == (650, 950)


@pytest.mark.parametrize("n_nodes", [5, 12])
def test_the_traffic_of_a_round_is_that_of_the_protocol(n_nodes):
    """Check the largest node's bytes without dropouts; the vector alone is the traffic of a trusted server."""
    plan = AggregationPlan("test", 0, n_values=3, max_sum=2**62, degree=512, threshold=300, min_answers=n_nodes)
    identities = [Identity(bytes([number] * 32)) for number in range(n_nodes)]
    roster = [identity.name for identity in identities]
    nodes = {one.name: AggregationNode(plan, one, roster, Key.from_seed(1)) for one in identities}
    server, messages = AggregationServer(plan, roster), dict.fromkeys(roster, b"")
    down, up = (dict.fromkeys(roster, 0) for _ in range(2))
    while server.stage != "end":
        for name, message in messages.items():
            answer = nodes[name].answer(server.stage, message, lambda: [1, 2, 3])
            server.receive(name, answer)
            down[name], up[name] = down[name] + len(message), up[name] + len(answer)
        messages = server.advance()
    traffic = NodeNoise(n_nodes, n_nodes, 0.7).traffic(RoundTraffic(100, 3 * 8, n_nodes))
    assert set(down.values()) == {traffic.download - 100}
    assert set(up.values()) == {traffic.upload}
    assert ServerNoise().traffic(RoundTraffic(100, 24, n_nodes)) == RoundTraffic(100, 24, n_nodes)


# ---- bad inputs -----------------------------------------------------------------------------------------------------


def test_too_few_answers_end_a_round_without_a_result():
    source = NodeNoise.planned(1000, 0.7, 0.05)
    assert source.noise_of(DRAW, 950, "item shares").stddev >= DRAW.stddev * Fraction(math.isqrt(950))
    message = "949 of 1,000 nodes answered the round of item shares, and its noise needs 950.*larger dropout_fraction"
    with pytest.raises(RuntimeError, match=message):
        source.noise_of(DRAW, 949, "item shares")


# ---- statistics -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("n_answers", "factor"), [(950, 1.0), (1000, 1.0), (950, 0.9), (950, 1.1)])
def test_the_noise_of_a_result_is_the_sum_of_all_shares(n_answers, factor):
    draws = NodeNoise(1000, 950, 0.7).noise_of(DRAW, n_answers, "sums").sample(20_000, key=KEY, purpose="test")
    stddev = float(DRAW.stddev) * math.sqrt(n_answers)
    assert spread_is(draws.astype(float), factor * stddev) == (factor == 1.0)


@pytest.mark.slow
@pytest.mark.parametrize(("noise", "holds"), [(1.0, True), (0.5, False)])
def test_audit_of_the_servers_view_finds_half_of_the_noise(noise, holds):
    """Audit what a server knows that colludes with all dishonest nodes: the honest shares of a round are left."""
    source = NodeNoise.planned(1000, 0.7, 0.05)
    share = LayeredGaussian(2**36 / Fraction(source.mu_of_draw(1.0)))
    contribution = sums_of(*ROUNDS["shares"], [{0, 1, 2}])
    honest = LayeredGaussian(Fraction(noise) * share.sum_of(source.n_counted).stddev)

    def release(present, n):
        noisy = honest.add_noise(np.tile(present * contribution, (n, 1)), key=KEY, purpose=f"audit.{present}")
        return noisy @ (contribution / 2**36)

    bound = audit(release, 0, 1, 1.0, n=100_000, measure="mu", alpha=ALPHA, check_repeats=False).lower_bound
    assert (bound <= 1.0) == holds
    assert bound > 0.9
