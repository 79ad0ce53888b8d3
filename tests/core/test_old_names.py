"""Tests of former public names: each raises an error that gives the new name, and the changelog lists both."""

import importlib
import inspect
import re
from pathlib import Path

import pytest

import fastfedrec.compute.ranks  # noqa: F401 (a module is an attribute of its package only after its import)

CHANGES = (Path(__file__).parents[2] / "CHANGELOG.md").read_text().split("\n## ")[1]

# Former names of functions, classes, constants, attributes and methods, below `fastfedrec`, and the new ones.
NAMES = {
    "accounting.most_right_guesses": "largest_guess_share",
    "accounting.guesses.most_right_guesses": "largest_guess_share",
    "rounds.receiver.Heard": "PartialRound",
    "rounds.receiver.RoundReceiver.heard": "partial_round",
    "datasets.generate_counts.PoissonCounts.law": "distribution",
    "studies.membership.attack.MembershipResult.n_others": "n_non_members",
    "studies.membership.attack.MembershipResult.hits": "true_positive_rates",
    "mechanisms.noise.integer_noise.IntegerNoise.distance": "total_variation",
    "mechanisms.noise.integer_noise.IntegerNoise.total_distance": "total_variation_of",
    "evaluation.metrics.results.Evaluation.of_users": "user_values",
    "evaluation.metrics.names.Metric.is_of_ratings": "is_rating_metric",
    "evaluation.metrics.names.Metric.is_of_lists": "is_list_metric",
    "evaluation.metrics.names.OF_RATINGS": "RATING_METRICS",
    "systems.fedrec.attacks.AttackResult.told": "accuracy",
    "engines.shuffling.shuffler.Shuffler.wants": "expects",
    "compute.places": "ranks",
}
# Functions, with the former and the new name of a parameter.
PARAMETERS = {
    "accounting.ledger.Ledger.amend": ("n_users_heard", "n_reporting_users"),
    "datasets.generate_counts.generate_counts": ("law", "distribution"),
    "datasets.generate_sequences.generate_sequences": ("stay", "stay_probability"),
    "mechanisms.ratings.laplace_rr.RoundedLaplace": ("reach", "margin"),
}


def find(path):
    """Return the object at a path below `fastfedrec`."""
    folder, _, name = path.rpartition(".")
    try:
        return importlib.import_module(f"fastfedrec.{path}")
    except ModuleNotFoundError:
        return getattr(find(folder), name)


@pytest.mark.parametrize(("path", "new_name"), NAMES.items())
def test_a_former_name_raises_an_error_with_the_new_one(path, new_name):
    folder, _, name = path.rpartition(".")
    owner = find(folder)
    for place in [owner, object.__new__(owner)] if inspect.isclass(owner) else [owner]:
        with pytest.raises(AttributeError, match=rf"\b{name} is now called {new_name}$"):
            getattr(place, name)
    fields = getattr(owner, "__dataclass_fields__", {})
    assert hasattr(owner, new_name) or new_name in fields or f"self.{new_name} = " in inspect.getsource(owner)
    assert name not in getattr(owner, "__all__", [])


@pytest.mark.parametrize(("path", "names"), PARAMETERS.items())
def test_a_former_parameter_raises_an_error_with_the_new_one(path, names):
    (old_name, new_name), function = names, find(path)
    with pytest.raises(TypeError, match=rf"argument {old_name} is now called {new_name}$"):
        function(**{old_name: 1})
    parameters = inspect.signature(function).parameters
    assert new_name in parameters
    assert old_name not in parameters


def test_other_names_raise_pythons_own_error():
    with pytest.raises(AttributeError, match=r"module 'fastfedrec\.accounting' has no attribute 'most_guesses'"):
        find("accounting").most_guesses  # noqa: B018


@pytest.mark.parametrize(
    ("old_name", "new_name"),
    [(path.rpartition(".")[2], new_name) for path, new_name in NAMES.items()] + list(PARAMETERS.values()),
)
def test_the_changelog_lists_each_former_name_with_the_new_one(old_name, new_name):
    assert re.search(rf"^  \|[^|]*\b{old_name}\b[^|]*\|[^|]*\b{new_name}\b[^|]*\|$", CHANGES, re.MULTILINE)
