"""Tests of the published folds as a split of MovieLens 100K, of a part of it, and of other data."""

import shutil
import zipfile

import numpy as np
import pytest
from support.interaction_case import table_of
from support.movielens_folder import RATINGS, write_folder

from fastfedrec import Interactions, Key
from fastfedrec.datasets import load_movielens
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


def test_real_folds(data_path):
    data = load_movielens(data_path("ml-100k.zip"))
    splits = list(PublishedFolds(data_path("ml-100k.zip")).split(data))
    assert [(train.n_interactions, test.n_interactions) for train, test in splits] == [(80_000, 20_000)] * 5
    tested = sum(test.to_scipy() for _, test in splits)
    assert (tested != data.to_scipy()).nnz == 0
    on_a_list = load_movielens(data_path("ml-100k.zip"), item_ids="published")
    for split, other in zip(splits, PublishedFolds(data_path("ml-100k.zip")).split(on_a_list), strict=True):
        assert table_of(split.test) == table_of(other.test)
        assert other.test.shape == on_a_list.shape


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


def test_zip_and_folder_are_alike_and_axes_are_those_of_the_data(folder, tmp_path):
    path = tmp_path / "ml-100k.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for file in folder.iterdir():
            archive.write(file, f"ml-100k/{file.name}")
    data = load_movielens(folder)
    for a, b in zip(PublishedFolds(folder).split(data), PublishedFolds(path).split(data), strict=True):
        for part, other in zip(a, b, strict=True):
            assert table_of(part) == table_of(other)
            np.testing.assert_array_equal(part.user_ids, data.user_ids)
            assert part.item_features["title"].tolist() == data.item_features["title"].tolist()


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


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("1\t2\t3", "line 2: expected user, item, rating and timestamp, separated by tabs, got '1.t2.t3'"),
        ("1\t2\tx\t880000001", "line 2: expected user, item"),
        ("99\t2\t3\t880000001", "line 2: this rating is not in u.data: '99"),
        ("1\t2\t1\t880000001", "line 2: this rating is not in u.data"),
    ],
)
def test_malformed_lines_are_named(folder, line, reason):
    lines = (folder / "u1.test").read_text().splitlines()
    lines[1] = line
    (folder / "u1.test").write_text("\n".join(lines))
    with pytest.raises(ValueError, match=reason):
        PublishedFolds(folder).split(load_movielens(folder))


def test_other_data_and_missing_files_are_refused(folder, data_path):
    data = load_movielens(folder)
    shutil.copy(folder / "u2.test", folder / "u1.test")
    with pytest.raises(ValueError, match=r"must partition u.data, but 8 of its ratings are in both or in neither"):
        PublishedFolds(folder).split(data)
    (folder / "u1.test").unlink()
    with pytest.raises(FileNotFoundError, match=r"u1\.test is missing"):
        PublishedFolds(folder).split(data)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        PublishedFolds(folder / "nowhere").split(data)
    with pytest.raises(TypeError, match="path must be a str or a path, got int; name MovieLens 100K's zip"):
        PublishedFolds(3)


def test_another_movielens_has_no_folds(data_path):
    data = load_movielens(data_path("ml-1m.zip")).select_users(range(1, 3))
    with pytest.raises(FileNotFoundError, match=r"holds no u\.data; use MovieLens 100K, which comes with folds"):
        PublishedFolds(data_path("ml-1m.zip")).split(data)
