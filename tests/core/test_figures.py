"""Empty figures of matplotlib, and the error without it."""

import sys

import pytest

from fastfedrec.cli.main import main
from fastfedrec.core.figures import new_figure, save_figure


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


class Broken:
    """A figure that cannot be drawn to its end."""

    def savefig(self, file, **options):
        file.write(b"half")
        raise OSError("no space")


def test_a_plot_is_written_whole_or_not_at_all(tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "plot.png"
    path.write_bytes(b"old")
    with pytest.raises(OSError, match="no space"):
        save_figure(Broken(), path)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == {"plot.png": b"old"}
    save_figure(new_figure(), path)
    assert path.read_bytes().startswith(b"\x89PNG")
    # A link would let another user choose the file that is replaced.
    (tmp_path / "link.png").symlink_to(path)
    with pytest.raises(ValueError, match="a link, which is not replaced"):
        save_figure(new_figure(), tmp_path / "link.png")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("p.txt", "--plot p.txt must end in one of .png"),
        ("plot", "must end in"),
        ("no/p.png", "--plot 'no/p.png' must be a file in an existing folder"),
    ],
)
@pytest.mark.parametrize("command", ["account reports --users 100", "audit discrete-laplace"])
def test_a_plot_that_cannot_be_written_is_refused_first(command, path, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([*command.split(), "--plot", path]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.out == ""
    assert list(tmp_path.iterdir()) == []
