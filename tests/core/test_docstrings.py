"""Docstrings have equal texts for shared parameters, and each file contains only its own part."""

import inspect

import pytest
from numpydoc.docscrape import ClassDoc, FunctionDoc
from support.models import MODELS

from fastfedrec.accounting import events
from fastfedrec.core.docstrings import complete_docstring

FITS = {type(model).fit for model in MODELS.values()}
SHARED = "key : Key\n    Of what is drawn.\nledger : Ledger\n    Of what is spent.\nother : int\n    Nobody's."


def fit(self, interactions, key=None, strength=1, ledger=None):
    """Fit some.

    Parameters
    ----------
    interactions : array
        Of what there is,

        in two paragraphs.
    strength : int
        Of its own.

    See Also
    --------
    nothing : Else.
    """


# ---- oracle ----------------------------------------------------------------------------------------------------------


def test_what_is_not_said_is_added_in_the_order_of_the_signature():
    whole = FunctionDoc(fit, doc=complete_docstring(fit, SHARED, "str\n    What came out."))
    assert whole["Summary"] == ["Fit some."]
    said = {entry.name: entry.desc for entry in whole["Parameters"]}
    assert list(said) == ["interactions", "key", "strength", "ledger"]
    assert said["interactions"] == ["Of what there is,", "", "in two paragraphs."]
    assert said["key"] == ["Of what is drawn."]
    assert [(entry.type, entry.desc) for entry in whole["Returns"]] == [("str", ["What came out."])]
    assert len(whole["See Also"]) == 1
    assert not FunctionDoc(fit, doc=complete_docstring(fit, SHARED))["Returns"]


def test_without_docstrings_there_is_nothing_to_add_to():
    assert complete_docstring(lambda self, key: None, SHARED) is None


# ---- invariants ------------------------------------------------------------------------------------------------------


def test_every_fit_tells_of_each_of_its_parameters():
    assert len(FITS) >= 11
    for entry in FITS:
        whole = FunctionDoc(entry)
        assert [one.name for one in whole["Parameters"]] == list(inspect.signature(entry).parameters)[1:]
        owner = entry.__qualname__.rpartition(".")[0]  # a function that several classes share has none
        assert [one.type for one in whole["Returns"]] == [owner or "Recommender"]


def test_a_fit_s_own_words_stay():
    of = {entry.__qualname__: inspect.getdoc(entry) for entry in FITS}
    assert "Source of the public signs and of every report" in of["ShuffledSketchGram.fit"]
    assert "Source of every draw" not in of["ShuffledSketchGram.fit"]
    assert "Source of every draw" in of["LaplaceRRSVD.fit"]


@pytest.mark.parametrize("kind", [events.Gaussian, events.Laplace, events.CentralRelease, events.ZCDP])
def test_every_event_of_a_server_tells_of_each_of_its_parameters(kind):
    said = [name for one in ClassDoc(kind)["Parameters"] for name in one.name.split(", ")]
    assert said == list(inspect.signature(kind).parameters)
