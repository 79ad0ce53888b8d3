"""Empty figures of matplotlib, and the error without it."""

import sys

import pytest

from fastfedrec.core.figures import new_figure


def test_a_figure_is_empty_and_separate_from_pyplot():
    pytest.importorskip("matplotlib")
    figure = new_figure(figsize=(2, 3))
    assert figure.axes == []
    assert figure.get_size_inches().tolist() == [2, 3]
    assert new_figure() is not figure


def test_a_missing_package_names_the_plot_and_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"^--out plot\.png needs matplotlib; pip install 'fastfedrec\[plot\]'$"):
        new_figure("--out plot.png")
