"""The five published splits of MovieLens 100K."""

import shutil
import zipfile

import numpy as np
import pytest
from support.interaction_case import table_of
from support.movielens_folder import RATINGS, write_folder

from fastfedrec.datasets import load_movielens, load_movielens_folds


@pytest.fixture
def folder(tmp_path):
    return write_folder(tmp_path / "ml-100k")


# ---- oracle ---------------------------------------------------------------------------------------------------------


def test_folds_are_the_files(folder):
    for fold, (train, test) in enumerate(load_movielens_folds(folder), start=1):
        assert test.user_ids[test.interactions_per_user() > 0].tolist() == [fold]
        expected = [[row[2] * (u == fold) for row in RATINGS if row[0] == u] for u in range(1, 6)]
        np.testing.assert_array_equal(test.to_scipy().toarray(), expected)
        assert train.n_interactions + test.n_interactions == len(RATINGS)


def test_folds_on_a_list_are_those_of_its_items(folder):
    whole = load_movielens_folds(folder)
    published = load_movielens_folds(folder, item_ids="published")
    some = load_movielens_folds(folder, item_ids=[4, 2], unlisted="drop")
    for all_of_it, on_all, on_some in zip(whole, published, some, strict=True):
        for part, on_list, on_two in zip(all_of_it, on_all, on_some, strict=True):
            assert (on_list.catalogue, on_two.catalogue) == ("public", "public")
            assert table_of(on_list) == table_of(part)
            assert on_two.item_ids.tolist() == [4, 2]
            kept = {user: {i: v for i, v in row.items() if i in (2, 4)} for user, row in table_of(part).items()}
            assert table_of(on_two) == kept
    with pytest.raises(ValueError, match=r"which item_ids does not list \(10 of 20 rows in all\); list it, or pass"):
        load_movielens_folds(folder, item_ids=[4, 2])
    lines = (folder / "u1.test").read_text().splitlines()
    (folder / "u1.test").write_text("".join(f"{line}\n" for line in [lines[0], "1\t2\t5\t7", *lines[2:]]))
    with pytest.raises(ValueError, match=r"u1.test, line 2: this rating is not in u.data"):
        load_movielens_folds(folder, item_ids=[4, 2], unlisted="drop")
    with pytest.raises(ValueError, match="item_ids lists no movie that is rated"):
        load_movielens_folds(folder, item_ids=[], unlisted="drop")


# ---- invariants -----------------------------------------------------------------------------------------------------


def test_zip_and_folder_are_alike_and_axes_are_shared(folder, tmp_path):
    path = tmp_path / "ml-100k.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for file in folder.iterdir():
            archive.write(file, f"ml-100k/{file.name}")
    data = load_movielens(folder)
    for (a, b), (c, d) in zip(load_movielens_folds(folder), load_movielens_folds(path), strict=True):
        for part, other in ((a, c), (b, d)):
            np.testing.assert_array_equal(part.indices, other.indices)
            np.testing.assert_array_equal(part.user_ids, data.user_ids)
            assert part.item_features["title"].tolist() == data.item_features["title"].tolist()


def test_real_folds(data_path):
    folds = load_movielens_folds(data_path("ml-100k.zip"))
    assert [test.n_interactions for _, test in folds] == [20_000] * 5
    assert [train.n_interactions for train, _ in folds] == [80_000] * 5
    tested = sum(test.to_scipy() for _, test in folds)
    assert (tested != load_movielens(data_path("ml-100k.zip")).to_scipy()).nnz == 0


# ---- bad inputs -----------------------------------------------------------------------------------------------------


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
        load_movielens_folds(folder)


def test_what_is_no_split_and_what_is_missing(folder, data_path):
    shutil.copy(folder / "u2.test", folder / "u1.test")
    with pytest.raises(ValueError, match=r"u1.test must share out u.data, but 8 of its ratings are in both or in none"):
        load_movielens_folds(folder)
    (folder / "u1.test").unlink()
    with pytest.raises(FileNotFoundError, match=r"u1.test is missing"):
        load_movielens_folds(folder)
    with pytest.raises(FileNotFoundError, match=r"holds no u\.data; only MovieLens 100K comes with folds"):
        load_movielens_folds(data_path("ml-1m.zip"))
    with pytest.raises(FileNotFoundError, match="does not exist"):
        load_movielens_folds(folder / "nowhere")
