"""Membership attacks detect memorised data, are at chance without it, and equal naive counts."""

import json
import math
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from support.significance import mean_is

from fastfedrec import EASE, FMFLDP, DPPopularity, Interactions, Key, Popularity, PrivRec, attacks, datasets
from fastfedrec.core import progress
from fastfedrec.studies.membership._figures import RocCurve, TradeOff, ceiling_scores, chance_advantage
from fastfedrec.studies.membership.attack import _profile_columns, membership_loss, membership_shadow
from fastfedrec.systems.ncf.model import NCF
from fastfedrec.testing import ALPHA

N_SEEDS = 30
SMALL = {"n_bootstrap": 100, "n_threads": 1}


def population(n_users=240, n_items=40, seed=1):
    data = datasets.generate_implicit(n_users, n_items, key=Key.from_seed(seed))
    ages = np.arange(n_users) % 4
    return data.with_features(user_features={"age": ages, "sex": np.array(["f", "m"])[np.arange(n_users) % 2]})


@pytest.fixture(scope="module")
def data():
    return population()


class Ignorant:
    """A model with fixed scores for each user and item, independent of its data."""

    def fit(self, interactions):
        return self

    def score(self, user_ids, item_ids):
        return np.sin(1e4 * np.sin(np.asarray(user_ids) * 78.233 + np.asarray(item_ids) * 12.9898))


OTHER_POPULATION = population(seed=99)


class Elsewhere(EASE):
    """A model fitted on a different population, which answers for any profile."""

    def fit(self, interactions, **options):
        return super().fit(OTHER_POPULATION, **options)


class Parrot:
    """A model that memorises the items of some members: 1 for these pairs, else 0."""

    def __init__(self, share=1.0):
        self.share = share

    def get_params(self):
        return {"share": self.share}

    def fit(self, interactions, key):
        learnt = key.permutation("test.parrot", size=interactions.n_users)[: round(self.share * interactions.n_users)]
        rows = np.repeat(np.arange(interactions.n_users), interactions.interactions_per_user())
        is_learnt = np.isin(rows, learnt)
        users, items = interactions.user_ids[rows[is_learnt]], interactions.item_ids[interactions.indices[is_learnt]]
        self.pairs = users * 10_000 + items
        return self

    def score(self, user_ids, item_ids):
        return np.isin(np.asarray(user_ids) * 10_000 + np.asarray(item_ids), self.pairs).astype(float)


def shadow(model, data, seed, **options):
    options = {"n_shadows": 2, "n_trees": 20} | SMALL | options
    return membership_shadow(model, data, key=Key.from_seed(seed), **options)


def loss(model, data, seed, **options):
    return membership_loss(model, data, key=Key.from_seed(seed), **(SMALL | options))


def is_null(results):
    """Test at ALPHA that AUCs are at chance: their mean, and the number of 95% intervals that miss .5."""
    # The intervals may miss a little more often than 5%; 7% covers it.
    auc = np.array([result.auc.value for result in results])
    m, n = results[0].n_members, results[0].n_non_members
    missed = sum(not result.auc.low <= 0.5 <= result.auc.high for result in results)
    return mean_is(auc, 0.5, math.sqrt((m + n + 1) / (12 * m * n))) and missed <= stats.binom.isf(
        ALPHA, len(results), 0.07
    )


scored = st.lists(st.tuples(st.integers(0, 6), st.booleans()), min_size=2, max_size=30).filter(
    lambda users: len({member for _, member in users}) == 2
)

# ---- oracle ---------------------------------------------------------------------------------------------------------


@given(users=scored)
def test_figures_equal_naive_counts(users):
    scores, is_member = (np.array(column) for column in zip(*users, strict=True))
    members, others = scores[is_member], scores[~is_member]
    wins = np.array([[(m > o) + (m == o) / 2 for o in others] for m in members])
    curve = RocCurve(scores.astype(float), is_member)
    result = curve.auc(0.05)
    assert result.value == pytest.approx(wins.mean())
    if 0 < result.value < 1:
        per_member, per_other = wins.mean(axis=1), wins.mean(axis=0)
        variance = sum(v.var(ddof=1) / len(v) if len(v) > 1 else 0.25 for v in (per_member, per_other))
        half = 1.959964 * math.sqrt(variance) / (result.value * (1 - result.value))
        for limit, side in ((result.low, -1), (result.high, 1)):
            odds = result.value / (1 - result.value) * math.exp(side * half)
            assert limit == pytest.approx(odds / (1 + odds), abs=1e-5)
    rates = {t: ((members >= t).mean(), (others >= t).mean()) for t in set(scores.tolist())}
    advantage, at_10, at_half = curve.resampled((0.1, 0.5), 100, 0.05, Key.from_seed(1))
    assert advantage.value == pytest.approx(max(0, *(true - false for true, false in rates.values())))
    for rate, estimate in ((0.1, at_10), (0.5, at_half)):
        assert estimate.value == max([0.0, *(true for true, false in rates.values() if false <= rate)])
        assert 0 <= estimate.low <= estimate.high <= 1
    calls = [
        np.isin(np.arange(len(scores)), order[: is_member.sum()])
        for order in (np.lexsort((is_member, -scores)), np.lexsort((~is_member, -scores)))
    ]
    worst, best = ((call == is_member).mean() for call in calls)
    assert worst - 1e-12 <= curve.accuracy() <= best + 1e-12


def test_replicates_equal_drawing_users_one_by_one():
    rng = np.random.default_rng(1)
    scores, is_member = rng.integers(0, 40, 50).astype(float), np.arange(50) < 20
    key, rates = Key.from_seed(3), (0.1,)
    result = RocCurve(scores, is_member).resampled(rates, 100, 0.1, key)
    drawn = []
    words = [
        key.words("membership.bootstrap", round=side, size=100 * n) >> np.uint64(32) for side, n in enumerate((20, 30))
    ]
    for replicate in range(100):
        sides = []
        for positives, n, of in zip((scores[:20], scores[20:]), (20, 30), words, strict=True):
            mine = [int(word) * n >> 32 for word in of[replicate * n : (replicate + 1) * n]]
            sides.append(positives[mine])
        curve = [((sides[0] >= t).mean(), (sides[1] >= t).mean()) for t in np.unique(scores)]
        drawn.append((max(true - false for true, false in curve), max([0, *(t for t, f in curve if f <= 0.1)])))
    limits = np.quantile(np.maximum(drawn, 0), [0.05, 0.95], axis=0)
    for estimate, (low, high) in zip(result, limits.T, strict=True):
        assert (estimate.low, estimate.high) == pytest.approx((low, high))


def test_intervals_where_every_pair_is_ordered_alike():
    scores, is_member = np.arange(30.0), np.arange(30) >= 20
    result = RocCurve(scores, is_member).auc(0.05)
    assert result.value == result.high == 1
    assert result.low == pytest.approx(0.025 ** (1 / 10))  # Clopper and Pearson for 10 of 10
    assert RocCurve(scores, ~is_member).auc(0.05).high == pytest.approx(1 - 0.025 ** (1 / 10))
    assert RocCurve(np.zeros(30), is_member).auc(0.05).low == 0.5


@given(guarantee=st.lists(st.tuples(st.floats(0, 8), st.floats(0, 0.2)), max_size=4))
def test_the_bound_of_a_guarantee_equals_a_fine_grid(guarantee):
    allowed = TradeOff(guarantee)
    rate = np.linspace(0, 1, 20_001)
    true_positive_rate = np.ones_like(rate)
    for epsilon, delta in guarantee:
        true_positive_rate = np.minimum(true_positive_rate, math.exp(epsilon) * rate + delta)
        true_positive_rate = np.minimum(true_positive_rate, 1 - math.exp(-epsilon) * (1 - delta - rate))
    assert allowed.auc() == pytest.approx(np.trapezoid(true_positive_rate, rate), abs=1e-3)
    assert allowed.advantage() == pytest.approx(
        (true_positive_rate - rate).max(), abs=2e-3 + 1e-4 * math.exp(8) * bool(guarantee)
    )
    assert allowed.true_positive_rate(rate[7]) == pytest.approx(true_positive_rate[7])


def test_pure_guarantees_allow_what_binary_response_reaches():
    # Binary response is the worst channel: its inputs are distinguished with probability e^eps / (1 + e^eps).
    for epsilon in (0.1, 1.0, 3.0):
        assert TradeOff([(epsilon, 0.0)]).advantage() == pytest.approx(math.tanh(epsilon / 2))
        assert TradeOff([(epsilon, 0.0)]).auc() == pytest.approx((1 + math.tanh(epsilon / 2)) / 2)
    assert TradeOff([]).auc() == TradeOff([(math.inf, 0.0)]).auc() == 1
    assert TradeOff([(0.0, 0.0)]).auc() == 0.5
    assert TradeOff([(1000.0, 0.0), (1.0, 0.01)]).auc() < TradeOff([(1.0, 0.01)]).auc() + 1e-12


def test_ceiling_is_the_share_of_members_among_equal_inputs():
    rows = np.array([[0.0, 1], [-0.0, 1], [0, 2], [0, 2], [0, 2]])
    np.testing.assert_allclose(ceiling_scores(rows, np.array([1, 0, 1, 1, 0], dtype=bool)), [0.5, 0.5, *[2 / 3] * 3])


@pytest.mark.parametrize("kind", ["rank", "cross_entropy", "squared"])
def test_losses_equal_naive_ones(kind):
    users = np.concatenate([[0, 0, 1, 1, 1], np.arange(2, 12)])
    items = np.concatenate([[0, 2, 1, 2, 3], np.arange(10) % 4])
    ratings = 1.0 + np.arange(15) % 5
    data = Interactions.from_arrays(users, items, ratings)
    result = loss(Ignorant(), data, 1, loss=kind, n_references=0, threshold=1.0)
    liked = {user: items[(users == user) & (ratings > 1)] for user in range(12)}
    expected = {}
    for user in result.user_ids.tolist():
        scores = Ignorant().score(np.full(4, user), np.arange(4))
        positives, negatives = liked[user], [i for i in range(4) if i not in liked[user]]
        if kind == "rank":
            ranks = [((scores > scores[i]).sum() + (scores == scores[i]).sum() / 2) / 4 for i in positives]
            expected[user] = np.mean(ranks)
        elif kind == "cross_entropy":
            expected[user] = np.log1p(np.exp(-scores[positives])).mean() + np.log1p(np.exp(scores[negatives])).mean()
        else:
            stars = dict(zip(items[users == user], ratings[users == user], strict=True))
            expected[user] = np.mean([(scores[i] - stars[i]) ** 2 for i in positives])
    assert sorted(expected) == [user for user in range(12) if len(liked[user])]
    assert len(expected) < 12
    np.testing.assert_allclose(result.scores, [-expected[user] for user in result.user_ids.tolist()])


# ---- invariants -----------------------------------------------------------------------------------------------------


def test_attacks_offer_both(data):
    assert attacks.membership_shadow is membership_shadow
    assert attacks.membership_loss is membership_loss


def test_a_memorising_model_is_found(data):
    for seed in range(3):
        for attack in (shadow, loss):
            result = attack(Parrot(), data, seed)
            assert result.auc.value > 0.95
            assert result.beats_chance
            assert result.accuracy > 0.9
            assert result.advantage.value > result.chance_advantage
            assert " exceeds chance in an experiment." in result.statement()


def test_members_are_half_of_users_whom_no_shadow_model_saw(data):
    seen = []

    class Spy(Ignorant):
        def fit(self, interactions):
            seen.append(interactions.user_ids)
            return self

    result = shadow(Spy, data, 1, n_shadows=3, n_shadow_users=100, shadow_members=0.8)
    assert [len(users) for users in seen] == [80, 80, 80, 70]
    np.testing.assert_array_equal(np.sort(result.user_ids[result.is_member]), np.sort(seen[-1]))
    assert (result.n_members, result.n_non_members) == (70, 70)
    assert not np.isin(result.user_ids, np.concatenate(seen[:3])).any()
    assert len(np.unique(np.concatenate(seen[:3]))) > 90  # each shadow model draws its own members
    seen.clear()
    result = loss(Spy, data, 1, n_references=2)
    assert [len(users) for users in seen] == [60, 60, 60]
    assert not np.isin(result.user_ids, np.concatenate(seen[:2])).any()
    np.testing.assert_array_equal(np.sort(result.user_ids[result.is_member]), np.sort(seen[-1]))


def test_without_history_users_with_equal_answers_are_indistinguishable(data):
    result = shadow(Popularity(), data, 1, history=False, n_top=5)
    cells = data.select_users(data.user_index(result.user_ids)).user_features["age"]  # the age determines the sex
    assert len(np.unique(result.scores)) <= 4
    shares = np.array([result.is_member[cells == cell].mean() for cell in cells])
    assert result.ceiling == pytest.approx(RocCurve(shares, result.is_member).auc(0.05).value)
    assert result.ceiling_accuracy == pytest.approx(np.maximum(shares, 1 - shares).mean())
    assert result.auc.value <= result.ceiling < 0.75
    assert result.accuracy <= result.ceiling_accuracy < 0.75
    assert shadow(Popularity(), data, 1, features=[], history=False, n_top=5).ceiling == 0.5
    assert shadow(Popularity(), data, 1).ceiling > 0.95


def test_a_feature_of_many_values_is_one_column(data):
    codes = np.arange(data.n_users)[::-1]
    wide_data = data.with_features(user_features={"zip": codes})
    result = _profile_columns(wide_data, wide_data, ["zip"], np.zeros(40), False, 0.0)
    np.testing.assert_array_equal(result[:, 1], codes)
    few = _profile_columns(data, data, ["age", "sex"], np.zeros(40), False, 0.0)
    assert few.shape == (240, 1 + 4 + 2)
    np.testing.assert_array_equal(few[:, 1:].sum(axis=1), 2)


def test_a_ledger_bounds_the_attack_and_an_exact_model_has_none(data):
    private = DPPopularity(0.05)
    for attack in (shadow, loss):
        result = attack(private, data, 1)
        assert result.guarantee[0] == (pytest.approx(0.1), 0.0)  # replacing a user costs twice
        assert result.bounds["auc"] == pytest.approx(0.5 + math.tanh(0.05) / 2)
        assert result.bounds["hits at 0.01"] == pytest.approx(0.01 * math.exp(0.1))
        assert attack(Popularity(), data, 1).guarantee == ()
        assert attack(Ignorant, data, 1).bounds["auc"] == 1
        assert attack(Ignorant, data, 1, guarantee=[(0.0, 0.0)]).bounds["auc"] == 0.5
        assert attack(private, data, 1, against="key_holder").guarantee == ()


def test_systems_answer_for_users_they_never_saw(data):
    network = {"n_factors": 16, "hidden": (16,), "n_rounds": 2, "cohort_size": 10, "local_epochs": 1}
    models = [FMFLDP(n_rounds=2), PrivRec({"user": ["age"]}, **network)]
    for model in models:
        result = loss(model, data, 1)
        assert result.target == type(model).__name__
        assert np.isfinite(result.scores).all()
    by_features = shadow(models[1], data, 1, query=lambda model, users, key: model.with_users(users), history=False)
    assert len(np.unique(by_features.scores)) <= 4


def test_results_are_shown_in_every_form(data):
    result = shadow(DPPopularity(1.0), data, 1)
    document = json.loads(result.to_json())
    assert document == result.to_dict()
    assert [delta for _, delta in document["guarantee"]][:2] == [0.0, 1e-2]
    table = result.to_dataframe()
    assert list(table.index) == ["auc", "accuracy", "advantage", "hits at 0.01", "hits at 0.001"]
    assert table.loc["auc", "low"] == result.auc.low
    assert table.loc["auc", "bound"] == result.bounds["auc"]
    assert table.loc["hits at 0.01", "chance"] == 0.01
    text = str(result)
    assert f"control, without the target: AUC {result.control}" in text
    assert "60 members, 60 others" in text
    assert ("does not exceed chance" in result.statement()) == (not result.beats_chance)
    assert chance_advantage(60, 60, 0.05) == pytest.approx(1.3581 * math.sqrt(2 / 60), abs=1e-4)  # Kolmogorov's table


def test_progress_counts_models(data, capsys, monkeypatch):
    monkeypatch.setattr(progress, "is_watched", lambda: True)
    shadow(Popularity(), data, 1, show_progress=True)
    assert "shadow models: 100%" in (shown := capsys.readouterr().err)
    assert "3/3" in shown


# ---- bad inputs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("attack", [shadow, loss])
@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"data": 1}, TypeError, "data must be Interactions"),
        ({"data": population(3)}, ValueError, "data must have at least 8 users with an item, got 3"),
        ({"model": 1}, TypeError, "model must have a method fit, or be a function"),
        ({"model": dict}, TypeError, r"model\(\) must return something with a method fit, got dict"),
        ({"query": 1}, TypeError, "query must be a function or None"),
        ({"guarantee": [1, 2]}, ValueError, r"guarantee must hold pairs \(epsilon, delta\), got 1"),
        ({"against": "everybody"}, ValueError, "against must be"),
        (
            {"model": NCF(n_epochs=1, n_factors=3)},
            TypeError,
            "NCF answers only for the users it was fitted on; pass query=",
        ),
    ],
)
def test_bad_inputs(data, attack, changed, error, message):
    with pytest.raises(error, match=message):
        attack(**({"model": Popularity(), "data": data, "seed": 1} | changed))


@pytest.mark.parametrize(
    ("attack", "options", "error", "message"),
    [
        (shadow, {"features": ["height"]}, KeyError, r"names \['height'\]; the users of data have \['age', 'sex'\]"),
        (shadow, {"features": "age"}, TypeError, "features must be a list of names"),
        (shadow, {"n_top": 41}, ValueError, "n_top must be"),
        (loss, {"loss": "hinge"}, ValueError, "loss must be"),
        (loss, {"loss": lambda scores, users: scores}, ValueError, "loss must return one finite number per user"),
        (loss, {"threshold": 2.0}, ValueError, "data must have at least 8 users with an item, got 0"),
        (
            loss, {"n_references": 0, "n_reference_users": 20}, ValueError,
            "n_reference_users must be None where n_references is 0",
        ),
    ],
)  # fmt: skip
def test_bad_options(data, attack, options, error, message):
    with pytest.raises(error, match=message):
        attack(Popularity(), data, 1, **options)


def test_without_scikit_learn_the_message_names_the_package(data, monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.ensemble", None)
    with pytest.raises(ImportError, match=r"membership_shadow needs scikit-learn: pip install 'fastfedrec\[attacks\]'"):
        shadow(Popularity(), data, 1)
    assert loss(Popularity(), data, 1).n_members == 60


# ---- threads --------------------------------------------------------------------------------------------------------


def test_a_seed_repeats_an_attack_on_any_number_of_threads(data):
    for attack in (shadow, loss):
        one, four = (attack(EASE(1.0), data, 5, n_threads=n) for n in (1, 4))
        np.testing.assert_array_equal(one.scores, four.scores)
        assert one.to_dict() == four.to_dict()
        other = attack(EASE(1.0), data, 6)
        assert (one.user_ids != other.user_ids).any()


# ---- statistics -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("shift", [0.0, 1.0, 2.5])
def test_intervals_of_the_auc_miss_as_often_as_stated(shift):
    rng, truth, is_member = np.random.default_rng(1), stats.norm.cdf(shift / math.sqrt(2)), np.arange(120) < 60
    curves = [RocCurve(rng.normal(size=120) + shift * is_member, is_member) for _ in range(4000)]

    def missed(alpha):
        estimates = [curve.auc(alpha) for curve in curves]
        return sum(not estimate.low <= truth <= estimate.high for estimate in estimates)

    low_count, high_count = (stats.binom.isf(p, 4000, share) for p, share in ((1 - ALPHA, 0.045), (ALPHA, 0.055)))
    assert low_count <= missed(0.05) <= high_count
    assert missed(0.01) < low_count  # intervals at .01 look too wide for 5%
    assert missed(0.1) > high_count  # intervals at .1 look too narrow for 5%


@pytest.mark.parametrize("model", [Ignorant(), Elsewhere(10.0)], ids=["ignores its data", "fitted on neither"])
@pytest.mark.parametrize("attack", [shadow, loss])
def test_attacks_are_at_chance_without_learning(data, attack, model):
    assert is_null([attack(model, data, seed, n_bootstrap=100) for seed in range(N_SEEDS)])


@pytest.mark.parametrize("attack", [shadow, loss])
def test_the_null_test_detects_a_model_that_memorises_one_user_in_four(data, attack):
    assert not is_null([attack(Parrot(0.25), data, seed) for seed in range(N_SEEDS)])


@pytest.mark.parametrize("attack", [shadow, loss])
def test_controls_are_at_chance_where_the_attack_is_not(data, attack):
    results = [attack(EASE(1.0), data, seed) for seed in range(N_SEEDS)]
    assert np.mean([result.auc.value for result in results]) > 0.65
    stddev = math.sqrt((60 + 60 + 1) / (12 * 60 * 60))
    assert mean_is([result.control.value for result in results], 0.5, stddev)
