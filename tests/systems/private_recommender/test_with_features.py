"""Public features of the items: the chosen system receives them, and figures without features do not choose."""

import json

import pytest

from fastfedrec import Key, PrivateRecommender, datasets
from fastfedrec.cli.main import main
from fastfedrec.systems.private_recommender._rule import reason_of
from fastfedrec.systems.private_recommender.choice import advise
from fastfedrec.systems.private_recommender.recipes import plan_run
from fastfedrec.systems.registry import make_system

KEY = Key.from_seed(3)


# ---- oracle --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("question", "remark"),
    [
        ((6_000, 300, 2.0, "central"), "DPGram takes features of items"),
        ((6_000, 20_000, 8.0, "central"), "DPSubspace takes features of items"),
        ((5_000, 3_000, 4.0, "shuffle"), "ShuffledGram takes features of items"),
        ((900, 5_000, 2.0, "shuffle"), "ShuffledGram takes features of items"),
        ((6_000, 300, 1.0, "local"), "DPPopularity does not take features of items"),
        ((1, 10**6, 1e-300, "local"), "Random does not take features of items"),
    ],
)
def test_features_keep_the_choice_and_a_remark_states_their_use(question, remark):
    without, featured = (advise(*question, item_features=given) for given in (False, True))
    assert featured.best == without.best
    assert featured.offers == without.offers
    assert featured.remarks == (*without.remarks, remark)


def test_the_chosen_system_is_fitted_at_the_stated_cost():
    data = datasets.generate_implicit(3_000, 200, key=KEY, mean_interactions=30)
    table = {"kind": ["a", "b", "c", "d"] * 50}
    model = PrivateRecommender(epsilon=2.0, item_features=table).fit(data, key=KEY)
    answer = advise(3_000, 200, 2.0, "central", item_features=True)
    assert model.advice_.best == answer.best
    assert model.chosen_ == f"DPGram(epsilon={answer.best.parameters['epsilon']})"
    assert model.ledger_.epsilon("public") == pytest.approx(answer.best.epsilon, rel=1e-9)
    assert model.ledger_.epsilon("public") <= 2.0
    assert model.model_.item_features is model.item_features
    assert "200 items, with public features." in " ".join(model.ledger_.notes)
    assert "DPGram assumes that its item features are public" in " ".join(model.ledger_.notes)
    planned = plan_run(model.model_, 3_000, 200, 1e-6, data.item_ids)
    assert planned.ledger.epsilon("public") == pytest.approx(answer.best.epsilon, rel=1e-9)


# ---- invariants ----------------------------------------------------------------------------------------------------


def test_figures_without_features_do_not_choose(tmp_path):
    def row(system, value):
        return {
            "n_users": 1_000, "n_items": 300, "row_length": 30.0, "system": system, "trust": "central", "target": 1.0,
            "parameters": {}, "is_popularity": system == "DPPopularity", "metrics": {"hr@10": [value]},
            "n_tested": 10_000, "bytes_per_client": 1, "seconds": 1.0,
        }  # fmt: skip

    rows = [row("DPPopularity", 0.4), row("DPFMF", 0.5), row("DPGram", 0.45)]
    document = {"rows": rows, "delta": 1e-6, "source": "s", "code": "c", "machine": "m", "n_threads": 1}
    (tmp_path / "advice.json").write_text(json.dumps(document))
    options = {"row_length": 30.0, "measured": tmp_path / "advice.json"}
    without, featured = (advise(20_000, 300, 2.0, "central", item_features=given, **options) for given in (False, True))
    assert without.best.system == "DPFMF"
    assert featured.best.system == "DPGram"
    assert featured.reason == reason_of(featured.best, "central")


# ---- bad inputs, and the command -----------------------------------------------------------------------------------


def test_item_features_of_advise_is_a_flag():
    with pytest.raises(TypeError, match="item_features must be"):
        advise(6_000, 300, 2.0, "central", item_features={"kind": ["a"]})


def test_the_command(capsys):
    command = "advise --users 6000 --items 300 --epsilon 1.5 --trust central --with-features --json"
    assert main(command.split()) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["best"]["system"] == "DPGram"
    assert document["remarks"][-1] == "DPGram takes features of items"
    assert make_system("DPGram", document["best"]["parameters"]).epsilon > 0
