"""Models keep the rows of repeated pairs, by which a split by time divides the data of a loaded model."""

import numpy as np
import pytest
from support.hostile_files import change_array, change_header, unpack

from fastfedrec import DPGram, Interactions, ItemKNN, Key, load
from fastfedrec.evaluation import LeaveOneOut, TemporalSplit

KEY = Key.from_seed(1)


def table(rule, *, with_values=True):
    """400 rows of 12 users and 9 items, so that most pairs are repeated."""
    rng = np.random.default_rng(5)
    users, items = rng.integers(0, 12, 400), rng.integers(0, 9, 400)
    values = rng.integers(1, 6, 400).astype(float) if with_values else None
    return Interactions.from_arrays(users, items, values, timestamps=rng.integers(0, 1000, 400), duplicates=rule)


def columns(data):
    return [getattr(data, name) for name in ("indptr", "indices", "timestamps")] + [data.values_or_ones()]


@pytest.mark.filterwarnings("ignore:ItemKNN ignores values:UserWarning")
@pytest.mark.parametrize("splitter", [TemporalSplit(time=500), LeaveOneOut(latest=True)])
@pytest.mark.parametrize(
    "data",
    [table("sum"), table("mean"), table("last"), table("max", with_values=False), table("sum").binarize(4.0)],
    ids=["sum", "mean", "last", "max", "binarize"],
)
def test_a_loaded_model_has_data_that_are_split_as_before(data, splitter, tmp_path):
    model = ItemKNN().fit(data)
    model.save(tmp_path / "model")
    loaded = load(tmp_path / "model").interactions_
    fitted = splitter.split(model.interactions_, key=KEY)
    for part, expected in zip(splitter.split(loaded, key=KEY), fitted, strict=True):
        for ours, theirs in zip(part, expected, strict=True):
            for column, other in zip(columns(ours), columns(theirs), strict=True):
                np.testing.assert_array_equal(column, other)
        np.testing.assert_array_equal(part.train.indices, next(splitter.split(data, key=KEY)).train.indices)


def test_a_file_without_users_has_none_of_their_rows(tmp_path):
    model = DPGram(epsilon=1.0).fit(table("sum", with_values=False), key=KEY)
    model.save(tmp_path / "model", include_users=False)
    document, arrays = unpack((tmp_path / "model").read_bytes())
    assert "repeats" not in document["header"]
    assert not [name for name in arrays if "repeats" in name]
    model.save(tmp_path / "model")  # where they are there
    document, arrays = unpack((tmp_path / "model").read_bytes())
    assert "repeats" in document["header"]
    assert {name for name in arrays if "repeats" in name} >= {"data.repeats_positions", "data.repeats_timestamps"}


@pytest.mark.filterwarnings("ignore:ItemKNN ignores values:UserWarning")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda path: change_header(path, lambda h: h.update(repeats=[])), "repeats must have rule, above, is_binary"),
        (lambda path: change_header(path, lambda h: h["repeats"].pop("above")), "repeats must have rule, above"),
        (lambda path: change_header(path, lambda h: h["repeats"].update(rule="some")), "repeats.rule must be one of"),
        (lambda path: change_header(path, lambda h: h["repeats"].update(is_binary=1)), "repeats must have rule, above"),
        (lambda path: change_header(path, lambda h: h["repeats"].update(above=-1)), "repeats.above must be at least"),
        (lambda path: change_header(path, lambda h: h.pop("repeats")), "data.repeats_"),
        (lambda path: change_array(path, "data.repeats_positions", lambda a: a + 10**6), "repeats.positions must be"),
        (lambda path: change_array(path, "data.repeats_indptr", lambda a: a[::-1].copy()), "repeats must list"),
        (lambda path: change_array(path, "data.repeats_timestamps", lambda a: a[:-1]), "repeats must list|shape"),
        (lambda path: change_array(path, "data.repeats_timestamps", lambda a: a * 0.5), "repeats.timestamps"),
    ],
)
def test_rows_that_cannot_be_are_refused(change, message, tmp_path):
    path = tmp_path / "model"
    ItemKNN().fit(table("sum")).save(path)
    assert load(path).interactions_.n_interactions
    change(path)
    with pytest.raises(ValueError, match=message) as raised:
        load(path)
    assert str(path) in str(raised.value)
