"""The best offer of an advice and its reason, for offers made by hand."""

import math
from dataclasses import replace

import pytest

from fastfedrec.systems.private_recommender.advice import Advice, Offer


def offer(system, expected, gain=0.0, margin=0.0, *, is_popularity=False, epsilon_alone=math.inf):
    measured_at = () if system == "Random" else ("somewhere",)
    return Offer(
        system, {"epsilon": 0.5}, 0.99, epsilon_alone, expected, gain, margin, measured_at, 1_000, is_popularity,
        10, 20, 1.5,
    )  # fmt: skip


def answer(*offers, popularities, trust="central", remarks=()):
    return Advice(1_000, 300, 1.0, 1e-6, trust, offers, popularities, remarks, "made up")


COUNTS = offer("DPPopularity", 0.40, is_popularity=True)


# ---- oracle: by hand -------------------------------------------------------------------------------------------------


def test_a_clear_gain_is_taken_and_the_largest_first():
    advice = answer(offer("A", 0.6, 0.1, 0.02), offer("B", 0.7, 0.05, 0.01), popularities=(COUNTS,))
    assert advice.best.system == "A"
    assert (
        advice.reason
        == "HR@10 0.600 on generated data where it is no easier, +0.100 over private popularity (chance: 0.020)"
    )
    assert not advice.popularity_is_as_good
    assert "Popularity is as good" not in advice.summary()


@pytest.mark.parametrize(("expected", "best"), [(0.43, "A"), (0.41, "DPPopularity"), (0.3, "DPPopularity")])
def test_without_a_clear_gain_the_best_with_the_same_users_is_chosen(expected, best):
    """Popularity with more users may be as good, but the data have no more users."""
    advice = answer(offer("A", expected, -0.05, 0.02), popularities=(COUNTS,))
    assert advice.popularity_is_as_good
    assert advice.best.system == best
    if best == "A":
        assert "where private popularity has 0.400 with as few users" in advice.reason
        assert "Not clearly better than popularity with more users" in advice.summary()
    else:
        assert advice.reason.startswith("nothing that was measured gains more over popularity than chance explains")
        assert "Popularity is as good" in advice.summary()


def test_items_at_random_are_named_as_such():
    advice = answer(popularities=(offer("Random", 0.1), offer("DPPopularity", 0.04, is_popularity=True)))
    assert advice.best.system == "Random"
    assert advice.reason == "nothing that was measured is better than items at random"
    assert "no better than items at random, which have .100" in advice.summary()


def test_the_rule_chooses_what_it_names_and_its_remark_is_the_reason():
    bare = Offer("DPGram", {}, 0.9, math.inf, None, None, None, (), None, False, None, None, None)
    better = offer("DPFMF", 0.6, 0.1, 0.02)
    advice = Advice(
        1_000, 300, 1.0, 1e-6, "central", (bare, better), (offer("Random", 0.1),), ("by some rule", "n_users 3"),
        "made up", bare,
    )  # fmt: skip
    assert advice.best is bare
    assert advice.reason == "by some rule"
    assert not advice.popularity_is_as_good
    assert replace(advice, ruled=advice.popularities[0]).popularity_is_as_good
    assert replace(advice, ruled=None).best is better  # figures would choose another system
    assert advice.to_dict()["best"]["expected"] is None
    assert "bytes of a client are not counted" in advice.summary()
