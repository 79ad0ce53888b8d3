"""Models with secure aggregation: their costs, dropouts, notes, and the engines that cannot carry it."""

import json
import math

import numpy as np
import pytest
from naive.accounting import shares as naive
from support.data import rated
from support.noise_case import RecordingEngine

from fastfedrec import DPALS, DPGram, DPSubspace, Key, PrivateRecommender, datasets, load
from fastfedrec.accounting import BudgetError, GaussianShares, Ledger
from fastfedrec.accounting.notes import note_kind
from fastfedrec.engines.deployment.fit_as_server import FitDeployment
from fastfedrec.evaluation import LeaveOneOut, evaluate
from fastfedrec.rounds.engine import Engine
from fastfedrec.rounds.local import LocalEngine

SECURE = {"aggregation": "secure", "honest_fraction": 0.7}
MODELS = {"DPGram": DPGram, "DPSubspace": DPSubspace}
N_USERS = 200
DATA = rated(N_USERS, 40, 1)


class LossyEngine(RecordingEngine):
    """Engine of 40 shards, of which some do not answer: others in each round."""

    def __init__(self, n_lost):
        super().__init__(40)
        self.n_lost, self.n_rounds = n_lost, 0

    def _answers(self, receiver, handles, key, n_threads):
        self.n_rounds += 1
        lost = {f"shard-{(7 * self.n_rounds + step) % 40}" for step in range(self.n_lost)}
        yield from super()._answers(
            receiver, {name: shard for name, shard in handles.items() if name not in lost}, key, n_threads
        )


def fitted(kind, engine=None, ledger=None, **parameters):
    model = kind(2.0, **SECURE | parameters)
    return model.fit(DATA, key=Key.from_seed(2), engine=engine, ledger=ledger)


# ---- oracle ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", MODELS.values(), ids=MODELS)
def test_both_figures_equal_an_independent_computation(kind):
    """Check the ledger against counts of shares and the closed form of the cost, in many digits."""
    model = fitted(kind)
    for view, fraction in (("server", 0.7), ("public", 1.0)):
        n_counted = naive.n_counted(N_USERS, 190, fraction)
        squared_mu = sum(
            times * (event.replace_sensitivity or 2) ** 2 / (n_counted * event.noise_multiplier**2)
            for event, times in model.ledger_.events.items()
        )
        assert model.ledger_.epsilon(view) == pytest.approx(float(naive.epsilon(squared_mu, 1e-6)), rel=1e-6)
        # A control: one share less is seen.
        other = naive.epsilon(squared_mu * n_counted / (n_counted - 1), 1e-6)
        assert model.ledger_.epsilon(view) != pytest.approx(float(other), rel=1e-4)
    # The parameter is for all data of one user against none.
    squared_mu = sum(
        times / (naive.n_counted(N_USERS, 190, 0.7) * event.noise_multiplier**2)
        for event, times in model.ledger_.events.items()
    )
    assert float(naive.epsilon(squared_mu, 1e-6)) == pytest.approx(2.0, rel=1e-6)


# ---- invariants -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", MODELS.values(), ids=MODELS)
def test_the_server_learns_as_much_as_the_public_from_a_trusted_server(kind):
    central = kind(2.0).fit(DATA, key=Key.from_seed(2)).ledger_
    secure = fitted(kind).ledger_
    assert secure.epsilon("server") == secure.epsilon("shuffled_server") == secure.epsilon("aggregator")
    if sum(secure.events.values()) == sum(central.events.values()):  # releases may choose another plan
        assert secure.epsilon("server") == pytest.approx(central.epsilon("public"), rel=1e-9)
    assert secure.epsilon("public") < secure.epsilon("server") < math.inf
    assert secure.epsilon("key_holder") == central.epsilon("server") == math.inf
    assert {type(event) for event in secure.events} == {GaussianShares}


@pytest.mark.parametrize("kind", MODELS.values(), ids=MODELS)
def test_noise_grows_with_the_number_of_answers_and_sums_lose_the_absent(kind):
    """Check the stream of noise of the first round with all nodes and with dropouts."""
    noises = []
    for n_lost in (0, 2):
        engine = LossyEngine(n_lost)
        fitted(kind, engine)
        first = engine.rounds[0]
        assert first.update.n_clients == N_USERS - 5 * n_lost
        # The noisy sums are scaled to the number of all users.
        noisy = first.after.noisy * (first.update.n_clients / N_USERS)
        noises.append(noisy - first.update.arrays["item_shares"])
    # The same random words give draws in proportion to the standard deviation, up to the rounding of layers.
    ratio = np.abs(noises[1]).sum() / np.abs(noises[0]).sum()
    assert ratio == pytest.approx(math.sqrt(190 / 200), rel=0.3)


def test_planned_dropouts_keep_the_recorded_cost():
    ledgers = [fitted(DPGram, LossyEngine(n_lost)).ledger_ for n_lost in (0, 1, 2)]
    assert all(event.n_answers == 190 for ledger in ledgers for event in ledger.events)
    assert len({ledger.epsilon("server") for ledger in ledgers}) == 1


def test_the_ledger_has_the_assumptions_and_their_kinds():
    notes = {str(note): note_kind(note) for note in fitted(DPGram).ledger_.notes}
    assumptions = [text for text, kind in notes.items() if kind == "assumption"]
    assert any("at most 60 of its 200 nodes are dishonest" in text for text in assumptions)
    assert any("190 nodes or more answer each round" in text and "130 shares" in text for text in assumptions)
    assert any("data of a node must not decide whether it answers" in text for text in assumptions)
    assert any("simulated in one process" in text and kind == "not covered" for text, kind in notes.items())
    central = DPGram(2.0).fit(DATA, key=Key.from_seed(2)).ledger_
    assert not any("node" in note for note in central.notes)


def test_the_page_for_approval_explains_the_nodes_in_two_sentences(tmp_path):
    fitted(DPGram).ledger_.report(tmp_path / "page.md")
    text = (tmp_path / "page.md").read_text()
    sentence = "An honest share of the nodes is trusted: each node adds a share of the noise, and sends masked numbers."
    assert sentence in text
    assert "The server learns only their noisy sum, and is not trusted." in text
    assert "At least 70% of the nodes add their share of the noise and do not reveal it to the server." in text
    assert "more nodes than the assumptions allow to be dishonest" in text


def test_a_saved_model_keeps_its_aggregation(tmp_path):
    model = fitted(DPGram)
    model.save(tmp_path / "model.npz")
    loaded = load(tmp_path / "model.npz")
    assert loaded.get_params() == model.get_params()
    assert loaded.ledger_.to_dict() == model.ledger_.to_dict()


def test_the_recommender_calibrates_to_the_server():
    model = PrivateRecommender(1.0, trust="aggregator", honest_fraction=0.7).fit(DATA, key=Key.from_seed(2))
    inner = model.model_.get_params()
    assert (inner["aggregation"], inner["honest_fraction"], inner["dropout_fraction"]) == ("secure", 0.7, 0.05)
    assert 0.98 < model.ledger_.epsilon("server") <= 1.0
    assert model.ledger_.epsilon("public") < model.ledger_.epsilon("server")
    assert "trust='aggregator'" in repr(model)


# ---- bad inputs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", MODELS.values(), ids=MODELS)
def test_too_few_answers_end_a_fit_and_the_ledger_has_the_true_cost(kind):
    ledger = Ledger()
    with pytest.raises(RuntimeError, match=r"185 of 200 nodes answered the round of item shares, .* needs 190"):
        fitted(kind, LossyEngine(3), ledger)
    ((event, times),) = ledger.events.items()
    assert (event.n_answers, times) == (185, 1)
    n_counted = naive.n_counted(N_USERS, 185, 0.7)
    exact = naive.epsilon(2 / (n_counted * event.noise_multiplier**2), 1e-6)
    assert event.replace_sensitivity >= math.sqrt(2)
    assert ledger.epsilon("server") >= float(exact)
    # A plan for more dropouts has more noise in each share, and a result.
    assert fitted(kind, LossyEngine(3), dropout_fraction=0.1).ledger_.epsilon("server") < math.inf


@pytest.mark.parametrize(
    ("kind", "parameters", "message"),
    [
        (DPGram, {"aggregation": "secure"}, "honest_fraction must be a number with aggregation='secure', got None"),
        (
            DPSubspace,
            {"honest_fraction": 0.7},
            "honest_fraction must be None with aggregation='central', got 0",
        ),
        (DPGram, {"aggregation": "masked"}, "aggregation must be one of"),
        (DPGram, SECURE | {"honest_fraction": 0.0}, "honest_fraction must be greater than 0"),
        (DPGram, SECURE | {"dropout_fraction": 1.0}, "dropout_fraction must be less than 1"),
        (PrivateRecommender, {"trust": "aggregator"}, "honest_fraction must be a number with trust='aggregator'"),
        (PrivateRecommender, {"honest_fraction": 0.7}, "honest_fraction must be None with trust='central'"),
    ],
)
def test_bad_parameters(kind, parameters, message):
    with pytest.raises(ValueError, match=message):
        kind(1.0, **parameters)


@pytest.mark.parametrize("kind", MODELS.values(), ids=MODELS)
def test_fits_that_cannot_be_secure_are_refused_before_they_cost(kind):
    class OtherEngine(Engine):
        def _answers(self, receiver, handles, key, n_threads):
            raise AssertionError("no message is made")

    ledger = Ledger()
    for parameters, engine, message in (
        ({}, OtherEngine(), "engine must be None with aggregation='secure', got OtherEngine, which sends exact sums"),
        (
            {"n_users": 300},
            None,
            r"n_users must be None or the number of rows \(200\) .* got 300",
        ),
        ({"honest_fraction": 0.04}, None, "honest_fraction must leave honest nodes after all dropouts, got 0.04"),
        ({"epsilon": 1e6}, None, "`epsilon` must be smaller|epsilon must be smaller"),
        # Few honest nodes need so large shares that the sums of all exceed 64 bits.
        ({"epsilon": 1e-3, "honest_fraction": 0.06}, None, "epsilon or delta must be larger"),
    ):
        model = kind(**{"epsilon": 2.0} | SECURE | parameters)
        with pytest.raises(ValueError, match=message):
            model.fit(DATA, key=Key.from_seed(2), engine=engine, ledger=ledger)
    assert not ledger.events
    assert kind(1e-3).fit(DATA, key=Key.from_seed(2)).ledger_.events
    with pytest.raises(ValueError, match="data stay on nodes, so roster must have the names of all nodes"):
        FitDeployment(kind(**SECURE))
    assert FitDeployment(kind()).terms


def test_a_budget_against_the_server_is_kept():
    ledger = Ledger(budget=1.0, budget_view="server")
    with pytest.raises(BudgetError):
        fitted(DPGram, ledger=ledger)
    assert not ledger.events
    assert fitted(DPGram, ledger=Ledger(budget=6.0, budget_view="server")).ledger_.events


def test_other_models_of_noisy_sums_take_no_aggregation():
    assert "aggregation" not in DPALS().get_params()
    with pytest.raises(TypeError, match="aggregation"):
        DPALS(aggregation="secure")


# ---- threads --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", MODELS.values(), ids=MODELS)
def test_threads_and_shards_change_no_bit(kind):
    one, four = (
        kind(2.0, **SECURE).fit(DATA, key=Key.from_seed(2), n_threads=n, engine=LocalEngine(n)) for n in (1, 4)
    )
    np.testing.assert_array_equal(one.item_means_, four.item_means_)
    np.testing.assert_array_equal(one.item_factors_, four.item_factors_)
    assert json.dumps(one.ledger_.to_dict()) == json.dumps(four.ledger_.to_dict())


# ---- statistics -----------------------------------------------------------------------------------------------------


@pytest.mark.nightly
def test_without_a_trusted_server_little_accuracy_is_lost():
    """Check 50,000 nodes of which 70% are honest and 5% drop out, at R 1 against the server, over three seeds."""
    secure = {"trust": "aggregator", "honest_fraction": 0.7}

    def hit_ratio(model, split, seed, engine=None):
        model.fit(split.train, key=Key.from_seed(100 + seed), engine=engine)
        return evaluate(model, *split, metrics=["hr@10"], key=Key.from_seed(seed))["hr@10"]

    losses = []
    for seed in range(1, 4):
        key = Key.from_seed(seed)
        data = datasets.generate_implicit(50_000, 1_000, key=key, mean_interactions=30)
        split = next(LeaveOneOut().split(data, key=key))
        engine, model = LossyEngine(2), PrivateRecommender(1.0, **secure)
        value = hit_ratio(model, split, seed, engine)
        assert {recorded.update.n_clients for recorded in engine.rounds} == {47_500}
        # Both figures, from the numbers of nodes and the noise that the server drew.
        for view, n_counted in (("server", 32_500), ("public", 47_500)):
            squared_mu = sum(
                times * (event.replace_sensitivity or 2) ** 2 / (n_counted * event.noise_multiplier**2)
                for event, times in model.ledger_.events.items()
            )
            assert model.ledger_.epsilon(view) == pytest.approx(float(naive.epsilon(squared_mu, 1e-6)), rel=1e-6)
        assert 0.98 < model.ledger_.epsilon("server") <= 1.0
        # Against the public, the noise of all nodes that answered counts: as much as a trusted server would add.
        public = model.ledger_.epsilon("public")
        others = [hit_ratio(PrivateRecommender(epsilon), split, seed) for epsilon in (1.0, public)]
        losses.append([other - value for other in others])
    of_server, of_public = np.mean(losses, axis=0)
    assert of_server <= 0.05
    assert of_public <= 0.02
    # A control: the larger noise against the server costs some accuracy, so losses of this size are seen.
    assert of_server > of_public
