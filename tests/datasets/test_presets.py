"""Generated presets have the published statistics of the data that they imitate, and the scores of four baselines."""

from dataclasses import replace

import numpy as np
import pytest

from fastfedrec import DPFMF, EASE, ImplicitALS, ItemKNN, Key, Popularity, UserKNN
from fastfedrec.datasets import generate_implicit
from fastfedrec.datasets._presets import PRESETS, Preset, RankedPopularity
from fastfedrec.datasets._topics import _groups
from fastfedrec.evaluation import LeaveOneOut, Sampled, evaluate

# HR@10 among 99 sampled items and among all unseen items, within .03; leave one out, 10,000 tested users.
TOLERANCE = 0.03
N_TESTED = 10_000
SCORES = {
    "check-ins": {
        "popularity": (0.312, 0.098),
        "ease": (0.815, 0.404),
        "item-knn": (0.801, 0.354),
        "als": (0.775, 0.335),
    },
    "purchases": {
        "popularity": (0.265, 0.056),
        "ease": (0.667, 0.330),
        "item-knn": (0.660, 0.304),
        "als": (0.623, 0.264),
    },
    "catalogue": {"popularity": (0.522, 0.023), "als": (0.698, 0.108), "user-knn": (0.587, 0.171)},
}
# Among sampled items alone, by models with noise for an epsilon of 1 and of 2 for replacing a user.
PRIVATE_SCORES = {
    "check-ins": {"dp-fmf 1": (0.507, np.nan), "dp-fmf 2": (0.614, np.nan)},
    "purchases": {"dp-fmf 1": (0.386, np.nan), "dp-fmf 2": (0.475, np.nan)},
}
# The models' default settings, except for EASE's ridge.
MODELS = {
    "popularity": Popularity,
    "ease": lambda: EASE(regularization=250.0),
    "item-knn": ItemKNN,
    "als": ImplicitALS,
    "user-knn": UserKNN,
    "dp-fmf 1": lambda: DPFMF(epsilon=0.475),
    "dp-fmf 2": lambda: DPFMF(epsilon=0.943),
}
QUANTILES = (0.10, 0.25, 0.50, 0.75, 0.90, 0.99)
LENGTHS = {
    "check-ins": (5, 6, 9, 14, 25, 71),
    "purchases": (3, 3, 5, 7, 12, 35),
    "catalogue": (5, 5, 7, 11, 20, 88),
}
MEANS = {"check-ins": 13.0, "purchases": 6.6, "catalogue": 12.0}
# Numbers of users of items by rank. For check-ins they interpolate to more than 14,066 rows of 13.
N_USERS_AT_RANK = {
    "check-ins": {1: 2310, 10: 1303, 50: 510, 100: 348, 300: 205},
    "purchases": {1: 1616, 10: 980, 50: 571, 100: 408, 300: 239, 1000: 65},
    "catalogue": {1: 1740, 10: 1025, 100: 448, 1000: 141, 10_000: 20},
}
SHORT = sorted(SCORES)


def hit_rates(data, names):
    """HR@10 among 99 sampled and among all unseen items of the named models, as a dict of pairs."""
    split = next(LeaveOneOut().split(data, key=Key.from_seed(2)))
    tested = np.sort(Key.from_seed(3).permutation("tested", size=split.test.n_users)[:N_TESTED])
    test, rates = split.test.select_users(tested), {}
    for name in names:
        model = MODELS[name]().fit(split.train, key=Key.from_seed(4))
        rates[name] = tuple(
            evaluate(model, split.train, test, metrics=["hr@10"], candidates=candidates, key=Key.from_seed(5))["hr@10"]
            for candidates in (Sampled(99), None)
        )
    return rates


def far_scores(preset, rates):
    """The measured scores that are not within the tolerance of the preset's."""
    expected = SCORES[preset] | PRIVATE_SCORES.get(preset, {})
    errors = {name: np.nanmax(np.abs(np.subtract(pair, expected[name]))) for name, pair in rates.items()}
    return {name: pair for name, pair in rates.items() if errors[name] > TOLERANCE}


@pytest.fixture
def broad(monkeypatch):
    """A function that gives a preset the topics of MovieLens: the same rows' lengths and items' numbers of users."""

    def broad(name):
        preset, default = PRESETS[name], PRESETS["movielens-1m"]
        structure = {
            field: getattr(default, field)
            for field in (
                "n_topics", "n_groups", "nearness", "item_pull", "user_pull", "topic_noise", "speciality",
                "popularity_correlation", "decay", "damping", "activity_tilt", "gamma",
            )
        }  # fmt: skip
        monkeypatch.setitem(PRESETS, name, replace(preset, **structure))

    return broad


# ---- invariants ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", ["check-ins", "purchases"])
def test_a_shard_alone_is_the_slice_of_the_whole(preset):
    options = {"key": Key.from_seed(8), "preset": preset, "timestamps": True}
    whole = generate_implicit(**options, n_threads=2)
    assert whole.shape == (PRESETS[preset].n_users, PRESETS[preset].n_items)
    shard = generate_implicit(**options, users=range(1000, 1100), n_threads=1)
    span = slice(whole.indptr[1000], whole.indptr[1100])
    assert (shard.indices == whole.indices[span]).all()
    assert (shard.timestamps == whole.timestamps[span]).all()


@pytest.mark.parametrize("preset", SHORT)
def test_sizes_and_the_mean_may_differ(preset):
    data = generate_implicit(3000, 400, key=Key.from_seed(1), preset=preset, mean_interactions=9.0, ratings=True)
    assert data.shape == (3000, 400)
    assert data.n_interactions / 3000 == pytest.approx(9.0, rel=0.1)
    assert set(np.unique(data.values)) == {1.0, 2.0, 3.0, 4.0, 5.0}


@pytest.mark.parametrize("preset", SHORT)
def test_the_presets_mean_may_be_given(preset):
    mean = generate_implicit(2000, key=Key.from_seed(1), preset=preset, n_items=300).n_interactions / 2000
    given = generate_implicit(2000, 300, key=Key.from_seed(1), preset=preset, mean_interactions=mean)
    assert given.n_interactions / 2000 == pytest.approx(mean, rel=0.05)


def test_a_ranked_popularity_passes_through_its_ranks():
    z, shares = RankedPopularity(((1, 800), (10, 100), (100, 10))).of_items(100)
    assert shares.sum() == pytest.approx(1.0)
    assert shares[[0, 9, 99]] / shares[9] == pytest.approx([8.0, 1.0, 0.1])
    assert shares[30] / shares[9] == pytest.approx(10 / 31)  # a power of the rank in between
    assert z[0] == pytest.approx(-z[99])
    assert (np.diff(z) < 0).all()


@pytest.mark.parametrize("preset", SHORT)
def test_pilots_can_be_selected(preset):
    """Pilots come from `step` ranges of lengths, each with a separate start."""
    chosen: Preset = PRESETS[preset]
    step = chosen.n_pilot_candidates // chosen.n_pilots
    # The candidates divide evenly among the pilots.
    assert step * chosen.n_pilots == chosen.n_pilot_candidates
    assert chosen.n_pilots % step == 0
    assert sorted(5 * number % step for number in range(step)) == list(range(step))


@pytest.mark.parametrize(("name", "epsilon"), [("dp-fmf 1", 1.0), ("dp-fmf 2", 2.0)])
def test_private_scores_are_for_replacing_a_user(name, epsilon):
    data = generate_implicit(50, 30, key=Key.from_seed(1), preset="check-ins")
    model = MODELS[name]().fit(data, key=Key.from_seed(2))
    assert model.ledger_.epsilon("public") == pytest.approx(epsilon, rel=0.005)


def test_earlier_groups_have_more_topics():
    sizes = np.bincount(_groups(replace(PRESETS["check-ins"], n_topics=1000, n_groups=4)))
    np.testing.assert_allclose(sizes, 480 / np.arange(1, 5), atol=1)


# ---- bad inputs ------------------------------------------------------------------------------------------------------


def test_without_users_or_items_the_preset_states_them():
    assert generate_implicit(key=Key.from_seed(1), n_users=50, preset="check-ins").shape == (50, 1000)
    assert generate_implicit(key=Key.from_seed(1), n_items=50, preset="check-ins").shape == (14_066, 50)
    assert generate_implicit(key=Key.from_seed(1), users=range(3)).shape == (3, 3706)
    with pytest.raises(ValueError, match="n_items must be at least 8 for preset 'check-ins', got 7; every user has"):
        generate_implicit(key=Key.from_seed(1), n_items=7, preset="check-ins")
    with pytest.raises(ValueError, match=r"users must be a non-empty range with step 1 within range\(0, 14066\)"):
        generate_implicit(key=Key.from_seed(1), users=range(14_067), preset="check-ins")


# ---- statistics ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", ["check-ins", "purchases", pytest.param("catalogue", marks=pytest.mark.slow)])
def test_lengths_and_popularity_are_those_of_the_data(preset):
    data = generate_implicit(key=Key.from_seed(1), preset=preset)
    lengths = np.quantile(data.interactions_per_user(), QUANTILES, method="inverted_cdf")
    np.testing.assert_allclose(lengths[:5], LENGTHS[preset][:5], atol=1)
    assert lengths[5] == pytest.approx(LENGTHS[preset][5], rel=0.2)
    assert data.interactions_per_user().mean() == pytest.approx(MEANS[preset], rel=0.05)
    counts = np.sort(data.interactions_per_item())[::-1]
    for rank, n_users in N_USERS_AT_RANK[preset].items():
        assert counts[rank - 1] == pytest.approx(n_users, rel=0.25), rank


def test_check_ins_have_the_scores_of_the_data():
    rates = hit_rates(generate_implicit(key=Key.from_seed(6), preset="check-ins"), SCORES["check-ins"])
    assert far_scores("check-ins", rates) == {}


def test_broad_topics_have_other_scores(broad):
    """Negative control: the lengths and numbers of users alone do not make rows informative."""
    broad("check-ins")
    rates = hit_rates(generate_implicit(key=Key.from_seed(6), preset="check-ins"), ["popularity", "ease", "als"])
    assert set(far_scores("check-ins", rates)) >= {"ease", "als"}
    assert rates["ease"][0] < SCORES["check-ins"]["ease"][0] - 3 * TOLERANCE


@pytest.mark.nightly
@pytest.mark.parametrize("preset", ["check-ins", "purchases"])
def test_keys_have_the_scores_of_the_data_on_average(preset):
    """One key's positions of topics move a score by a standard deviation of up to .014."""
    names = [*SCORES[preset], *PRIVATE_SCORES[preset]]
    by_key = [hit_rates(generate_implicit(key=Key.from_seed(seed), preset=preset), names) for seed in (1, 6)]
    means = {name: tuple(np.mean([rates[name] for rates in by_key], axis=0)) for name in names}
    assert far_scores(preset, means) == {}


@pytest.mark.slow
def test_without_groups_only_private_scores_differ(monkeypatch):
    """Negative control: separate topics that are fitted to the public scores have a flatter spectrum."""
    apart = replace(
        PRESETS["check-ins"],
        n_groups=0, nearness=0.0, item_pull=7.0, user_pull=15.6, topic_noise=1.0, speciality=2.3, decay=0.8,
        damping=14.0, gamma=0.2,
    )  # fmt: skip
    monkeypatch.setitem(PRESETS, "check-ins", apart)
    names = [*SCORES["check-ins"], "dp-fmf 1"]
    rates = hit_rates(generate_implicit(key=Key.from_seed(6), preset="check-ins"), names)
    assert list(far_scores("check-ins", rates)) == ["dp-fmf 1"]


@pytest.mark.slow
def test_broad_topics_have_other_scores_for_purchases(broad):
    broad("purchases")
    rates = hit_rates(generate_implicit(key=Key.from_seed(1), preset="purchases"), ["ease", "als"])
    assert set(far_scores("purchases", rates)) == {"ease", "als"}


@pytest.mark.nightly
def test_a_catalogue_has_the_scores_of_the_data():
    rates = hit_rates(generate_implicit(key=Key.from_seed(1), preset="catalogue"), SCORES["catalogue"])
    assert far_scores("catalogue", rates) == {}


@pytest.mark.nightly
def test_broad_topics_have_other_scores_for_a_catalogue(broad):
    broad("catalogue")
    rates = hit_rates(generate_implicit(key=Key.from_seed(1), preset="catalogue"), ["als"])
    assert far_scores("catalogue", rates) != {}
