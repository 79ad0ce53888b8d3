"""PrivateRecommender: the choice by public numbers, its cost, and the recommendations of the chosen system."""

import copy
import itertools
import json
import math
import pickle
import re

import numpy as np
import pytest
import scipy.sparse
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.hostile_files import pack, unpack

from fastfedrec import (
    DPGram,
    DPPopularity,
    Interactions,
    Key,
    PrivateRecommender,
    ShuffledGram,
    datasets,
    load,
)
from fastfedrec.accounting import VIEWS as VIEW_WORDS
from fastfedrec.accounting import Ledger
from fastfedrec.cli.main import main
from fastfedrec.engines import LocalEngine
from fastfedrec.evaluation import LeaveOneOut, evaluate
from fastfedrec.systems.private_recommender.choice import advise
from fastfedrec.systems.private_recommender.recipes import plan_run

KEY = Key.from_seed(3)
#: Views of the guarantee by trust model, written here independently of the package's table.
VIEWS = {"local": "server", "shuffle": "shuffled_server", "central": "public", "aggregator": "server"}
HONEST = {"aggregator": {"honest_fraction": 0.7}}
#: Public numbers within the sweeps, beyond them, and far outside.
GRID = list(itertools.product((1, 1_500, 3_000_000), (1, 300, 10_001), (0.3, 7.0)))
SHUFFLED = [(1, 12, 7.0), (20_000, 300, 1.0)]  # each account takes a second


@pytest.fixture(scope="module")
def data():
    return datasets.generate_implicit(900, 80, key=Key.from_seed(1), n_threads=1)


@pytest.fixture(scope="module")
def model(data):
    return PrivateRecommender(30.0).fit(data, key=KEY)


def of_rows(rows, n_items):
    users, items = np.nonzero(rows)
    axes = {"user_ids": range(len(rows)), "item_ids": range(n_items)}
    return Interactions.from_arrays(users, items, **axes)


# ---- oracle: the same as `advise` ------------------------------------------------------------------------------------


class Sizes:
    """The sizes of data, which the choice may use."""

    def __init__(self, n_users, n_items):
        self.n_users, self.n_items = n_users, n_items


def chosen(model, n_users, n_items):
    """Return the model that `fit` makes from sizes before it uses data."""
    return model._make(model._advice(model._public_users(Sizes(n_users, n_items)), n_items))


@pytest.mark.parametrize("trust", VIEWS)
def test_it_takes_the_advised_system_and_costs_at_most_epsilon(trust):
    """The accountants compute the cost again from the events that the fit of that system will record."""
    view, n_checked = VIEWS[trust], 0
    for n_users, n_items, epsilon in SHUFFLED if trust == "shuffle" else GRID:
        if trust == "aggregator" and n_users == 1:  # refused, since one node of 70% honest ones may be dishonest
            continue
        model = chosen(PrivateRecommender(epsilon, trust=trust, **HONEST.get(trust, {})), n_users, n_items)
        best = advise(n_users, n_items, epsilon, trust, **HONEST.get(trust, {})).best
        assert type(model).__name__ == best.system
        assert {name: getattr(model, name) for name in best.parameters} == best.parameters
        if best.system == "Random":
            continue
        cost = plan_run(model, n_users, n_items, 1e-6).ledger.epsilon(view, 1e-6)
        assert cost <= epsilon
        n_checked += 1
    assert n_checked >= 2


@pytest.mark.parametrize(
    ("trust", "epsilon"), [("central", 8.0), ("central", 0.3), ("shuffle", 3.0), ("local", 1.0), ("aggregator", 2.0)]
)
def test_the_ledger_of_a_fit_keeps_the_epsilon_in_the_view_that_trust_names(trust, epsilon, data):
    model = PrivateRecommender(epsilon, trust=trust, **HONEST.get(trust, {})).fit(data, key=KEY)
    assert 0.9 * epsilon < model.ledger_.epsilon(VIEWS[trust]) <= epsilon
    assert model.ledger_.delta == 1e-6
    best = model.advice_.best
    assert best.epsilon * (1 - 1e-9) <= model.ledger_.epsilon(VIEWS[trust]) <= best.epsilon
    # The noise of other nodes does not protect a user who trusts the own device alone.
    assert best.epsilon_alone == (math.inf if trust == "aggregator" else model.ledger_.epsilon("server"))
    guarantee, choice = (note for note in model.ledger_.notes if note.startswith("PrivateRecommender "))
    assert (guarantee.kind, choice.kind) == ("guarantee", "choice")
    for words in (f"epsilon {epsilon:g}", "(replace)", f"against {VIEW_WORDS[VIEWS[trust]]}"):
        assert words in guarantee
    for words in (model.chosen_.removeprefix("popularity, by "), "900 users", "80 items"):
        assert words in choice


def test_its_model_equals_a_separate_fit_of_the_system(model, data):
    separate = DPGram(model.model_.epsilon, model.delta).fit(data, key=KEY)
    assert type(model.model_) is DPGram
    assert model.model_.item_factors_.any()
    np.testing.assert_array_equal(model.model_.item_factors_, separate.item_factors_)
    assert model.communication_.to_dict() == separate.communication_.to_dict()
    assert model.ledger_.events == separate.ledger_.events
    for one, other in (
        (model.recommend(data.user_ids, 5), separate.recommend(data.user_ids, 5)),
        (model.recommend_for([1, 2], 5), separate.recommend_for([1, 2], 5)),
        (model.similar_items([3], 5), separate.similar_items([3], 5)),
        (model.explain(data.user_ids[0], 3), separate.explain(data.user_ids[0], 3)),
    ):
        np.testing.assert_array_equal(one[0], other[0])
        np.testing.assert_array_equal(one[1], other[1])
    np.testing.assert_array_equal(model.score([0, 1], [2, 3]), separate.score([0, 1], [2, 3]))
    np.testing.assert_array_equal(model.score_items([5]), separate.score_items([5]))


# ---- invariants: it never looks at data ------------------------------------------------------------------------------


class Curious(PrivateRecommender):
    """A faulty model that counts the users with items, which is not a public number."""

    def _public_users(self, data):
        return max(int((data.interactions_per_user() > 0).sum()), 1)


def outcome(kind, data, epsilon):
    """Return the choice, its reason and the account, or the error message."""
    try:
        model = kind(epsilon).fit(data, key=KEY, n_threads=1)
    except ValueError as error:
        return str(error)
    # Rounds may differ, since the chosen system may decide by its release, at a cost that the plans cover.
    notes = [note for note in model.ledger_.notes if note.startswith("PrivateRecommender")]
    assert model.ledger_.epsilon("public") <= model.advice_.best.epsilon
    # A release may decide for popularity, which `chosen_` and the end of `reason_` state.
    reason = model.reason_.partition(" Here they")[0]
    return model.chosen_.removeprefix("popularity, by "), reason, notes, model.advice_.best


def same_choice(kind, first, second, epsilon):
    return outcome(kind, first, epsilon) == outcome(kind, second, epsilon)


@given(st.integers(1, 30), st.integers(1, 12), st.integers(0, 2**32 - 1), st.sampled_from([0.3, 2.0, 50.0]))
@settings(deadline=None, max_examples=25, suppress_health_check=list(HealthCheck))
def test_data_of_the_same_size_have_the_same_choice_and_ledger(n_users, n_items, seed, epsilon):
    draws = np.random.default_rng(seed).random((2, n_users, n_items))
    first, second = (of_rows(part < share, n_items) for part, share in zip(draws, (0.1, 0.9), strict=True))
    assert same_choice(PrivateRecommender, first, second, epsilon)


def test_a_choice_that_looks_at_data_is_seen():
    empty, full = (of_rows(np.full((800, 12), has), 12) for has in (False, True))
    assert same_choice(PrivateRecommender, empty, full, 3.0)
    assert not same_choice(Curious, empty, full, 3.0)


def test_a_public_number_of_users_decides_in_place_of_the_rows(data):
    here = PrivateRecommender(2.0, n_users=500_000).fit(data, key=KEY)
    assert here.n_users_ == here.model_.n_users == 500_000
    assert "taken from the data" not in here.ledger_.summary()
    assert not any("900" in note for note in here.ledger_.notes)
    rows = PrivateRecommender(2.0).fit(data, key=KEY)
    assert rows.n_users_ == 900
    assert "The number of users (900) was taken from the data" in rows.ledger_.summary()
    # DPGram can sum this number of users, and DPSubspace cannot.
    assert {type(chosen(PrivateRecommender(2.0, n_users=n), 900, 80)).__name__ for n in (2**25, 2**25 + 1)} == {
        "DPGram", "DPPopularity",
    }  # fmt: skip


def test_public_features_of_items_go_to_the_system_that_takes_them(data, tmp_path):
    table = {"kind": [str(item % 4) for item in range(80)]}
    model = PrivateRecommender(30.0, item_features=table).fit(data, key=KEY)
    assert model.model_.item_features is model.item_features
    separate = DPGram(model.model_.epsilon, item_features=table).fit(data, key=KEY)
    np.testing.assert_array_equal(model.model_.item_factors_, separate.item_factors_)
    assert "DPGram assumes that its item features are public and were made without users' data. They are kind" in (
        model.ledger_.summary()
    )
    assert model.chosen_ == f"DPGram(epsilon={advise(900, 80, 30.0, 'central').best.parameters['epsilon']})"
    model.save(tmp_path / "m")
    loaded = load(tmp_path / "m")
    assert loaded.item_features.digest == model.item_features.digest
    np.testing.assert_array_equal(loaded.recommend(n=3)[0], model.recommend(n=3)[0])
    other = PrivateRecommender(1.0, trust="local", item_features=table).fit(data, key=KEY)
    assert "PrivateRecommender ignores the item features, because DPPopularity takes none." in other.ledger_.notes
    ledger = Ledger()
    with pytest.raises(ValueError, match="item_features"):
        PrivateRecommender(30.0, item_features=np.eye(79)).fit(data, key=KEY, ledger=ledger)
    assert ledger.notes == []


def test_a_tiny_epsilon_gives_items_at_random_without_a_cost(data, tmp_path):
    with pytest.warns(UserWarning, match="epsilon=1e-300, .* trust='local' permit no system .* random order"):
        model = PrivateRecommender(1e-300, trust="local").fit(data, key=KEY)
    assert model.chosen_ == "Random()"
    assert not model.ledger_.events
    model.save(tmp_path / "m")
    np.testing.assert_array_equal(load(tmp_path / "m").recommend(n=3)[0], model.recommend(n=3)[0])


def test_rows_hide_one_another_behind_a_shuffler_so_no_other_number_is_taken(data):
    for trust in ("shuffle", "local", "aggregator"):
        with pytest.raises(ValueError, match=rf"None or the number of rows \(900\) with trust='{trust}', got 901"):
            PrivateRecommender(n_users=901, trust=trust, **HONEST.get(trust, {})).fit(data, key=KEY)
    assert PrivateRecommender(n_users=900, trust="local").fit(data, key=KEY).n_users_ == 900


def test_sizes_decide_between_systems():
    names = {type(chosen(PrivateRecommender(2.0), n, m)).__name__ for n, m in ((30_000, 500), (100_000, 20_000))}
    assert names == {"DPGram", "DPSubspace"}


# ---- popularity or a personal model ----------------------------------------------------------------------------------


def test_the_decision_is_that_of_the_system(model, tmp_path):
    assert model.decision_ is model.model_.decision_
    assert model.is_personal_ is model.model_.is_personal_ is True
    assert model.decision_.is_personal
    assert model.decision_.gain > 0 < model.decision_.error
    model.save(tmp_path / "m")
    loaded = load(tmp_path / "m")
    assert loaded.is_personal_ is True
    assert loaded.decision_ == model.decision_


def test_independent_items_give_popularity():
    """Users chose items independently, so no pair carries information."""
    rows = np.random.default_rng(1).random((2_000, 60)) < np.linspace(0.02, 0.3, 60)
    model = PrivateRecommender(1.0).fit(of_rows(rows, 60), key=KEY)
    assert type(model.model_) is DPGram
    assert model.is_personal_ is False
    assert not model.decision_.is_personal


@pytest.mark.parametrize(("trust", "epsilon"), [("local", 1.0), ("local", 1e-300)])
@pytest.mark.filterwarnings("ignore:epsilon=1e-300:UserWarning")
def test_popularity_and_random_lists_are_not_personal(data, trust, epsilon):
    model = PrivateRecommender(epsilon, trust=trust).fit(data, key=KEY)
    assert model.is_personal_ is False
    assert model.decision_ is None


def test_arguments_that_permit_no_system_are_named_with_the_reason(data):
    model, ledger = PrivateRecommender(trust="aggregator", honest_fraction=0.7, delta=1e-30), Ledger()
    reason = "random order: DPGram: `delta` must be"
    with pytest.warns(UserWarning, match=f"permit no system for 900 users and 80 items, .*{reason}"):
        model.fit(data, key=KEY, ledger=ledger)
    assert model.is_personal_ is False
    assert not ledger.events


def test_row_length_is_deprecated_and_ignored(data, model):
    with pytest.warns(
        FutureWarning, match="row_length is ignored and will be removed in the next release, got 3; omit it"
    ) as seen:
        warned = PrivateRecommender(30.0, row_length=3).fit(data, key=KEY)
    assert [warning.filename for warning in seen] == [__file__]
    np.testing.assert_array_equal(warned.model_.item_factors_, model.model_.item_factors_)


# ---- as any other model ----------------------------------------------------------------------------------------------


def test_engines_run_systems_with_rounds_and_others_are_refused_before_a_cost(data):
    whole, parts = (PrivateRecommender(30.0).fit(data, key=KEY, engine=engine) for engine in (None, LocalEngine(3)))
    np.testing.assert_array_equal(whole.model_.item_factors_, parts.model_.item_factors_)
    ledger, key = Ledger(), Key.from_entropy()
    with pytest.raises(ValueError, match=r"engine must be None: .* this is a run of DPPopularity, which has no rounds"):
        PrivateRecommender(trust="local").fit(data, key=key, ledger=ledger, engine=LocalEngine())
    assert ledger.to_dict() == Ledger().to_dict()
    key.claim("it is not used up")


def test_a_ledger_adds_runs_up(model, data):
    ledger = Ledger(1e-6)
    for trust in ("central", "local"):
        PrivateRecommender(1.0, trust=trust).fit(data, key=KEY, ledger=ledger)
    assert 1.0 < ledger.epsilon("public") <= 2.0
    assert sum(note.startswith("PrivateRecommender guarantees") for note in ledger.notes) == 2


def test_files_copies_and_pickles_answer_alike(model, data, tmp_path):
    model.save(tmp_path / "m")
    for copied in (load(tmp_path / "m"), copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert repr(copied) == repr(model)
        assert (copied.chosen_, copied.reason_, copied.n_users_) == (model.chosen_, model.reason_, model.n_users_)
        assert copied.advice_ == model.advice_
        np.testing.assert_array_equal(copied.recommend(n=4)[0], model.recommend(n=4)[0])
    model.save(tmp_path / "server", include_users=False)
    served = load(tmp_path / "server").with_users(data)
    assert type(served) is PrivateRecommender
    np.testing.assert_array_equal(served.recommend(n=4)[0], model.recommend(n=4)[0])
    assert served.interactions_.n_users == 900


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("chosen", {"class": "EASE", "parameters": {}}, "class must be one of"),
        ("chosen", {"class": "DPGram"}, "must have a class and parameters"),
        ("chosen", 7, "must be a mapping"),
        ("n_users", 0, "n_users"),
        ("reason", 3, "must be a string"),
        ("trust", "x", "it has no such field|no such field"),
    ],
)
def test_every_field_of_a_file_is_checked(model, tmp_path, field, value, message):
    model.save(tmp_path / "m")
    document, arrays = unpack((tmp_path / "m").read_bytes())
    document["header"][field] = value
    (tmp_path / "m").write_bytes(pack(document, arrays))
    with pytest.raises(ValueError, match=message):
        load(tmp_path / "m")


def test_it_states_the_chosen_system(model):
    assert repr(model) == f"<{PrivateRecommender(30.0)!r}: {model.chosen_}>"
    page = model._repr_html_()
    assert model.chosen_ in page
    assert "A fixed rule on public sizes chose DPGram." in page
    assert "why" not in PrivateRecommender()._repr_html_()


def test_parameters_set_later_apply_to_the_next_fit(model, data):
    fitted = PrivateRecommender(30.0).fit(data, key=KEY)
    before = fitted.recommend(n=3)[0]
    fitted.set_params(epsilon=1.0, trust="local")
    np.testing.assert_array_equal(fitted.recommend(n=3)[0], before)
    assert fitted.advice_ == model.advice_
    assert fitted.fit(data, key=KEY).chosen_ == "popularity, by DPPopularity(trust='local')"


@pytest.mark.parametrize(("epsilon", "trust"), [(30.0, "central"), (0.02, "central"), (1.0, "local")])
def test_the_choice_and_its_reason_state_whether_all_users_get_the_same_list(epsilon, trust, data, tmp_path):
    fitted = PrivateRecommender(epsilon, trust=trust).fit(data, key=KEY)
    lists = fitted.recommend(n=3, filter_seen=False)[0]
    is_one_list = bool((lists == lists[0]).all())
    assert fitted.is_personal_ is not is_one_list
    assert is_one_list is (epsilon < 30.0)
    assert fitted.chosen_.startswith("popularity, by ") is is_one_list
    assert "get the same" in fitted.reason_
    if trust == "central":
        outcome = "too little" if is_one_list else "enough for personal lists"
        assert fitted.reason_.endswith(f" Here they showed {outcome}.")
    assert all(re.match(r"[A-Z].*\w$", sentence) for sentence in fitted.reason_.removesuffix(".").split(". "))
    fitted.save(tmp_path / "m")
    assert load(tmp_path / "m").chosen_ == fitted.chosen_


def test_it_is_evaluated_like_any_other(data):
    train, test = next(LeaveOneOut().split(data, key=KEY))
    advised = advise(900, 80, 30.0, "central").best.parameters["epsilon"]
    result = evaluate(PrivateRecommender(30.0).fit(train, key=KEY), train, test, metrics=("hr@10",), key=KEY)
    expected = evaluate(DPGram(advised).fit(train, key=KEY), train, test, metrics=("hr@10",), key=KEY)
    assert dict(result) == dict(expected)


def test_the_commands(capsys, tmp_path):
    out = tmp_path / "m.npz"
    argv = ["fit", "private-recommender", "--data", "generated:400x60", "--set", "epsilon=2", "--seed", "1"]
    assert main([*argv, "--json", "--out", str(out)]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["system"] == "PrivateRecommender"
    assert document["privacy"]["epsilon"]["public"] <= 2.0
    assert main(["ledger", str(out)]) == 0
    assert "PrivateRecommender guarantees epsilon 2" in capsys.readouterr().out.replace("\n", " ")


# ---- bad inputs ------------------------------------------------------------------------------------------------------


def test_advice_before_a_fit_is_refused():
    with pytest.raises(RuntimeError, match="not fitted yet"):
        _ = PrivateRecommender().advice_


# ---- cost of a fit before it ----------------------------------------------------------------------------------------


DEARER = {
    "central": lambda: DPGram(8.0),
    "shuffle": lambda: ShuffledGram(8.0),
    "local": lambda: DPPopularity(8.0, trust="local"),
}


@pytest.mark.parametrize("trust", DEARER)
def test_a_system_that_costs_more_than_epsilon_is_refused_before_a_cost(trust, data, monkeypatch):
    """The check comes before the fit and does not depend on the rule that chose the system."""
    monkeypatch.setattr(PrivateRecommender, "_make", lambda self, advice: DEARER[trust]())
    model, ledger, key = PrivateRecommender(1.0, trust=trust), Ledger(), Key.from_entropy()
    with pytest.raises(ValueError, match=r"epsilon must be larger than 1, for .* costs"):
        model.fit(data, key=key, ledger=ledger)
    assert not ledger.events
    key.claim("it is not used up")
    cost = plan_run(DEARER[trust](), 900, 80, 1e-6).epsilon(VIEWS[trust], 1e-6)  # at this epsilon it is not refused
    fitted = PrivateRecommender(math.nextafter(cost, math.inf), trust=trust).fit(data, key=KEY)
    assert fitted.ledger_.epsilon(VIEWS[trust]) <= fitted.epsilon
    assert type(fitted.model_) is type(DEARER[trust]())


@pytest.mark.parametrize("trust", DEARER)
def test_a_system_that_has_cost_more_than_was_planned_is_not_returned(trust, data, monkeypatch):
    """The plan is cheaper than the recorded events; the ledgers still contain the spent cost."""
    monkeypatch.setattr(PrivateRecommender, "_make", lambda self, advice: DEARER[trust]())
    monkeypatch.setattr(PrivateRecommender, "_check_cost", lambda self, model, data, account: Ledger(self.delta))
    model, ledger = PrivateRecommender(1.0, trust=trust), Ledger()
    with pytest.raises(ValueError, match=r"epsilon must be larger than 1, for .* costs") as raised:
        model.fit(data, key=KEY, ledger=ledger)
    whole = DEARER[trust]().fit(data, key=KEY).ledger_
    assert ledger.events == raised.value.ledger.events == whole.events
    assert "model_" not in vars(model)
    monkeypatch.undo()
    assert model.fit(data, key=KEY).ledger_.events[next(iter(whole.events))]


def test_other_plans_of_equal_cost_are_returned():
    """A release adds a second mean, so the events differ from the plan and cost no more."""
    empty = Interactions.from_scipy(scipy.sparse.csr_array((3000, 60)))
    fitted = PrivateRecommender(8.0).fit(empty, key=Key.from_seed(2))
    inner = fitted._make(fitted.advice_)
    planned = plan_run(inner, 3000, 60, fitted.delta, empty.item_ids).ledger
    assert planned.events != fitted.ledger_.events
    assert fitted.ledger_.epsilon("public") <= 8.0
