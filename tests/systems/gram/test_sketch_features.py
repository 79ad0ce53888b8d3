"""Which features ShuffledSketchGram believes: by its estimate alone, and none that it does not bear out."""

import numpy as np
import pytest
from support.feature_case import grouped

from fastfedrec import Key, ShuffledSketchGram
from fastfedrec.systems.gram._feature_shrinkage import popularity_of, tell
from fastfedrec.systems.gram.shuffled_sketch_rounds import SketchRound

KEY = Key.from_seed(3)
N_ITEMS = 60


@pytest.fixture(scope="module")
def people():
    """Their rows, and what is true of the items."""
    rows, _, groups = grouped(4_000, N_ITEMS, 1)
    return rows, groups


def fitted(rows, features):
    return ShuffledSketchGram(4.0, item_features=features).fit(rows, key=KEY)


# ---- invariants ------------------------------------------------------------------------------------------------------


def test_features_of_noise_change_no_bit(people):
    rows, groups = people
    rng = np.random.default_rng(4)
    noise = {"label": rng.permutation(groups), "vector": rng.normal(size=(N_ITEMS, 5))}
    without, useless, told = (fitted(rows, features) for features in (None, noise, {"group": groups}))
    for name in without._saved:
        np.testing.assert_array_equal(getattr(useless, name), getattr(without, name))
    assert np.abs(told.item_means_ - without.item_means_).max() > 0


@pytest.mark.parametrize("answers_tell", [True, False])
def test_what_decides_is_what_was_estimated(people, answers_tell, monkeypatch):
    """Whose answers come counts, and not whose rows they are said to be: the others like other groups."""
    rows, groups = people
    others = type(rows).from_scipy(rows.to_scipy()[:, np.random.default_rng(1).permutation(N_ITEMS)])
    mine, heard = (others, rows) if answers_tell else (rows, others)
    answer = SketchRound.local_round

    def misled(self, state, shard, *rest, **options):
        return answer(self, state, heard, *rest, **options)

    monkeypatch.setattr(SketchRound, "local_round", misled)
    without, told = (fitted(mine, features) for features in (None, {"group": groups}))
    same = [np.array_equal(getattr(told, name), getattr(without, name)) for name in without._saved]
    assert all(same) is not answers_tell


# ---- statistics ------------------------------------------------------------------------------------------------------


def test_labels_at_random_hardly_ever_tell_beside_what_all_items_have_in_common():
    """Pairs of the estimate are not centred: popular items have them with all others."""
    rng = np.random.default_rng(7)
    rows, _, groups = grouped(50, 150, 1)
    popularity = rng.lognormal(sigma=1.0, size=150)
    popularity /= popularity.sum()
    upper = np.triu(rng.normal(size=(150, 150)), 1)
    of_groups = (groups[:, None] == groups) * 150 * np.sqrt(np.outer(popularity, popularity))
    matrix = (1e5 * np.outer(popularity, popularity) + of_groups + upper + upper.T).astype(np.float32)
    found = popularity_of(matrix)

    def tells(labels):
        return tell(ShuffledSketchGram(item_features={"label": labels})._features_of(rows), matrix, found)

    assert sum(tells(rng.permutation(groups)) for _ in range(100)) <= 1
    assert tells(groups)
