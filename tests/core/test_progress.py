"""Progress bars appear on a terminal and in a notebook, and not in a log."""

import io
import os
import pty
import subprocess
import sys
import termios
import types

import pytest

from fastfedrec.core.progress import is_watched, progress_rounds

PROGRAM = """
from fastfedrec.core.progress import progress_rounds
assert list(progress_rounds(3, show={show}, description="rounds of a test")) == [0, 1, 2]
"""


def run(show, stderr):
    subprocess.run([sys.executable, "-P", "-c", PROGRAM.format(show=show)], stderr=stderr, check=True)


def on_terminal(show):
    ours, theirs = pty.openpty()
    # A pseudo-terminal has a width of 0 by default, in which no bar fits.
    termios.tcsetwinsize(theirs, (24, 100))
    run(show, theirs)
    os.close(theirs)
    shown = b""
    try:
        while part := os.read(ours, 4096):
            shown += part
    except OSError:  # the end, where the other side is closed
        pass
    os.close(ours)
    return shown


def test_a_terminal_shows_a_bar_when_asked():
    assert b"rounds of a test" in on_terminal(True)
    assert on_terminal(False) == b""


def test_a_log_has_none(tmp_path):
    with open(tmp_path / "log", "wb") as file:
        run(True, file)
    assert (tmp_path / "log").read_bytes() == b""


def test_a_notebook_shows_one(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert not is_watched()
    # Only the shell of a notebook has a kernel; IPython on a terminal has none.
    for shell, expected in ((None, False), (types.SimpleNamespace(), False), (types.SimpleNamespace(kernel=1), True)):
        ipython = types.SimpleNamespace(get_ipython=lambda shell=shell: shell)
        monkeypatch.setitem(sys.modules, "IPython", ipython)
        assert is_watched() == expected


@pytest.mark.parametrize("stream", [None, "closed"])
def test_without_standard_error_nothing_fails(monkeypatch, stream):
    if stream == "closed":
        stream = io.StringIO()
        stream.close()
    monkeypatch.setattr(sys, "stderr", stream)
    assert not is_watched()
    assert list(progress_rounds(2, show=False, description="")) == [0, 1]


def test_without_tqdm_the_message_says_what_to_do(monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    with pytest.raises(ImportError, match=r"show_progress=True needs tqdm: pip install 'fastfedrec\[cli\]'"):
        progress_rounds(2, show=True, description="")
