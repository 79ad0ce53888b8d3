"""Tests that the page's translations of other packages' programs give the same results, if those are installed."""

import doctest
import re
import warnings
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "how-to" / "coming-from-other-packages.md"


def sections():
    """The page's opening, and each section under its heading."""
    opening, *parts = re.split(r"^## (.+)\n", PAGE.read_text(), flags=re.MULTILINE)
    return opening, dict(zip(parts[::2], parts[1::2], strict=True))


def run_ours(text, names):
    """Return examples of a text; the page's doctest compares their output."""
    for example in doctest.DocTestParser().get_examples(text):
        exec(compile(example.source, "<page>", "single"), names)


def run_theirs(text, names):
    [program] = [block for block in re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL) if ">>>" not in block]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # theirs
        exec(program, names)


@pytest.mark.parametrize("heading", ["implicit", "Surprise", "LensKit"])
def test_both_programs_come_to_the_same(heading):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # theirs
        pytest.importorskip(heading.lower(), reason="it is compared with, and no dependency")
    opening, parts = sections()
    names = {"__name__": "page"}
    run_ours(opening, names)
    run_theirs(parts[heading], names)
    run_ours(parts[heading], names)
    # Each starts from random factors of its own; LensKit's NDCG has another discount.
    assert names["ours"] == pytest.approx(names["theirs"], abs=0.03)
    assert names["ours"] != names["theirs"]
