"""Tests of states of a hostile server: no node sends more than its bound, and no failure depends on its data."""

import warnings
from dataclasses import replace

import numpy as np
import pytest

from fastfedrec import DPALS, DPFMF, FMFLDP, DPGram, DPSubspace, Interactions, Key, PrivRec
from fastfedrec.engines.deployment.deployment_of import deployment_of
from fastfedrec.systems import projection_rounds as subspace
from fastfedrec.systems.factor_rounds import UNIT
from fastfedrec.systems.gram.dp_gram_rounds import SCALE as GRAM_SCALE
from fastfedrec.systems.gram.dp_gram_rounds import UNIT as GRAM_UNIT

KEY = Key.from_seed(4)
N_ITEMS, N_FACTORS = 7, 3
SOME = Interactions.from_arrays(["u"] * 4, [0, 2, 3, 6], item_ids=np.arange(N_ITEMS))
NONE = SOME.keep_interactions(np.zeros(4, dtype=bool))


def hostile(shape, dtype):
    """Finite arrays at every end of their type's range."""
    limits, rng = np.finfo(dtype), np.random.default_rng(1)
    smallest, largest = float(limits.smallest_subnormal), float(limits.max)
    normal = rng.normal(size=shape)
    # Exponents are uniform over the range of the type.
    exponents = rng.uniform(np.log2(smallest) + 1, np.log2(largest) - 1, size=shape)
    with np.errstate(over="ignore", under="ignore"):
        made = {
            f"of size 2^{e}": normal * 2.0**e for e in range(limits.minexp - limits.nmant + 4, limits.maxexp - 3, 29)
        }
        made |= {
            "zeros": np.zeros(shape), "minus zeros": -np.zeros(shape), "subnormal": np.full(shape, smallest),
            "largest": np.full(shape, largest), "signs": np.where(normal > 0, largest, -largest),
            "all sizes": np.sign(normal) * 2.0**exponents,
            "one is large": np.where(np.arange(normal.size).reshape(shape) == 4, largest, normal),
            "one is small": np.where(np.arange(normal.size).reshape(shape) == 4, smallest, 0.0),
        }  # fmt: skip
        return {name: array.astype(dtype) for name, array in made.items()}


FACTORS = hostile((N_ITEMS, N_FACTORS), np.float64)
# Each phase: the system, the number of the phase, and the bound of one user's sums by field.
PHASES = {
    "dp_fmf": (DPFMF(1.0, n_factors=N_FACTORS, n_rounds=1), 0, {"gradients": 1}),
    "dp_fmf weak": (DPFMF(1.0, n_factors=N_FACTORS, n_rounds=1, regularization=1e-300), 0, {"gradients": 1}),
    "dp_fmf strong": (DPFMF(1.0, n_factors=N_FACTORS, n_rounds=1, regularization=9e99), 0, {"gradients": 1}),
    "dp_als start": (DPALS(1.0, n_factors=N_FACTORS, max_items=3), 1, {"item_projections": 3}),
    "dp_als": (
        DPALS(1.0, n_factors=N_FACTORS, max_items=3), 2, {"all_products": 1, "item_products": 3, "item_sums": 3},
    ),
}  # fmt: skip


def answer(deployment, rounds, state, shard):
    """Return a node's message, or the error in its place, which must not depend on the shard."""
    if deployment.objection(rounds, state, shard, "a") is not None:
        return "refused"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return deployment.work(rounds, state, shard, KEY, 0, "a", 1, None)[0].arrays
        except (ValueError, ArithmeticError, np.linalg.LinAlgError) as error:
            return type(error).__name__, str(error)


def rounds_of(system, phase, n_users=5):
    deployment = deployment_of(system)
    return deployment, deployment.rounds_of(phase, n_users, np.arange(N_ITEMS))


@pytest.mark.parametrize("sent", FACTORS)
@pytest.mark.parametrize("name", PHASES)
def test_one_users_sums_stay_within_the_norm_for_any_factors(name, sent):
    system, phase, bounds = PHASES[name]
    deployment, rounds = rounds_of(system, phase)
    state = replace(rounds.state, item_factors=FACTORS[sent])
    full, empty = (answer(deployment, rounds, state, shard) for shard in (SOME, NONE))
    assert type(full) is type(empty)
    if type(full) is not dict:
        assert full == empty  # it fails for all users or for none
        return
    assert set(full) == set(bounds)
    for field, n_rows in bounds.items():
        assert sum(int(x) ** 2 for x in full[field].ravel()) <= n_rows * UNIT**2
        assert not empty[field].any()


def test_honest_factors_fill_the_norm():
    """Negative control: the bounded sums are not always 0."""
    for system, phase, bounds in PHASES.values():
        deployment, rounds = rounds_of(system, phase)
        state = replace(rounds.state, item_factors=np.random.default_rng(0).normal(size=(N_ITEMS, N_FACTORS)))
        for field, n_rows in bounds.items():
            square = sum(int(x) ** 2 for x in answer(deployment, rounds, state, SOME)[field].ravel())
            assert square > (0.9 if isinstance(system, DPFMF) else 0.001) * n_rows * UNIT**2


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", [*PHASES, "fmf_ldp"])
def test_states_that_are_not_finite_are_refused(name, value):
    system, phase, _ = PHASES.get(name, (FMFLDP(n_factors=N_FACTORS), 0, {}))
    deployment = deployment_of(system)
    rounds = deployment.rounds_of(phase, 5, np.arange(N_ITEMS))
    state = rounds.system.initial_state(N_ITEMS, KEY) if name == "fmf_ldp" else rounds.state
    factors = state.item_factors.copy()
    factors[3, 1] = value
    assert "NaN or infinite" in deployment.objection(rounds, replace(state, item_factors=factors), SOME, "a")


@pytest.mark.parametrize("mean", [[0] * 7, [GRAM_SCALE] * 7, [0, GRAM_SCALE] * 3 + [5]])
def test_centred_rows_stay_within_the_norm_for_any_mean(mean):
    deployment, rounds = rounds_of(DPGram(1.0), 1)
    state = replace(rounds.state, mean=np.array(mean))
    for shard in (SOME, NONE):
        pairs = answer(deployment, rounds, state, shard)["item_pairs"]
        assert sum(int(x) ** 2 for x in pairs) <= GRAM_UNIT**2


@pytest.mark.parametrize("bad", [-1, GRAM_SCALE + 1, np.iinfo(np.int64).min, np.iinfo(np.int64).max])
def test_a_mean_that_is_none_is_refused(bad):
    deployment, rounds = rounds_of(DPGram(1.0), 1)
    state = replace(rounds.state, mean=np.array([0, 1, bad, 3, 4, 5, 6]))
    assert answer(deployment, rounds, state, SOME) == "refused"


SENT = {
    "all alike": ([subspace.SCALE // 4] * 7, [[subspace.FINEST] * N_FACTORS] * 7),
    "both signs": ([0] * 7, [[subspace.FINEST, -subspace.FINEST, 0]] * 7),
    "one item": (
        [0, 0, subspace.SCALE, 0, 0, 0, 0],
        [[0] * N_FACTORS] * 2 + [[subspace.FINEST] * N_FACTORS] + [[0] * N_FACTORS] * 4,
    ),
    "nothing": ([0] * 7, [[0] * N_FACTORS] * 7),
}
PROJECTED = [DPSubspace(1.0, n_columns=N_FACTORS), DPGram(1.0)]


def projections_of(system, mean, encoder):
    """Return a third round with these in its state; the encoder's columns are repeated to the round's number."""
    deployment, rounds = rounds_of(system, 2)
    n_columns = rounds.state.encoder.shape[1]
    encoder = np.tile(np.array(encoder, np.int16), (1, n_columns))[:, :n_columns].copy()
    return deployment, rounds, replace(rounds.state, mean=np.array(mean, np.int32), encoder=encoder)


@pytest.mark.parametrize("system", PROJECTED, ids=lambda system: type(system).__name__)
@pytest.mark.parametrize("sent", SENT)
def test_projected_rows_stay_within_the_norm_for_any_encoder(sent, system):
    deployment, rounds, state = projections_of(system, *SENT[sent])
    for shard in (SOME, NONE):
        sums = answer(deployment, rounds, state, shard)["item_projections"]
        square = sum(int(x) ** 2 for x in sums.ravel())
        assert square <= subspace.UNIT**2
        assert (square > 0.7 * subspace.UNIT**2) == (shard is SOME and sent != "nothing")


@pytest.mark.parametrize("system", PROJECTED, ids=lambda system: type(system).__name__)
@pytest.mark.parametrize(
    ("field", "bad", "reason"),
    [
        ("mean", [0, 1, -1, 3, 4, 5, 6], "mean must be from 0"),
        ("mean", [subspace.SCALE] * 7, "mean must be from 0"),
        ("encoder", [[subspace.FINEST + 1] * N_FACTORS] * 7, "encoder must be from"),
        ("encoder", [[-(2**15)] * N_FACTORS] * 7, "encoder must be from"),
    ],
)
def test_an_encoder_or_mean_that_no_norm_is_bounded_for_is_refused(field, bad, reason, system):
    sent = {"mean": SENT["nothing"][0], "encoder": SENT["nothing"][1]} | {field: bad}
    deployment, rounds, state = projections_of(system, **sent)
    assert reason in (deployment.objection(rounds, state, SOME, "a") or "no objection")


CLIPS = {"gaussian": 0.1, "laplace": 0.01}


@pytest.mark.parametrize("noise", CLIPS)
def test_a_clients_update_stays_within_its_clip_for_any_parameters(noise):
    system = PrivRec(
        n_rounds=1, cohort_size=1, n_factors=16, hidden=(16,), local_epochs=2, clip_norm=CLIPS[noise],
        noise_multiplier=1.0, noise=noise,
    )  # fmt: skip
    deployment, rounds = rounds_of(system, 0)
    radius, order = rounds.system.noise.radius, rounds.system.noise.clip_order
    sent = hostile(rounds.state.parameters.shape, np.float32)
    filled = 0
    for name, parameters in sent.items():
        state = replace(rounds.state, parameters=parameters, cohort=SOME.global_user_ids)
        full, empty = (answer(deployment, rounds, state, shard) for shard in (SOME, NONE))
        assert type(full) is type(empty) is dict, name
        total = np.abs(full["total"].astype(object))
        norm = int((total**2).sum()) if order == 2 else int(total.sum())
        assert norm <= radius**order, name
        filled += norm > 0.5 * radius**order
    assert filled  # some of them are long enough to be clipped


REPORTS = {
    "clipped": {},
    "normalised": {"normalize": "l2"},
    "turned": {"normalize": "l2", "rotate": True},
    "weighted": {"use_values": True, "confidence_weight": 3.0},
}


def differing(options, factors, epsilon=0.02):
    """Return how many of 20,000 answers of two users differ with the same words, or None if neither can answer."""
    system = FMFLDP(n_factors=N_FACTORS, epsilon=epsilon, n_reports=20_000, **options)
    deployment = deployment_of(system)
    rounds = system._rounds()
    state = replace(rounds.initial_state(N_ITEMS, KEY), item_factors=factors)
    assert deployment.objection(deployment.rounds_of(0, 5, SOME.item_ids), state, SOME, "a") is None
    outputs = []
    for shard in (SOME, NONE):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                outputs.append(rounds._randomize(state, shard, KEY, 0, 1, as_stream=True)[1:])
            except (ValueError, ArithmeticError, np.linalg.LinAlgError) as error:
                outputs.append((type(error).__name__, str(error)))
    if type(outputs[0][0]) is str:
        assert outputs[0] == outputs[1]  # whether a user answers does not depend on data
        return None
    np.testing.assert_array_equal(outputs[0][0], outputs[1][0])
    return np.count_nonzero(outputs[0][1] != outputs[1][1])


@pytest.mark.parametrize("name", REPORTS)
@pytest.mark.parametrize("sent", hostile((N_ITEMS, N_FACTORS), np.float32))
def test_reports_of_two_users_differ_within_epsilon_for_any_factors(name, sent):
    # Answers differ if a word is between two thresholds: a share of at most tanh(epsilon / 2) = 0.01, or 200 answers;
    # 340 is ten standard deviations above.
    assert (differing(REPORTS[name], hostile((N_ITEMS, N_FACTORS), np.float32)[sent]) or 0) < 340


@pytest.mark.parametrize("name", REPORTS)
def test_more_epsilon_is_noticed(name):
    factors = np.random.default_rng(0).normal(size=(N_ITEMS, N_FACTORS)).astype(np.float32)
    assert 0 < differing(REPORTS[name], factors) < 340 < differing(REPORTS[name], factors, epsilon=2.0)
