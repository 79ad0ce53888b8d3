"""Gain of PrivRec's first stage: each row equals a separate run at its stated epsilon."""

import numpy as np
import pytest
from support.reproduce_case import check_result, read_instead, written
from support.wang2021_case import small_networks

from fastfedrec import Interactions, Key, Popularity
from fastfedrec.datasets import generate_sequences
from fastfedrec.evaluation.new_users import evaluate_personalized
from fastfedrec.studies.reproduce.wang2021 import stage1
from fastfedrec.studies.reproduce.wang2021.stage1 import EPSILON, stage1_table


@pytest.fixture(scope="module")
def tiny():
    """Set networks that train within seconds."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(stage1, "stage_models", small_networks(stage1.stage_models))
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("stage1")


@pytest.fixture(scope="module")
def table(tiny, folder):
    """Compute the table once; tests read it and do not change it."""
    return stage1_table(n_seeds=2, quick=True, folder=folder)


# ---- oracle: by hand -------------------------------------------------------------------------------------------------


def test_rows_by_hand(table):
    for seed in range(2):
        key = Key.from_seed(seed)
        data = generate_sequences(200, 100, n_topics=2, key=key)
        public, split = stage1._split(data, key, 0.0)
        counts = public.interactions_per_item()
        popularity = Popularity().fit(split.known_positives, key=key)
        result = evaluate_personalized(popularity, split)["all"]["hr@10"]
        assert table.rows["popularity"]["hr@10"][seed] == result
        model = stage1.stage_models(data, split, quick=True)["DP-PrivRec, stage one public"]
        model.fit(split.train, key=key, public=public)
        devices = model.personalize(split.personal, key=key)
        assert (
            table.rows["DP-PrivRec, stage one public"]["hr@10"][seed]
            == (evaluate_personalized(devices, split)["all"]["hr@10"])
        )
        scored = stage1.PublicPopularity(counts)
        assert (
            table.rows["popularity of the public people"]["hr@10"][seed]
            == (evaluate_personalized(scored, split)["all"]["hr@10"])
        )


# ---- invariants ------------------------------------------------------------------------------------------------------


def test_public_sequences_are_disjoint_from_the_split():
    data = generate_sequences(200, 100, n_topics=2, key=Key.from_seed(0))
    public, split = stage1._split(data, Key.from_seed(0), 0.0)
    used = np.concatenate([split.train.global_user_ids, split.personal.global_user_ids])
    assert not set(public.global_user_ids.tolist()) & set(used.tolist())
    assert public.n_users + len(set(used.tolist())) == 200
    assert split.train.timestamps is not None


def test_every_private_row_is_at_the_same_epsilon(table):
    for name, row in table.rows.items():
        private = name.startswith(("DP-PrivRec", "private popularity", "DP popularity"))
        if private and "as published" not in name:
            assert 0.95 * EPSILON < row["epsilon"] <= EPSILON
        elif name == "popularity of the public people":
            assert row["epsilon"] == 0
        else:
            assert row["epsilon"] == "infinite"


def test_what_is_shown_and_kept(table, folder, tmp_path, monkeypatch):
    text, _ = check_result(table, tmp_path)
    assert text.startswith("Generated sequences: <Interactions: 200 users x 100 items")
    gain = np.mean(table.rows["DP-PrivRec, stage one private"]["hr@10"]) - np.mean(
        table.rows["DP-PrivRec, stage one none"]["hr@10"]
    )
    assert f"DP-PrivRec: stage one private changes HR@10 by {gain:+.3f}, and is ahead on" in text
    assert "stage one none changes" not in text
    joint, stage = (table.rows[f"DP-PrivRec, stage one public{end}"]["hr@10"] for end in (", joint loss", ""))
    gain = np.mean(joint) - np.mean(stage)
    assert f"DP-PrivRec: the joint loss after public changes HR@10 by {gain:+.3f}, and is ahead on" in text
    monkeypatch.setattr(stage1, "_run", lambda *_: pytest.fail("a finished model was trained again"))
    assert stage1_table(n_seeds=2, quick=True, folder=folder).rows == table.rows


def test_ratings_with_features_and_the_command(tiny, tmp_path, capsys, monkeypatch):
    matrix = generate_sequences(60, 40, n_topics=2, length=15, key=Key.from_seed(1))
    values = 1.0 + np.arange(matrix.n_interactions) % 5
    data = matrix._replace(values=values).with_features(user_features={"gender": np.arange(60) % 2})
    result = stage1_table(data, n_seeds=1, quick=True)
    assert "'user': {'gender': [0, 1]}" in result.settings["models"]["PrivRec, stage one public"]
    read_instead(monkeypatch, data)
    written("privrec --table stage1 --quick --data ml-100k.zip", tmp_path / "out", "stage1", capsys)
    assert "what the first stage is worth at equal epsilon" in (tmp_path / "out/stage1.md").read_text()


# ---- bad inputs ------------------------------------------------------------------------------------------------------


def test_bad_inputs():
    with pytest.raises(TypeError, match="data must be Interactions, got int"):
        stage1_table(3)
    with pytest.raises(ValueError, match="n_seeds must be at least 1"):
        stage1_table(n_seeds=0)
    with pytest.raises(ValueError, match="must have timestamps"):
        stage1_table(Interactions.from_arrays([0, 0, 1, 1, 2, 2, 3, 3], [0, 1] * 4, [5.0] * 8), quick=True)
