"""An update that is not finite neither fails a fit nor warns, so that a sampled user's data stay hidden."""

import warnings

import pytest
from support.models import gather

from fastfedrec import Interactions, Key
from fastfedrec.rounds.system import DivergenceError

MODELS = gather("of_rate")


def outcome(model, values):
    """Return the outcome of a fit of ten users, one with these values."""
    data = Interactions.from_arrays(
        [1] * len(values), list(range(len(values))), values or None, user_ids=range(10), item_ids=range(8)
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            model.fit(data, key=Key.from_seed(1))
        except (DivergenceError, ValueError) as error:  # depends on released parameters, or on the rate itself
            return str(error).partition(":")[0]
    return ["a model", *(str(warning.message).partition(":")[0] for warning in caught)]


@pytest.mark.parametrize("rate", [1e80, 1e154, 1e300])
@pytest.mark.parametrize("name", MODELS)
def test_a_huge_rate_does_not_show_whether_a_user_has_data(name, rate):
    first, *other_outcomes = (
        outcome(MODELS[name](rate), values_of_user) for values_of_user in ([], [3.0], [3.0, 5.0, 5.0, 1.0])
    )
    assert other_outcomes == [first, first]
