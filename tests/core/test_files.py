"""Files that replace others: whole or not at all, where they were meant to be, with the mode that is right."""

import os
import stat
from pathlib import Path

import pytest

from fastfedrec import Interactions, Popularity, PrivRec, load
from fastfedrec.core.files import check_folder, check_path, new_file, write_text
from fastfedrec.data.store import open_interactions, store_interactions
from fastfedrec.engines.shuffling.shuffler import Shuffler


def _mode(path):
    return stat.S_IMODE(os.stat(path).st_mode)


def test_a_file_has_what_was_written_and_nothing_is_left_beside_it(tmp_path):
    path = tmp_path / "model.npz"
    with new_file(path) as file:
        file.write(b"one")
        assert not path.exists()
    write_text(path, "zwölf")
    assert path.read_text(encoding="utf-8") == "zwölf"
    assert os.listdir(tmp_path) == ["model.npz"]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_what_fails_leaves_what_was_there(tmp_path, error):
    path = tmp_path / "model.npz"
    path.write_bytes(b"before")

    def stopped_half_way():
        with new_file(path) as file:
            file.write(b"half")
            raise error

    with pytest.raises(type(error)):
        stopped_half_way()
    assert path.read_bytes() == b"before"
    assert os.listdir(tmp_path) == ["model.npz"]


def test_a_full_disk_leaves_nothing_behind(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_text(tmp_path / "model.npz", "text")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644])
def test_the_mode_of_a_replaced_file_is_kept(tmp_path, mode):
    path = tmp_path / "model.npz"
    path.write_bytes(b"before")
    path.chmod(mode)
    write_text(path, "after")
    assert _mode(path) == mode
    write_text(path, "after", private=True)
    assert _mode(path) == 0o600


def test_a_new_file_has_the_mode_of_new_files(tmp_path):
    write_text(tmp_path / "ours", "text")
    (tmp_path / "theirs").write_text("text")
    assert _mode(tmp_path / "ours") == _mode(tmp_path / "theirs")
    write_text(tmp_path / "private", "text", private=True)
    assert _mode(tmp_path / "private") == 0o600


def test_a_link_that_was_planted_beside_the_path_is_not_followed(tmp_path):
    # A name that could be guessed would be written through.
    target = tmp_path / "target"
    target.write_text("theirs")
    (tmp_path / "model.npz.partial").symlink_to(target)
    write_text(tmp_path / "model.npz", "ours")
    assert target.read_text() == "theirs"


def test_what_is_no_ordinary_file_is_neither_followed_nor_replaced(tmp_path):
    (tmp_path / "kept").write_text("theirs")
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    (tmp_path / "dangling").symlink_to(tmp_path / "absent")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    kinds = {"link": "a link", "dangling": "a link", "folder": "a folder", "pipe": "no ordinary file"}
    for name, what in (kinds | {"/dev/null": "no ordinary file"}).items():
        with pytest.raises(ValueError, match=f"{name}' is {what}, which is not replaced"):
            write_text(tmp_path / name, "ours")
    assert (tmp_path / "kept").read_text() == "theirs"
    assert sorted(os.listdir(tmp_path)) == ["dangling", "folder", "kept", "link", "pipe"]
    assert (tmp_path / "link").is_symlink()
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_a_folder_that_is_not_there_is_named_and_not_what_stands_for_the_file_in_it(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"path '.*/nowhere/model.npz' must be a file in an existing folder"):
        write_text(tmp_path / "nowhere" / "model.npz", "text")


DATA = Interactions.from_arrays(["ann", "bob"], [1, 2])
#: Everything that is given a path: the argument's name, and a call.
FUNCTIONS = {
    "save": ("path", lambda path: Popularity().fit(DATA).save(path)),
    "load": ("path", load),
    "store_interactions": ("folder", lambda path: store_interactions(DATA, path)),
    "open_interactions": ("folder", open_interactions),
    "checkpoint": ("checkpoint", lambda path: PrivRec(n_rounds=1).fit(DATA, checkpoint=path)),
    "Shuffler": ("folder", lambda path: Shuffler(min_crowd=2, n_reports=1, n_coordinates=10, folder=path)),
}


@pytest.mark.parametrize("wrong", [0, 5, 1.5, b"a\0b", "a\0b", "", ["x"], ...], ids=repr)
@pytest.mark.parametrize("function_name", FUNCTIONS)
def test_what_is_no_path_is_refused_by_name(function_name, wrong):
    name, function = FUNCTIONS[function_name]
    with pytest.raises((TypeError, ValueError), match=rf"^{name} must be (a path|the path of a file)"):
        function(wrong)


def test_a_folder_is_looked_at_without_being_made(tmp_path, monkeypatch):
    check_folder("out", tmp_path / "new" / "er")
    monkeypatch.chdir(tmp_path)
    check_folder("out", Path("relative"))
    check_folder("out", tmp_path)
    (tmp_path / "file").write_text("")
    (tmp_path / "nowhere").symlink_to("gone")
    for folder, reason in (
        (tmp_path / "file", "must be a folder, and a file is there"),
        (tmp_path / "file" / "in it", "is in .*file, which must be a folder"),
        (tmp_path / "nowhere", "must be a folder"),
    ):
        with pytest.raises(ValueError, match=f"out .*{reason}"):
            check_folder("out", folder)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "nowhere"]


@pytest.mark.parametrize("kind", [str, Path, lambda path: str(path).encode(), lambda path: f"{path}/"])
def test_a_path_of_any_kind_is_the_same_path(tmp_path, kind):
    path = kind(tmp_path / "model")
    assert check_path("path", path) == tmp_path / "model"
    Popularity().fit(DATA).save(path)
    assert load(path).interactions_.user_ids.tolist() == ["ann", "bob"]
    store_interactions(DATA, kind(tmp_path / "store"))
    assert open_interactions(kind(tmp_path / "store")).user_ids.tolist() == ["ann", "bob"]


# ---- folders --------------------------------------------------------------------------------------------------------


def test_a_new_folder_is_its_owners_and_takes_nothing_of_others_away(tmp_path):
    """This includes files with the name of an unfinished folder."""
    theirs = tmp_path / "plays.partial"
    theirs.mkdir()
    (theirs / "precious").write_text("theirs")
    store_interactions(DATA, tmp_path / "plays")
    assert (theirs / "precious").read_text() == "theirs"
    assert _mode(tmp_path / "plays") == 0o700
    assert sorted(os.listdir(tmp_path)) == ["plays", "plays.partial"]


def test_a_link_in_the_place_of_a_folder_is_neither_followed_nor_replaced(tmp_path):
    (tmp_path / "plays").symlink_to(tmp_path / "nowhere")
    with pytest.raises(FileExistsError, match="must not exist; pass another"):
        store_interactions(DATA, tmp_path / "plays")
    assert os.listdir(tmp_path) == ["plays"]
    assert (tmp_path / "plays").is_symlink()


@pytest.mark.parametrize("at", ["write_document", "write_array"])
def test_a_folder_that_fails_leaves_nothing_behind(tmp_path, monkeypatch, at):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(f"fastfedrec.data.store.{at}", full)
    with pytest.raises(OSError, match="No space left"):
        store_interactions(DATA, tmp_path / "plays")
    assert os.listdir(tmp_path) == []
