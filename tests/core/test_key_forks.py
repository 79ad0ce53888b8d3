"""An entropy key belongs to the process that made it: no fork draws from it, by any function."""

import inspect
import os
import sys

import pytest
from support.key_draws import DRAWS, EXPERIMENTS, outcomes_in_a_fork
from support.key_draws import outcome as outcome_of
from test_conventions import public_objects

from fastfedrec import Key

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
forks = pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")


@pytest.mark.ignores_values
@pytest.mark.parametrize("name", DRAWS)
def test_each_draw_works_in_the_process_that_made_the_key(name):
    assert outcome_of(DRAWS[name], Key.from_entropy()) == "drawn"


def functions_with_a_key():
    """Yield (name, code) of public functions and methods that take a key."""
    for name, value in public_objects():
        function = inspect.unwrap(value.__init__ if inspect.isclass(value) else getattr(value, "__func__", value))
        if inspect.isfunction(function) and "key" in inspect.signature(function).parameters:
            yield name, function.__code__


def functions_called_by(draws, functions):
    """Return the functions, among these, to which some draw passes its key; functions are given by their code."""
    called = set()

    def record(frame, event, _):
        if event == "call" and frame.f_code in functions and frame.f_locals.get("key") is key:
            called.add(frame.f_code)

    for draw in draws:
        key = Key.from_entropy()
        sys.setprofile(record)
        try:
            draw(key)
        finally:
            sys.setprofile(None)
    return called


#: Functions that pass a key to others, draw no number, or are called by the tests of Flower.
WITHOUT_DRAWS = {
    "fastfedrec.engines.flower.private.PrivateRounds",
    "fastfedrec.engines.flower.private.private",
    *(f"fastfedrec.evaluation.metrics.results.Evaluation.to_{kind}" for kind in ("frame", "json", "latex", "markdown")),
    "fastfedrec.evaluation.metrics.results.Evaluation.plot",
    "fastfedrec.evaluation.published_folds.PublishedFolds.split",
    "fastfedrec.evaluation.temporal_split.TemporalSplit.split",
    "fastfedrec.rounds.system.FederatedSystem.local_round",
}


@pytest.mark.ignores_values
def test_every_public_function_with_a_key_is_tried():
    experiments = tuple(f"fastfedrec.{folder}" for folder in EXPERIMENTS)
    functions = {code: name for name, code in functions_with_a_key() if not name.startswith(experiments)}
    missing = {functions[code] for code in functions.keys() - functions_called_by(DRAWS.values(), functions)}
    assert missing == WITHOUT_DRAWS, "all others are called by DRAWS of tests/support/key_draws.py"
    names = {functions[code] for code in functions_called_by([DRAWS["RandomHoldout"]], functions)}
    assert names == {"fastfedrec.core.randomness.resolve_key", "fastfedrec.evaluation.splits.Splitter.split"}


@pytest.mark.ignores_values
@needs_fork
@forks
@pytest.mark.parametrize("generations", [1, 2])
def test_a_fork_cannot_draw_from_an_entropy_key_by_any_function(generations):
    for name, outcome in outcomes_in_a_fork(Key.from_entropy, generations).items():
        assert outcome.startswith("ValueError: key must be drawn in this process, got one from before its fork"), name


@pytest.mark.ignores_values
@needs_fork
@forks
def test_a_fork_draws_from_a_seed():
    assert set(outcomes_in_a_fork(lambda: Key.from_seed(1)).values()) == {"drawn"}


@needs_fork
@forks
def test_a_fork_of_the_same_number_is_another_process(monkeypatch):
    # Process numbers are reused: a grandchild may have the number of a parent that has ended.
    monkeypatch.setattr(os, "getpid", lambda: 7)
    assert "drawn" not in outcomes_in_a_fork(Key.from_entropy).values()
    assert len(Key.from_entropy().words("test", size=1)) == 1


@needs_fork
@forks
def test_a_fork_makes_keys_of_its_own_and_its_parent_keeps_its_key():
    key = Key.from_entropy()
    child = os.fork()
    if child == 0:  # without pytest's machinery: only the exit status comes back
        status = 1
        try:
            new_key = Key.from_entropy()
            new_key.claim("child.fit")
            status = 0 if len(new_key.words("test", size=1)) == 1 else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    key.claim("parent.fit")
    assert len(key.words("test", size=1)) == 1
