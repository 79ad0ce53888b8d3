"""The published folds as a split: of all of MovieLens 100K, of a part, and of what is something else."""

import numpy as np
import pytest
from support.interaction_case import table_of
from support.movielens_folder import RATINGS, write_folder

from fastfedrec import Interactions, Key
from fastfedrec.datasets import load_movielens, load_movielens_folds
from fastfedrec.evaluation import PublishedFolds


@pytest.fixture
def folder(tmp_path):
    return write_folder(tmp_path / "ml-100k")


# ---- oracle ----------------------------------------------------------------------------------------------------------


def test_folds_of_the_data_are_the_files(folder):
    splits = list(PublishedFolds(folder).split(load_movielens(folder)))
    for fold, (train, test) in enumerate(splits, start=1):
        tested = {user: row for user, row in table_of(test).items() if row}
        assert tested == {fold: {item: rating for user, item, rating, _ in RATINGS if user == fold}}
        assert table_of(train) == {
            user: {i: rating for u, i, rating, _ in RATINGS if u == user != fold} for user in range(1, 6)
        }


def test_real_folds_are_those_of_the_reader(data_path):
    data = load_movielens(data_path("ml-100k.zip"), item_ids="published")
    read = load_movielens_folds(data_path("ml-100k.zip"))
    for split, parts in zip(PublishedFolds(data_path("ml-100k.zip")).split(data), read, strict=True):
        for part, expected in zip(split, parts, strict=True):
            assert part.shape == data.shape
            assert table_of(part) == table_of(expected)


# ---- invariants ------------------------------------------------------------------------------------------------------


def test_a_part_of_the_data_has_its_part_of_the_folds(folder):
    data = load_movielens(folder).select_users([4, 0, 2]).select_items([1, 3]).binarize(2)
    whole = list(PublishedFolds(folder).split(load_movielens(folder)))
    with pytest.raises(ValueError, match=f"fold 2 leaves test empty: too few ratings of {folder} are in data"):
        PublishedFolds(folder).split(data)
    data = load_movielens(folder).select_items([3, 1])
    for split, of_all in zip(PublishedFolds(folder).split(data, key=Key.from_seed(1)), whole, strict=True):
        for part, all_of_it in zip(split, of_all, strict=True):
            assert part.item_ids.tolist() == [2, 4]
            assert table_of(part) == table_of(all_of_it.select_items([1, 3]))


# ---- bad inputs ------------------------------------------------------------------------------------------------------


def test_other_data_are_refused(folder):
    data = load_movielens(folder)
    for other in (
        Interactions.from_arrays([1, 9], [1, 1]),  # an unknown user
        Interactions.from_arrays([1, 2], [1, 77]),  # an unknown item
        data._replace(item_ids=np.array(["a", "b", "c", "d"])),
    ):
        with pytest.raises(ValueError, match="data must be MovieLens 100K or a part of it, but"):
            PublishedFolds(folder).split(other)
    with pytest.raises(TypeError, match="data must be Interactions, a SciPy"):
        PublishedFolds(folder).split(RATINGS)


def test_what_is_missing_is_named(folder):
    with pytest.raises(TypeError, match="path must be a str or a path, got int; name MovieLens 100K's zip"):
        PublishedFolds(3)
    (folder / "u1.test").unlink()
    with pytest.raises(FileNotFoundError, match=r"u1\.test is missing"):
        PublishedFolds(folder).split(load_movielens(folder))
