"""Tests of remedies in the words of the interface in use."""

import warnings

import pytest

from fastfedrec import Interactions, ItemKNN
from fastfedrec.core.interface import choose_words, in_shell


def test_the_words_are_those_of_the_interface_in_use():
    assert choose_words("grid=", "--grid") == "grid="
    with in_shell():
        assert choose_words("grid=", "--grid") == "--grid"
    assert choose_words("grid=", "--grid") == "grid="


def test_an_error_ends_the_words_of_the_shell():
    with pytest.raises(KeyError), in_shell():
        raise KeyError
    assert choose_words("grid=", "--grid") == "grid="


@pytest.mark.parametrize("is_shell", [False, True])
def test_a_warning_of_a_fit_names_one_interface(is_shell):
    data = Interactions.from_arrays([1, 1, 2], [1, 2, 2], values=[1.0, 5.0, 3.0])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if is_shell:
            with in_shell():
                ItemKNN().fit(data)
        else:
            ItemKNN().fit(data)
    [text] = [str(warning.message) for warning in caught]
    assert ("--binarize 3" in text, "data.binarize(3)" in text) == (is_shell, not is_shell)
