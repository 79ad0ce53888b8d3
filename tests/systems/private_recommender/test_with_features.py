"""The choice with public features of the items: the rule by hand, the model that goes by it, and the command."""

import json
import math

import pytest

from fastfedrec import DPGram, DPSubspace, Key, PrivateRecommender, ShuffledSketchGram, datasets
from fastfedrec.accounting import gaussian_mu
from fastfedrec.cli.main import main
from fastfedrec.systems.private_recommender.choice import advise
from fastfedrec.systems.private_recommender.recipes import plan_run
from fastfedrec.systems.registry import make_system

KEY = Key.from_seed(3)


def both(*asked, **more):
    """The answers without and with features."""
    return tuple(advise(*asked, item_features=given, **more) for given in (False, True))


# ---- oracle --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("question", "row_length", "system"),
    [
        ((6_000, 300, 2.0, "central"), 30.0, "DPSubspace"),  # 78 n mu / sqrt(m), times 30: taken without
        ((6_000, 300, 1.5, "central"), 30.0, "DPGram"),
        ((6_000, 300, 2.0, "central"), None, None),  # times 10
        ((3_000, 300, 2.0, "central"), 30.0, None),
        ((6_000, 300, 1.0, "central"), 50.0, "DPGram"),  # 41, times 40
        ((6_000, 1_000, 2.0, "central"), 24.0, None),
        ((50_000, 3_000, 4.0, "shuffle"), 30.0, "ShuffledSketchGram"),
        ((6_000, 3_000, 8.0, "central"), 30.0, "DPSubspace"),
        ((20_000, 3_000, 0.5, "central"), 30.0, None),
        ((50_000, 3_000, 0.5, "shuffle"), None, None),
    ],
)
def test_the_rule_by_hand(question, row_length, system):
    without, found = both(*question, row_length=row_length)
    if system is None:
        assert found.best == without.best
        assert found.offers == without.offers
        assert "features of items" in found.remarks[-1]
        return
    assert found.best.system == system
    assert not found.best.is_popularity
    assert 0.95 * question[2] < found.best.epsilon <= question[2]
    if without.best.is_popularity:
        assert found.reason.startswith("by rule, for there are public features of the items")
        assert found.reason in found.summary()
        n_users, n_items = question[:2]
        number = (
            n_users * gaussian_mu(found.best.parameters["epsilon"], 1e-6) / math.sqrt(n_items) * min(row_length, 40)
        )
        assert f"by its number {number:.0f}," in found.reason or question[3] == "shuffle"


def test_signals_are_those_of_the_models():
    data = datasets.generate_implicit(400, 60, key=KEY)
    for kind, parameters in (
        (DPGram, {"epsilon": 2.0}),
        (DPSubspace, {"epsilon": 2.0}),
        (ShuffledSketchGram, {"epsilon": 2.0}),
    ):
        model = kind(**parameters).fit(data, key=KEY)
        assert plan_run(kind(**parameters), 400, 60, 1e-6).signal == model.signal_


def test_what_is_chosen_is_what_is_fitted_and_costs_as_was_said():
    data = datasets.generate_implicit(3_000, 200, key=KEY, mean_interactions=30)
    table = {"kind": ["a", "b", "c", "d"] * 50}
    options = {"epsilon": 2.0, "row_length": 30.0}
    popular = PrivateRecommender(**options).fit(data, key=KEY)
    model = PrivateRecommender(**options, item_features=table).fit(data, key=KEY)
    answer = advise(3_000, 200, 2.0, "central", row_length=30.0, item_features=True)
    assert model.advice_.best == answer.best
    assert model.chosen_ == f"DPGram(epsilon={answer.best.parameters['epsilon']})"
    assert model.ledger_.epsilon("public") == pytest.approx(answer.best.epsilon, rel=1e-9)
    assert model.ledger_.epsilon("public") <= 2.0
    assert popular.advice_.best.system != "DPGram" or not popular.advice_.best.is_popularity
    assert model.model_.item_features is model.item_features
    assert "200 items, rows of 30, with public features: by rule" in " ".join(model.ledger_.notes)
    planned = plan_run(model.model_, 3_000, 200, 1e-6, data.item_ids)
    assert planned.ledger.epsilon("public") == pytest.approx(answer.best.epsilon, rel=1e-9)


# ---- invariants ----------------------------------------------------------------------------------------------------


def test_popularity_is_given_no_features_which_would_open_its_gate():
    data = datasets.generate_implicit(1_000, 200, key=KEY, mean_interactions=30)
    # Of DPGram itself the gate is open from 22 with features, and from 30 without.
    epsilon = next(e / 10 for e in range(20, 90) if 23 < signal(e / 10, 1_000, 200) < 29)
    model = PrivateRecommender(epsilon, item_features={"kind": ["a", "b"] * 100}).fit(data, key=KEY)
    assert model.advice_.best.is_popularity
    assert model.model_.get_params().get("item_features") is None
    assert model.ledger_.epsilon("public") == model.advice_.best.epsilon
    assert f"{type(model.model_).__name__} makes nothing of the item features" in " ".join(model.ledger_.notes)


def signal(epsilon, n_users, n_items):
    parameters = next(o for o in all_offers(epsilon, n_users, n_items) if o.system == "DPGram").parameters
    return plan_run(DPGram(**parameters), n_users, n_items, 1e-6).signal


def all_offers(epsilon, n_users, n_items):
    found = advise(n_users, n_items, epsilon, "central")
    return (*found.offers, *found.popularities)


def test_nobody_trusted_has_no_use_of_them():
    without, found = both(6_000, 300, 1.0, "local")
    assert found.best == without.best
    assert found.remarks[-1] == "no system with nobody trusted takes features of items"


def test_what_is_measured_to_be_ahead_stays(tmp_path):
    def row(system, value, **more):
        return {
            "n_users": 1_000, "n_items": 300, "row_length": 30.0, "system": system, "trust": "central", "target": 1.0,
            "parameters": {}, "is_popularity": system == "DPPopularity", "metrics": {"hr@10": [value]},
            "n_tested": 10_000, "bytes_per_client": 1, "seconds": 1.0,
        } | more  # fmt: skip

    def answer(fmf, gram):
        rows = [row("DPPopularity", 0.4), row("DPFMF", fmf), row("DPGram", gram)]
        document = {"rows": rows, "delta": 1e-6, "source": "s", "code": "c", "machine": "m", "n_threads": 1}
        (tmp_path / "advice.json").write_text(json.dumps(document))
        asked = {"row_length": 30.0, "item_features": True, "measured": tmp_path / "advice.json"}
        return advise(20_000, 300, 2.0, "central", **asked)

    assert answer(0.5, 0.45).best.system == "DPFMF"
    assert "DPFMF makes nothing of features of items, and is ahead without them" in answer(0.5, 0.45).remarks
    assert answer(0.5, 0.499).best.system == "DPGram"
    assert answer(0.45, 0.5).remarks[-1] == "DPGram takes features of items; its figures are those without"


# ---- bad inputs, and the command -----------------------------------------------------------------------------------


def test_whether_there_are_features_is_a_flag():
    with pytest.raises(TypeError, match="item_features must be"):
        advise(6_000, 300, 2.0, "central", item_features={"kind": ["a"]})


def test_the_command(capsys):
    asked = [
        "advise",
        "--users",
        "6000",
        "--items",
        "300",
        "--epsilon",
        "1.5",
        "--trust",
        "central",
        "--row-length",
        "30",
    ]
    assert main([*asked, "--with-features", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["best"]["system"] == "DPGram"
    assert make_system("DPGram", document["best"]["parameters"]).epsilon > 0
