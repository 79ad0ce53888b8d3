"""Trials behind PrivRec's accuracy: naive ranks, impossible printed rows, and the users that serve as test users."""

import numpy as np
import pytest
from support.reproduce_case import check_result, read_instead, written
from support.wang2021_case import apps, movies, small_networks

from fastfedrec import Interactions, Key, Popularity
from fastfedrec.evaluation.new_users import METRICS, evaluate_personalized, personalization_split
from fastfedrec.studies.reproduce.wang2021 import gap
from fastfedrec.studies.reproduce.wang2021.accuracy import PUBLISHED
from fastfedrec.studies.reproduce.wang2021.gap import (
    ADAM,
    ALL_HELD_OUT,
    CHOSEN,
    JUDGED,
    TEXT,
    TRIED,
    gap_table,
    largest_ndcg,
)


@pytest.fixture
def tiny(monkeypatch):
    """Set networks that train within seconds."""
    make = gap.models_of

    def both(*arguments, **options):
        return tuple(small_networks(lambda result=result: result)() for result in make(*arguments, **options))

    monkeypatch.setattr(gap, "models_of", both)


def in_order():
    data = movies()
    users = np.repeat(np.arange(data.n_users), data.interactions_per_user())
    return Interactions.from_arrays(users, data.indices, data.values_or_ones(), np.arange(1, len(users) + 1))


# ---- oracle ----------------------------------------------------------------------------------------------------------


class Ids:
    """A model that scores items by their ids, except for equal scores of items 30 and 31."""

    def score_items(self, user_ids):
        scores = np.arange(50.0)
        scores[31] = 30.0
        return np.tile(scores, (len(user_ids), 1))


def test_every_reading_by_hand():
    key = Key.from_seed(3)
    split = personalization_split(movies(), threshold=3, key=key)
    result = gap.other_readings(Ids(), split, key)
    rows = {name: [] for name in ("all items", ALL_HELD_OUT)}
    scores = Ids().score_items([0])[0]
    for user in split.test_users:
        positives = split.held_out.indices[split.held_out.indptr[user] : split.held_out.indptr[user + 1]].tolist()
        known = set(split.known.indices[split.known.indptr[user] : split.known.indptr[user + 1]].tolist())
        if positives:
            for name, items in (("all items", set(range(50))), (ALL_HELD_OUT, set(range(50)) - known)):
                rows[name].append([
                    1 + sum((scores[j] > scores[i]) + 0.5 * (scores[j] == scores[i]) for j in items - {i})
                    for i in positives
                ])  # fmt: skip
    for name, ranks in rows.items():
        assert result[name]["10"] == pytest.approx(np.mean([np.mean(np.array(r) <= 10) for r in ranks]))
    any_hit = np.mean([min(r) <= 5 for r in rows[ALL_HELD_OUT]])
    assert result[f"{ALL_HELD_OUT}, any hit of a user"]["5"] == pytest.approx(any_hit)
    # With 50 items, all unvisited ones are sampled, so this reading equals the text's.
    expected = evaluate_personalized(Ids(), split, metrics=METRICS[:4])["all"]
    assert result["99 of the unvisited items"]["20"] == pytest.approx(expected["hr@20"])


def test_the_bound_holds_for_every_ranking_and_is_reached():
    ranks = Key.from_seed(1).words("test.ranks", size=1200).reshape(200, 6) % 40 + 1
    for row in ranks:
        hits = tuple(float(np.mean(row <= k)) for k in (5, 10, 20, 30))
        assert np.mean(np.where(row <= 30, 1 / np.log2(row + 1.0), 0)) <= largest_ndcg(hits) + 1e-12
    at_best = np.array([1, 6, 11, 21])
    assert np.mean(1 / np.log2(at_best + 1.0)) == pytest.approx(largest_ndcg((0.25, 0.5, 0.75, 1.0)))


def test_no_printed_row_is_possible():
    printed = [row for table in PUBLISHED.values() for row in table.values()]
    assert len(printed) == 14
    assert all(row[-1] > largest_ndcg(row) + 0.005 for row in printed)  # rounding of all eight figures moves less


# ---- invariants ------------------------------------------------------------------------------------------------------


def test_trials_see_train_users_alone(tiny, monkeypatch):
    seen = []
    run = gap._run

    def watched(model, split, *arguments, all_readings):
        seen.append((all_readings, set(split.visited.user_ids.tolist())))
        return run(model, split, *arguments, all_readings=all_readings)

    monkeypatch.setattr(gap, "_run", watched)
    result = gap_table(in_order(), n_seeds=1, quick=True)
    test = personalization_split(in_order(), threshold=3, key=Key.from_seed(0))
    real = set(test.visited.user_ids[test.test_users].tolist())
    tried = [users for all_readings, users in seen if not all_readings]
    assert tried
    assert all(not users & real for users in tried)
    assert {row["on"] for row in result.rows} == {TRIED}
    finalists = gap_table(in_order(), n_seeds=2, quick=True, only=[ADAM, CHOSEN, "popularity"]).rows
    assert {row["what"]: len(row["hits"]["10"]) for row in finalists} == {ADAM: 2, CHOSEN: 2, "popularity": 1}
    assert any("first stage" in row["what"] for row in result.rows)


def test_what_is_shown(tiny, tmp_path):
    result = gap_table(movies(), n_seeds=2, quick=True, folder=tmp_path)
    text, _ = check_result(result, tmp_path)
    assert {row["on"] for row in result.rows} == {JUDGED}  # no order, no trials
    chosen = next(row for row in result.rows if (row["what"], row["ranked"]) == (CHOSEN, TEXT))
    assert len(chosen["hits"]["10"]) == 2
    assert f"Hits@10 {np.mean(chosen['hits']['10']) - 0.168:+.3f} compared with PrivRec as published" in text
    assert "14 of the 14 printed rows of Tables 2 and 3 have" in text
    popularity = next(row for row in result.rows if (row["what"], row["ranked"]) == ("popularity", "all items"))
    assert len(popularity["hits"]) == 4
    assert gap_table(movies(), n_seeds=2, quick=True, folder=tmp_path).rows == result.rows
    apart = gap_table(apps(), n_seeds=1, quick=True)
    assert "NCF as published" in apart.verdict()


def test_a_row_by_hand(tiny):
    result, key = gap_table(movies(), n_seeds=1, quick=True), Key.from_seed(0)
    split = personalization_split(movies(), threshold=3, key=key)
    popularity = Popularity().fit(split.known_positives, key=key)
    row = next(row for row in result.rows if (row["what"], row["ranked"]) == ("popularity", TEXT))
    assert row["hits"]["10"] == [evaluate_personalized(popularity, split)["all"]["hr@10"]]


def test_the_command(tmp_path, capsys, monkeypatch):
    read_instead(monkeypatch, movies())
    words = "privrec --table gap --data there.zip --quick --seeds 1 --only popularity"
    result = written(words, tmp_path, "gap", capsys)
    assert result["table"] == "2"
    assert {row["what"] for row in result["rows"]} == {"popularity"}


# ---- bad inputs ------------------------------------------------------------------------------------------------------


def test_bad_inputs():
    with pytest.raises(ValueError, match="n_seeds must be at least 1"):
        gap_table(movies(), n_seeds=0)
    with pytest.raises(TypeError, match="data must be"):
        gap_table([1, 2])
    with pytest.raises(ValueError, match=r"only must be one of .*, got 'Popularity'"):
        gap_table(movies(), only=["Popularity"])
