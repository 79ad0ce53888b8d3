"""Folders with state for noise: one process at a time, until it ends in any way."""

import os
import signal
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest
from support.patience import HANG

from fastfedrec import Interactions, PrivRec
from fastfedrec.core.folder_lock import FolderInUseError, FolderLock
from fastfedrec.engines.deployment.node_memory import NodeMemory
from fastfedrec.engines.shuffling.shuffler import Shuffler

CASES = {
    "a checkpoint": """
        import numpy as np
        from fastfedrec import Interactions, PrivRec
        users, items = np.repeat(np.arange(12), 4), np.arange(48) % 7
        PrivRec(n_rounds=2, cohort_size=4, n_factors=16, hidden=(16,), local_epochs=1).fit(
            Interactions.from_arrays(users, items), checkpoint=folder, callback=lambda model, number: stay()
        )
    """,
    "a shuffler": """
        from fastfedrec.engines.shuffling.shuffler import Shuffler
        shuffler = Shuffler(2, 1, 10, folder)
        stay()
    """,
    "a node": """
        from fastfedrec.engines.deployment.node_memory import NodeMemory
        with NodeMemory(folder, 1).lock():
            stay()
    """,
}
HEAD = """
    import sys
    folder = sys.argv[1]
    def stay():
        print("here", flush=True)
        sys.stdin.read()
"""


def come_too(case, folder, data):
    if case == "a checkpoint":
        PrivRec(n_rounds=2, cohort_size=4, n_factors=16, hidden=(16,), local_epochs=1).fit(data, checkpoint=folder)
    elif case == "a shuffler":
        Shuffler(2, 1, 10, folder).close()
    else:
        FolderLock(folder).close()


@pytest.fixture
def data():
    return Interactions.from_arrays(np.repeat(np.arange(12), 4), np.arange(48) % 7)


@pytest.fixture
def other_process():
    """Another process that stays where it is."""
    made = []

    def start(case, folder):
        program = textwrap.dedent(HEAD) + textwrap.dedent(CASES[case])
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        made.append(subprocess.Popen([sys.executable, "-P", "-c", program, str(folder)], **pipes))
        # The child prints this line once it holds the lock, so the test does not depend on its speed.
        assert made[0].stdout.readline() == b"here\n"
        return made[0]

    yield start
    for process in made:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("case", CASES)
def test_a_second_process_is_sent_away_until_the_first_is_killed(tmp_path, data, other_process, case):
    first = other_process(case, tmp_path / "run")
    before = sorted((path.name, path.read_bytes()) for path in (tmp_path / "run").iterdir())
    with pytest.raises(FolderInUseError, match=rf"run' is in use by process {first.pid} on .*pass another folder"):
        come_too(case, tmp_path / "run", data)
    assert sorted((path.name, path.read_bytes()) for path in (tmp_path / "run").iterdir()) == before
    # A killed process runs no code of its own, and the system releases its lock.
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    come_too(case, tmp_path / "run", data)
    come_too(case, tmp_path / "run", data)  # who has ended has let go


def test_a_second_run_of_the_same_process_is_sent_away_too(tmp_path):
    with FolderLock(tmp_path), pytest.raises(FolderInUseError, match=f"process {os.getpid()} on"):
        FolderLock(tmp_path)
    FolderLock(tmp_path).close()


def test_a_node_waits_for_its_other_message(tmp_path):
    memory, came = NodeMemory(tmp_path, 1), threading.Event()

    def second():
        with memory.lock():
            came.set()

    with memory.lock():
        waiting = threading.Thread(target=second)
        waiting.start()
        # The second thread waits as long as the first one holds the lock.
        assert not came.wait(0.3)
    waiting.join(HANG)
    assert came.is_set()


def test_a_forked_child_does_not_keep_the_folder(tmp_path):
    lock, here, end = FolderLock(tmp_path), os.pipe(), os.pipe()
    # The child inherits the descriptor of the lock, and stays alive until the test writes to `end`.
    if not (child := os.fork()):
        os.write(here[1], b"x")
        os.read(end[0], 1)
        os._exit(0)
    try:
        os.read(here[0], 1)
        with pytest.raises(FolderInUseError):  # the control: the parent has it
            FolderLock(tmp_path)
        lock.close()
        with FolderLock(tmp_path):
            assert f"{os.getpid()} on " in (tmp_path / "lock").read_text()
    finally:
        os.write(end[1], b"x")
        os.waitpid(child, 0)
        for descriptor in (*here, *end):
            os.close(descriptor)


def test_a_child_does_not_let_others_in(tmp_path):
    with FolderLock(tmp_path):
        if not (child := os.fork()):
            os._exit(0)
        os.waitpid(child, 0)
        with pytest.raises(FolderInUseError):
            FolderLock(tmp_path)


def test_a_link_in_the_place_of_the_lock_is_not_followed(tmp_path):
    # A lock file that is a link could make the lock write its text to another user's file.
    (tmp_path / "theirs").write_text("precious")
    (tmp_path / "run").mkdir()
    (tmp_path / "run/lock").symlink_to(tmp_path / "theirs")
    with pytest.raises(OSError, match="lock"):
        FolderLock(tmp_path / "run")
    assert (tmp_path / "theirs").read_text() == "precious"


def test_a_folder_is_its_owners_alone(tmp_path):
    FolderLock(tmp_path / "a/run").close()
    assert (tmp_path / "a/run").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "a/run/lock").stat().st_mode & 0o777 == 0o600


def test_a_lock_that_nobody_has_any_more_is_none(tmp_path):
    first = Shuffler(2, 1, 10, tmp_path)
    with pytest.raises(FolderInUseError):
        Shuffler(2, 1, 10, tmp_path)
    del first
    assert Shuffler(2, 1, 10, tmp_path).n_reports == 1
