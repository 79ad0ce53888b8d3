"""The best offer of an advice and its reason, for offers made by hand."""

import math
from dataclasses import replace

import pytest

from fastfedrec.cli.main import main
from fastfedrec.systems.private_recommender.advice import Advice, Offer


def offer(system, expected, gain=0.0, margin=0.0, *, is_popularity=False, epsilon_alone=math.inf):
    measured_at = None if system == "Random" else "somewhere"
    popularity = None if is_popularity or system == "Random" else expected - gain
    return Offer(
        system, {"epsilon": 0.5}, 0.99, epsilon_alone, expected, popularity, gain, margin, measured_at, 1_000,
        is_popularity, 10, 20, 1.5,
    )  # fmt: skip


def answer(*offers, popularities, trust="central", remarks=()):
    return Advice(1_000, 300, 1.0, 1e-6, trust, offers, popularities, remarks, "made up")


COUNTS = offer("DPPopularity", 0.40, is_popularity=True)


# ---- oracle: by hand -------------------------------------------------------------------------------------------------


def test_a_clear_gain_is_taken():
    advice = answer(offer("A", 0.6, 0.1, 0.02), offer("B", 0.7, 0.05, 0.01), popularities=(COUNTS,))
    assert advice.best.system == "A"
    assert advice.reason == (
        "In sweeps of generated data, A reached HR@10 0.600 where private popularity reached 0.500 (difference +0.100 "
        "+- 0.020)."
    )
    assert not advice.popularity_is_as_good


def test_without_a_clear_gain_popularity_is_chosen():
    advice = answer(offer("A", 0.43, -0.05, 0.02), popularities=(COUNTS,))
    assert advice.popularity_is_as_good
    assert advice.best.system == "DPPopularity"
    assert advice.reason.startswith("In the sweeps no private system is clearly better than popularity.")
    assert "All users get the same list." in advice.summary()


def test_the_rule_chooses_what_it_names_and_its_remark_is_the_reason():
    bare = Offer("DPGram", {}, 0.9, math.inf, None, None, None, None, None, None, False, None, None, None)
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
    assert "A client receives" not in advice.summary()
    assert "of memory" not in advice.summary()
    told = replace(advice, ruled=replace(bare, memory=1_200_000))
    assert "  A fit in one process needs 1.2 MB of memory beside the data.\n" in told.summary()
    assert told.to_dict()["best"]["memory"] == 1_200_000
    assert "A client receives 10 bytes and sends 20 bytes." in replace(advice, ruled=None).summary()


@pytest.mark.parametrize(("delta", "is_stated"), [("0.1", True), ("1e-6", False)])
def test_a_delta_without_a_meaning_is_stated(delta, is_stated, capsys):
    argv = ["advise", "--users", "20000", "--items", "500", "--epsilon", "2", "--trust", "central", "--delta", delta]
    assert main(argv) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert ("Delta 0.1 is not below one over the number of users (20,000)." in text) == is_stated
