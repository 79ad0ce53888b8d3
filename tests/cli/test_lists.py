"""Files of recommended lists: padding is left out, and ids with blanks are read back as they are."""

import csv

import numpy as np

from fastfedrec.cli.lists import lists_of, write_lists


def test_padding_is_left_out_and_blanks_around_ids_are_kept(tmp_path):
    lists = lists_of(
        [" ann", "bob"], np.array([["tea ", "jam"], ["jam", "tea "]]), np.array([[2.0, -np.inf], [1.0, 0.5]])
    )
    assert write_lists(tmp_path / "a.csv", [lists], source="m") == (2, 3)
    with (tmp_path / "a.csv").open(newline="") as file:
        rows = list(csv.reader(file, skipinitialspace=False))
    assert rows == [
        ["user", "item", "score", "rank"], [" ann", "tea ", "2.0", "1"], ["bob", "jam", "1.0", "1"],
        ["bob", "tea ", "0.5", "2"],
    ]  # fmt: skip
    assert '" ann"' in (tmp_path / "a.csv").read_text()
