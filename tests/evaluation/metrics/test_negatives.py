"""Tests of the reader of NCF's test.negative files."""

import numpy as np
import pytest

from fastfedrec import Interactions
from fastfedrec.evaluation import evaluate, read_test_negatives

# ---- oracle: by hand -------------------------------------------------------------------------------------------------


def test_the_files_of_ncf(tmp_path):
    path = tmp_path / "ml.test.negative"
    path.write_text("(0,25)\t3\t17\n(5,1)\t9\n", encoding="utf-8")
    assert {user: items.tolist() for user, items in read_test_negatives(path).items()} == {0: [3, 17], 5: [9]}
    train = Interactions.from_arrays([0, 5, 7, 7, 7, 7], [1, 3, 3, 9, 17, 25])
    test = Interactions.from_arrays([0, 5], [25, 1])

    class ByItem:
        def score_items(self, user_ids):
            return np.tile(train.item_ids, (len(user_ids), 1))

    result = evaluate(ByItem(), train, test, metrics=["hr@1", "mrr"], candidates=read_test_negatives(path))
    assert (dict(result), result.protocol) == ({"hr@1": 0.5, "mrr": 0.75}, "1 to 2 given candidates")


# ---- bad inputs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must hold a line for each user, got none"),
        ("0,25\t3", r"line 1, must be '\(user,item\)' and items, separated by tabs, got '0,25\\t3'"),
        ("(0,25)\t3\n(1,2)\tx", "line 2, must be"),
        ("(0,25)\t3\n(0,26)\t4", "line 2, must be of a new user, got user 0 twice"),
    ],
)
def test_bad_files_are_named(tmp_path, text, message):
    path = tmp_path / "test.negative"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        read_test_negatives(path)
