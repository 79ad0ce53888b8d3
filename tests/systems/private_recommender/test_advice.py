"""What an answer takes for the best, and why: from offers made by hand."""

import math
from dataclasses import replace

import pytest

from fastfedrec.systems.private_recommender.advice import Advice, Offer


def offer(system, expected, gain=0.0, margin=0.0, *, is_popularity=False, alone=math.inf):
    where = () if system == "Random" else ("somewhere",)
    return Offer(
        system, {"epsilon": 0.5}, 0.99, alone, expected, gain, margin, where, 1_000, is_popularity, 10, 20, 1.5
    )  # fmt: skip


def answer(*offers, popularities, trust="central", remarks=()):
    return Advice(1_000, 300, 1.0, 1e-6, trust, offers, popularities, remarks, "made up")


COUNTS = offer("DPPopularity", 0.40, is_popularity=True)


# ---- oracle: by hand -------------------------------------------------------------------------------------------------


def test_a_clear_gain_is_taken_and_the_largest_first():
    found = answer(offer("A", 0.6, 0.1, 0.02), offer("B", 0.7, 0.05, 0.01), popularities=(COUNTS,))
    assert found.best.system == "A"
    assert (
        found.reason
        == "HR@10 0.600 on generated data where it is no easier, +0.100 over private popularity (chance: 0.020)"
    )
    assert not found.popularity_is_as_good
    assert "Popularity is as good" not in found.summary()


@pytest.mark.parametrize(("expected", "best"), [(0.43, "A"), (0.41, "DPPopularity"), (0.3, "DPPopularity")])
def test_without_a_clear_gain_what_has_clearly_most_with_as_few_users(expected, best):
    """Popularity with more users may be as good; but that is not what there is."""
    found = answer(offer("A", expected, -0.05, 0.02), popularities=(COUNTS,))
    assert found.popularity_is_as_good
    assert found.best.system == best
    if best == "A":
        assert "where private popularity has 0.400 with as few users" in found.reason
        assert "Not clearly better than popularity with more users" in found.summary()
    else:
        assert found.reason.startswith("nothing that was measured gains more over popularity than chance explains")
        assert "Popularity is as good" in found.summary()


def test_items_at_random_are_said_to_be_that():
    found = answer(popularities=(offer("Random", 0.1), offer("DPPopularity", 0.04, is_popularity=True)))
    assert found.best.system == "Random"
    assert found.reason == "nothing that was measured is better than items at random"
    assert "no better than items at random, which have .100" in found.summary()


def test_the_rule_chooses_what_it_names_and_its_remark_is_the_reason():
    bare = Offer("DPGram", {}, 0.9, math.inf, None, None, None, (), None, False, None, None, None)
    better = offer("DPFMF", 0.6, 0.1, 0.02)
    found = Advice(
        1_000, 300, 1.0, 1e-6, "central", (bare, better), (offer("Random", 0.1),), ("by some rule", "n_users 3"),
        "made up", bare,
    )  # fmt: skip
    assert found.best is bare
    assert found.reason == "by some rule"
    assert not found.popularity_is_as_good
    assert replace(found, ruled=found.popularities[0]).popularity_is_as_good
    assert replace(found, ruled=None).best is better  # figures would have chosen another
    assert found.to_dict()["best"]["expected"] is None
    assert "bytes of a client are not counted" in found.summary()
