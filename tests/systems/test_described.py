"""The described trust of each system agrees with its ledger."""

import math

import pytest
from support.data import rated
from support.models import CASES, new

from fastfedrec import FMFLDP, DPGram, GlobalMean, Key
from fastfedrec.core.names import SYSTEMS, find
from fastfedrec.systems.described import describe_system

VIEWS = {
    "local": "server",
    "shuffle": "shuffled_server",
    "central": "public",
    "entity": "server",
    "aggregator": "server",
}


# ---- oracle --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SYSTEMS)
def test_trust_follows_from_the_guarantee(name):
    assert describe_system(name)["trust"] == list(CASES[describe_system(name)["class"]].trust)


@pytest.mark.slow
@pytest.mark.parametrize("name", SYSTEMS)
def test_no_trust_is_claimed_that_no_ledger_has(name):
    """Check that each kind of trust but "none" has a model with a finite epsilon in that view or for one rating."""
    kind = find(SYSTEMS[name].rpartition(".")[2])
    description, data = describe_system(name), rated(80, 50, 1)
    case = CASES[kind.__name__]
    models = [one for part in (case.small, case.secure, case.private, case.private_for_users) for one in part.values()]
    ledgers = [new(model).fit(data, key=Key.from_seed(1)).ledger_ for model in models]
    if description["trust"][0] == "none":
        ledger = kind().fit(data, key=Key.from_seed(1)).ledger_
        assert all(ledger.epsilon(view) == (math.inf if ledger.events else 0) for view in VIEWS.values())
    of_ratings = (
        "one rating" in description["guarantee"] or "set of items that a user reports" in description["guarantee"]
    )
    for trust in description["trust"]:
        if trust != "none" and not (trust == "local" and of_ratings):
            assert any(0 < ledger.epsilon(VIEWS[trust]) < math.inf for ledger in ledgers), trust


# ---- invariants ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SYSTEMS)
def test_every_parameter_has_a_type_a_default_and_a_sentence(name):
    description = describe_system(name)
    kind = find(description["class"])
    assert {p["name"]: p["default"] for p in description["parameters"]} == kind().get_params()
    for parameter in description["parameters"]:
        assert parameter["type"]
        assert parameter["description"][0].isupper() or not parameter["description"][0].isalpha()
        assert "As for" not in parameter["description"]


def test_parameters_with_a_joint_description_have_a_sentence_each():
    said = {p["name"]: p["description"] for p in describe_system("fmf-ldp")["parameters"]}
    assert said["learning_rate"] == "Step size."
    assert said["confidence_weight"] == "Weight of an interaction beyond 1."


@pytest.mark.parametrize(("spelling", "kind"), [("DPGram", DPGram), ("fmf-ldp", FMFLDP), ("global_mean", GlobalMean)])
def test_by_any_spelling(spelling, kind):
    assert describe_system(spelling)["class"] == kind.__name__


# ---- bad inputs ----------------------------------------------------------------------------------------------------


def test_an_unknown_system_is_refused():
    with pytest.raises(ValueError, match="unknown system 'dp-grm'"):
        describe_system("dp-grm")
