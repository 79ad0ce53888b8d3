"""A larger epsilon never gets a worse advice."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastfedrec.accounting.views import TRUST_VIEWS
from fastfedrec.systems.private_recommender import choice as choice_module
from fastfedrec.systems.private_recommender.choice import advise
from fastfedrec.systems.private_recommender.recipes import POPULARITY, RECIPES, calibrated


def row(n_users, n_items, target, system, hr):
    return {
        "n_users": n_users, "n_items": n_items, "row_length": 30.0, "system": system, "trust": "central",
        "target": target, "epsilon": target, "parameters": {}, "metrics": {"hr@10": [hr]}, "n_tested": 10_000,
        "bytes_per_client": None, "seconds": 1.0, "is_popularity": system == POPULARITY,
    }  # fmt: skip


def first_setback(answers):
    """Return the position of the first answer that is worse than an earlier one, or None.

    An answer has its quality: 0 for items at random, 1 for popularity, 2 for a system that decides itself, and more for
    a gain by figures.
    """
    return next((i for i, quality in enumerate(answers) if quality < max(answers[:i], default=0)), None)


def quality(advice):
    best = advice.best
    if best.system == "Random":
        return 0.0
    return 1.0 if advice.popularity_is_as_good else 2.0 + max(best.sure_gain, 0.0) * (advice.ruled is None)


def test_a_setback_is_found():
    """Negative control: answers by the earlier rule, which preferred items at random at some larger epsilons."""
    assert first_setback([1, 1, 0, 0, 1]) == 2
    assert first_setback([2, 2.1, 1]) == 2
    assert first_setback([0, 1, 1, 2, 2.5]) is None


@pytest.mark.parametrize("trust", list(TRUST_VIEWS))
@pytest.mark.parametrize(("n_users", "n_items"), [(300, 300), (1_000, 3_000)])
def test_more_epsilon_gets_no_worse_answer_by_the_rule(trust, n_users, n_items):
    honest = 0.7 if trust == "aggregator" else None
    answers = [
        advise(n_users, n_items, epsilon, trust, honest_fraction=honest)
        for epsilon in (0.05, 0.5, 1.0, 2.0, 2.8, 3.3, 6.0)
    ]
    assert first_setback(list(map(quality, answers))) is None


cells = st.builds(
    lambda n_users, n_items, target, system, hr: row(n_users, n_items, target, system, hr),
    st.sampled_from([1_000, 10_000]), st.sampled_from([300, 1_000]), st.sampled_from([0.5, 1.0, 2.0]),
    st.sampled_from(["DPGram", "DPSubspace", POPULARITY]), st.floats(0.05, 0.95),
)  # fmt: skip


@given(st.lists(cells, min_size=1, max_size=25), st.sampled_from([1_000, 5_000, 20_000]), st.sampled_from([300, 500]))
@settings(deadline=None, max_examples=25)
def test_more_epsilon_gets_no_worse_answer_by_figures(tmp_path_factory, rows, n_users, n_items):
    path = tmp_path_factory.mktemp("sweeps") / "advice.json"
    header = {"source": "made up", "code": "0", "machine": "none", "n_threads": 1, "delta": 1e-6}
    path.write_text(json.dumps({**header, "rows": rows}))
    # Calibration is exact and slow, so that the plan of one setting stands for all.
    chosen = calibrated(RECIPES[0], 1.0, 1e-6, 1_000, 300)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(choice_module, "_setting_of", lambda *_: chosen)
        answers = [
            advise(n_users, n_items, epsilon, "central", measured=path)
            for epsilon in (0.4, 0.5, 0.7, 1.0, 1.5, 2.0, 9.0)
        ]
    assert first_setback(list(map(quality, answers))) is None
