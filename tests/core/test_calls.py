"""Errors for calls with wrong arguments: each names the argument and a remedy."""

import inspect

import pytest

from fastfedrec import DPGram, DPPopularity, Interactions, Key, Popularity, PrivateRecommender, load
from fastfedrec.core.calls import explains_calls
from fastfedrec.datasets import generate_implicit
from fastfedrec.evaluation import KFold, LeaveOneOut, RandomHoldout, TemporalSplit, compare, evaluate

DATA = Interactions.from_arrays([1, 1, 2, 2], [1, 2, 2, 3])
MODEL = Popularity().fit(DATA)
RESULT = evaluate(MODEL, DATA, Interactions.from_arrays([1], [3]), metrics=["hr@1"])


@explains_calls
def area(width, height, *, unit="m", **options):
    return width * height


# ---- messages --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: LeaveOneOut().split(DATA), r"^split\(\) needs key; pass key=Key\.from_seed\(1\)$"),
        (lambda: LeaveOneOut(latest=True).split(DATA), r"pass key=Key\.from_seed\(1\)$"),
        (lambda: KFold(folds=3), r"^KFold\(\) has no parameter 'folds' \(did you mean 'n_folds'\?\)"),
        (lambda: RandomHoldout(0.2), r"^RandomHoldout\(\) takes .* by its name only; pass RandomHoldout\(share=0\.2\)"),
        (lambda: RandomHoldout(test_size=0.2), r"pass share=0\.2$"),
        (lambda: TemporalSplit(0.2), r"pass TemporalSplit\(share=0\.2\)"),
        (lambda: TemporalSplit(5), r"pass TemporalSplit\(\w+=5\)"),
        (lambda: MODEL.recommend([1], k=3), r"^recommend\(\) has no parameter 'k'; pass n=3$"),
        (lambda: MODEL.recommend_for([1], top_k=3), r"^recommend_for\(\) has no parameter 'top_k'; pass n=3$"),
        (lambda: MODEL.fit(DATA, random_state=3), r"^fit\(\) has no parameter 'random_state'; pass key=Key\.from_s"),
        (lambda: DPGram(random_state=1), r"^DPGram\(\) has no parameter 'random_state'; pass a random key to fit"),
        (lambda: DPGram(epsilom=1), r"'epsilom' \(did you mean 'epsilon'\?\); its parameters are epsilon,"),
        (lambda: evaluate(MODEL, DATA, DATA, metric=["hr@1"]), r"pass metrics=\['hr@1'\]$"),
        (lambda: compare(RESULT, RESULT), r"^compare\(\) takes results as one argument; pass a list, compare\(\["),
        (lambda: LeaveOneOut().split(DATA, DATA), r"^split\(\) takes this argument by its name only"),
        (lambda: area(1), r"^area\(\) needs height; pass height=\.\.\.$"),
        (lambda: area(1, 2, 3), r"^area\(\) takes this argument by its name only; pass area\(unit=3\)"),
    ],
)  # fmt: skip
def test_a_wrong_call_names_the_argument_and_a_remedy(call, message):
    with pytest.raises(TypeError, match=message):
        call()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: LeaveOneOut().split(DATA, key=None).train, AttributeError, r"'train'; .* by next\(splitter\.split\("),
        (lambda: load("nofile.npz"), FileNotFoundError, r"^path 'nofile\.npz' does not exist; pass a file"),
        (lambda: PrivateRecommender(trust="server").fit(DATA), ValueError, r"'central' \(the server is trusted"),
        (lambda: DPPopularity(trust="shuffle").fit(DATA), ValueError, r"'local' \(only the user's own device"),
        (
            lambda: generate_implicit(2000, 1000, key=Key.from_seed(1), mean_interactions=20),
            ValueError,
            r"got 20; pass a mean in this range, or another preset$",
        ),
    ],
)  # fmt: skip
def test_a_wrong_value_names_its_meaning_and_a_remedy(call, error, message):
    with pytest.raises(error, match=message):
        call()


# ---- invariants ------------------------------------------------------------------------------------------------------


def test_a_call_that_fits_is_unchanged():
    assert area(2, height=3, unit="cm", colour="red") == 6
    assert list(inspect.signature(area).parameters) == ["width", "height", "unit", "options"]
    assert list(inspect.signature(DPGram).parameters)[:2] == ["epsilon", "delta"]
    assert DPGram(2.0).epsilon == 2.0


def test_an_error_inside_the_function_is_unchanged():
    """Negative control: only errors of the call itself are explained."""
    with pytest.raises(TypeError, match="can't multiply sequence by non-int"):
        area("a", "b")
