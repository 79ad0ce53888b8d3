"""Docstrings of `fit` say the same things in the same words, though each writes down its own alone."""

import inspect

from numpydoc.docscrape import FunctionDoc
from support.models import MODELS

from fastfedrec.systems._fit_text import whole_docstring

FITS = {type(model).fit for model in MODELS}


class Some:
    def fit(self, interactions, key=None, strength=1, ledger=None):
        """Fit some.

        Parameters
        ----------
        interactions : array
            Of what there is,

            in two paragraphs.
        strength : int
            Of its own.

        Raises
        ------
        ValueError
            Sometimes.
        """


def test_what_a_fit_does_not_say_is_added_in_the_order_of_its_signature():
    whole = FunctionDoc(Some.fit, doc=whole_docstring(Some.fit))
    assert [each.name for each in whole["Parameters"]] == ["interactions", "key", "strength", "ledger"]
    assert whole["Parameters"][0].desc == ["Of what there is,", "", "in two paragraphs."]
    assert whole["Parameters"][1].desc[0].startswith("Source of every draw")
    assert [(each.type, each.desc) for each in whole["Returns"]] == [("Some", ["This model, fitted."])]
    assert [each.type for each in whole["Raises"]] == ["ValueError"]
    assert whole["Summary"] == ["Fit some."]


def test_every_fit_tells_of_each_of_its_parameters():
    assert len(FITS) >= 11
    for fit in FITS:
        whole = FunctionDoc(fit)
        assert [each.name for each in whole["Parameters"]] == list(inspect.signature(fit).parameters)[1:]
        assert [each.type for each in whole["Returns"]] == [fit.__qualname__.split(".")[0]]


def test_a_fit_s_own_words_stay():
    of = {fit.__qualname__: inspect.getdoc(fit) for fit in FITS}
    assert "Source of the public signs and of every report" in of["ShuffledSketchGram.fit"]
    assert "Source of every draw" not in of["ShuffledSketchGram.fit"]
    assert "Source of every draw" in of["LaplaceRRSVD.fit"]


def test_without_docstrings_there_is_nothing_to_add_to():
    assert whole_docstring(lambda self, key: None) is None
