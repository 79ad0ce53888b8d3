"""Complete runs of FMF-LDP: the ledger, the saved and loaded state, and refused arguments."""

from dataclasses import replace

import numpy as np
import pytest

from fastfedrec import FMFLDP, Key, PrivRec
from fastfedrec.accounting import Ledger, shuffled_epsilon
from fastfedrec.engines import LocalEngine
from fastfedrec.mechanisms import BinaryResponse
from fastfedrec.systems.fmf.fmf_ldp import FMFState


def state_of(n_items, n_factors, seed, scale=0.5):
    rng = np.random.default_rng(seed)
    return FMFState((scale * rng.normal(size=(n_items, n_factors))).astype(np.float32))


# ---- invariants -----------------------------------------------------------------------------------------------------


def test_ledger_and_communication_of_a_run(data):
    ledger = Ledger()
    model = FMFLDP(epsilon=2.5, n_reports=100, n_rounds=20).fit(data, key=Key.from_seed(1), ledger=ledger)
    exact = BinaryResponse(2.5).epsilon
    assert model.ledger_ is ledger
    assert ledger.epsilon(delta=0) == pytest.approx(2000 * exact)
    assert ledger.epsilon(delta=0) <= 5000
    assert ledger.is_simulation
    assert ledger.delta == 1e-6
    # The shuffled figure assumes that all users are in one shuffle, at the model's delta.
    assert ledger.epsilon("shuffled_server") == shuffled_epsilon(exact, 100, data.n_users, 20, 1e-6)
    assert ledger.epsilon("public") == ledger.epsilon("shuffled_server") < ledger.epsilon()
    assert ledger.epsilon("key_holder") == np.inf
    traffic = model.communication_.to_dict()
    assert traffic["download_per_client_per_round"] == 4 * data.n_items * 5
    # A report has an index of 4 bytes, and one bit.
    assert traffic["upload_per_client_per_round"] == 4 * 100 + 13
    assert traffic["upload_total"] == 20 * 413 * data.n_users
    FMFLDP(epsilon=2.5, n_reports=100, n_rounds=20).fit(data, key=Key.from_seed(2), ledger=ledger)
    assert ledger.epsilon(delta=0) == pytest.approx(4000 * exact)


def test_ledger_without_privacy_or_seed(data):
    assert FMFLDP(epsilon=None, n_rounds=1).fit(data, key=Key.from_seed(1)).ledger_.epsilon() == np.inf
    assert not FMFLDP(n_rounds=1).fit(data).ledger_.is_simulation


def test_ledger_states_figures_at_the_models_delta(data):
    loose, strict = (FMFLDP(n_rounds=2, delta=d).fit(data, key=Key.from_seed(1)).ledger_ for d in (1e-4, 1e-8))
    assert loose.epsilon("shuffled_server") < strict.epsilon("shuffled_server")
    assert loose.epsilon("server", 0) == strict.epsilon("server", 0)


def test_absent_users_are_in_no_shuffle(data):
    class Late(LocalEngine):
        def _answers(self, *arguments):
            for update in super()._answers(*arguments):
                yield replace(update, round=99) if (update.sender, update.round) == ("shard-1", 1) else update

    model = FMFLDP(n_rounds=3, n_reports=10).fit(data, key=Key.from_seed(1), engine=Late(4))
    assert sorted((event.n_users, times) for event, times in model.ledger_.events.items()) == [(150, 1), (200, 2)]
    honest = FMFLDP(n_rounds=3, n_reports=10).fit(data, key=Key.from_seed(1))
    assert model.ledger_.epsilon("shuffled_server") > honest.ledger_.epsilon("shuffled_server")
    assert model.ledger_.epsilon("server", 0) == honest.ledger_.epsilon("server", 0)


def test_published_ledger_states_the_cost_that_the_paper_omits(data):
    model = FMFLDP(n_rounds=4, n_reports=10, variant="published").fit(data, key=Key.from_seed(1))
    assert model.ledger_.epsilon(delta=0) == pytest.approx(4 * 10 * 2.5)
    assert "The paper of the variant 'published' states n_reports * epsilon" in model.ledger_.summary()


@pytest.mark.parametrize("make", [FMFLDP, PrivRec])
def test_a_callback_that_cannot_be_called_is_refused_before_a_round_is_spent(data, make):
    ledger = Ledger(1e-6)
    with pytest.raises(TypeError, match=r"callback must be callable, got 5 \(int\)"):
        make().fit(data, key=Key.from_seed(1), callback=5, ledger=ledger)
    assert not ledger.events


def test_history_and_callback(data):
    seen = []
    model = FMFLDP(n_rounds=3, n_reports=10)
    model.fit(
        data,
        key=Key.from_seed(1),
        callback=lambda m, r: seen.append((r, m.score(data.user_ids[:1], data.item_ids[:1])[0])),
        diagnostics=True,
    )
    assert [r for r, _ in seen] == [0, 1, 2]
    assert seen[-1][1] == model.score(data.user_ids[:1], data.item_ids[:1])[0]
    assert [entry["round"] for entry in model.history_] == [0, 1, 2]
    assert all(0 <= entry["clipped_share"] <= 1 for entry in model.history_)
    assert "The diagnostics in history_ are computed from raw data." in model.ledger_.summary()
    model.fit(data, key=Key.from_seed(1))
    assert not hasattr(model, "history_")


# ---- bad inputs -----------------------------------------------------------------------------------------------------


def test_parameters_changed_after_construction_are_checked(data):
    model = FMFLDP()
    with pytest.raises(ValueError, match="epsilon must be greater than 0"):
        model.epsilon = -1
    model.epsilon, model.variant = None, "published"
    with pytest.raises(ValueError, match="must have an epsilon"):
        model.fit(data)


def test_exact_gradients_of_no_users_are_refused(data):
    with pytest.raises(ValueError, match="interactions must not be empty"):
        FMFLDP(epsilon=None).fit(data.keep_interactions(np.zeros(data.n_interactions, dtype=bool)))


def test_entropy_key_makes_each_message_once(data):
    rounds, state, key = FMFLDP(n_reports=5)._rounds(), state_of(data.n_items, 5, 0), Key.from_entropy()
    one, two = data.shard(2)
    rounds.local_round(state, one, key, 0, sender="shard-0")
    rounds.local_round(state, two, key, 0, sender="shard-1")
    rounds.local_round(state, one, key, 1, sender="shard-0")
    for repeat in (rounds.local_round, rounds.report_stream):
        with pytest.raises(ValueError, match="already made the message of 'shard-1' in round 0"):
            repeat(state, two, key, 0, sender="shard-1")
    seeded = Key.from_seed(1)
    # A simulation may be repeated.
    for _ in range(2):
        rounds.local_round(state, one, seeded, 0)
