"""Tests of damaged, cut and foreign files of a run: each is named with the remedy, and kept."""

import json

import numpy as np
import pytest
from support.spoiled_files import SPOIL
from support.stored_run_case import fit, interrupted, log

from fastfedrec import Key
from fastfedrec.core.kept_files import DamagedFileError, read_document, write_document
from fastfedrec.core.model_files import read_model, write_model
from fastfedrec.data.digest import digests
from fastfedrec.engines.deployment.node_memory import NodeMemory
from fastfedrec.engines.shuffling.shuffler import Shuffler, ShufflerError
from fastfedrec.rounds.checkpoint import Checkpoint
from fastfedrec.rounds.system import Update

# ---- damaged files --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spoiled", SPOIL)
@pytest.mark.parametrize("name", ["key.json", "round-0-1", "ledger.json"])
def test_a_damaged_file_is_named_with_the_way_out_and_kept(tmp_path, monkeypatch, name, spoiled):
    interrupted(log(), tmp_path, monkeypatch)
    path = tmp_path / name
    path.write_bytes(SPOIL[spoiled](path.read_bytes()))
    before = path.read_bytes()
    with pytest.raises(DamagedFileError, match=rf"{name}' is damaged: .*; put the folder back .* or pass another one"):
        fit(log(), tmp_path)
    assert path.read_bytes() == before


def test_a_ledger_with_another_note_is_damaged(tmp_path, monkeypatch):
    interrupted(log(), tmp_path, monkeypatch)
    path = tmp_path / "ledger.json"
    document = json.loads(path.read_text())
    path.write_text(json.dumps(document | {"notes": ["Nobody took part."]}))
    with pytest.raises(DamagedFileError, match="its digest differs from that of its content"):
        fit(log(), tmp_path)


@pytest.mark.parametrize(
    ("field", "value", "complaint"),
    [
        ("format", "fastfedrec key 1", "this version reads 'fastfedrec key 3'"),
        ("seed", "1", "seed must be an integer"),
        ("seed", -1, "seed must be at least 0"),
        ("seed", None, "must have a seed or a secret"),
        ("secret", "00" * 32, "must have a seed or a secret"),
        ("run", None, "its run must be 32 hexadecimal digits"),
        ("run", "../" * 10 + "ab", "its run must be 32 hexadecimal digits"),
        ("bound_to", [], "bound_to must be an object of digests"),
        ("bound_to", {"rows": 1}, "bound_to must be an object of digests"),
        ("more", 1, "must have the fields"),
    ],
)
def test_each_field_of_a_key_is_looked_at(tmp_path, field, value, complaint):
    fit(log(), tmp_path, Key.from_seed(1))
    path = tmp_path / "key.json"
    write_document(path, read_document(path) | {field: value})
    with pytest.raises(DamagedFileError, match=complaint):
        fit(log(), tmp_path)


@pytest.mark.parametrize("secret", ["00" * 31, "zz" * 32, 7, ["00"] * 64])
def test_a_secret_is_64_hexadecimal_digits(tmp_path, secret):
    fit(log(), tmp_path)
    path = tmp_path / "key.json"
    write_document(path, read_document(path) | {"secret": secret})
    with pytest.raises(DamagedFileError, match=r"key.json' is damaged"):
        fit(log(), tmp_path)


@pytest.mark.parametrize(
    ("field", "value", "complaint"),
    [
        ("n_clients", "12", "n_clients must be an integer"),
        ("n_clients", -1, "n_clients must be at least 0"),
        ("n_clients", 13, "n_clients must be at most the users of nodes that answered"),
        ("answered", ["north"], "answered must only have members"),
        ("answered", 3, "not iterable"),
        ("traffic", [1, 2], "not enough values"),
        ("traffic", [1, 2, -3], "traffic must be at least 0"),
        ("rejections", [[0, 1, "late"]], "names and reasons must be text"),
        ("rejections", [[0, "north"]], "not enough values"),
        ("more", None, "its header must have the fields"),
    ],
)
def test_each_field_of_a_header_is_looked_at(tmp_path, monkeypatch, field, value, complaint):
    interrupted(log(), tmp_path, monkeypatch)
    header, arrays = read_model(tmp_path / "round-0-1")
    write_model(tmp_path / "round-0-1", header | {field: value}, arrays)
    with pytest.raises(DamagedFileError, match=f"round-0-1' is damaged: .*{complaint}"):
        fit(log(), tmp_path)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda arrays: {}, "must have the fields"),
        (lambda arrays: {"total": arrays["total"][:-1]}, "'total' must have shape"),
        (lambda arrays: {"total": arrays["total"] * 1.0}, "'total' must have dtype int64"),
        (lambda arrays: {"total": arrays["total"] + 2**60}, "'total' must be at most"),
    ],
)
def test_arrays_are_looked_at_as_a_server_looks_at_a_strangers(tmp_path, monkeypatch, change, complaint):
    interrupted(log(), tmp_path, monkeypatch)
    header, arrays = read_model(tmp_path / "round-0-1")
    write_model(tmp_path / "round-0-1", header, change(arrays))
    with pytest.raises(DamagedFileError, match=f"round-0-1' is damaged: .*{complaint}"):
        fit(log(), tmp_path)


def test_a_record_that_is_missing_before_others_is_named(tmp_path, monkeypatch):
    interrupted(log(), tmp_path, monkeypatch)
    (tmp_path / "round-0-0").unlink()
    with pytest.raises(DamagedFileError, match=r"round-0-1' is damaged: the earlier record round-0-0 .* is missing"):
        fit(log(), tmp_path)


def run_files(folder):
    """Each kind of file that a run finds again, and how it is read."""
    bound = digests({"x": 1})
    run, node = Checkpoint(folder / "run", bound), NodeMemory(folder / "node", 1).of_run("a" * 32, bound)
    run.new_key(None)
    run.keep_state({"round": 3}, {"parameters": np.arange(4.0)})
    node.key()
    node.keep_answer(Update(1, "north", 5, {"total": np.arange(3)}), 10, {"factors": np.ones(2)})
    (folder / "shuffler").mkdir()
    write_document(folder / "shuffler/released.json", {"a" * 32: 17, "b" * 32: 4})
    return {
        run.folder / "key.json": lambda: run.resolve_key(None),
        run.folder / "state": lambda: run.restore(("round",)),
        node.folder / "answer": lambda: node.answer(1, "north", 10, lambda update: None),
        folder / "shuffler/released.json": lambda: Shuffler(2, 1, 10, folder / "shuffler").close(),
    }


@pytest.mark.parametrize("at", range(4))
def test_a_file_that_was_cut_at_any_byte_is_damaged(tmp_path, at):
    path, read = list(run_files(tmp_path).items())[at]
    whole = path.read_bytes()
    read()
    # The reader must detect every truncation, from an empty file to one that lacks its last byte.
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(DamagedFileError, match=path.name):
            read()
    path.write_bytes(whole)
    read()


@pytest.mark.parametrize("name", ["run/key.json", "shuffler/released.json"])
def test_a_document_in_which_a_disk_has_changed_one_character_is_damaged(tmp_path, name):
    # Another digit of a secret is another key, and of a round's number a round that is released twice.
    read, path = run_files(tmp_path)[tmp_path / name], tmp_path / name
    whole = path.read_bytes()
    for position in range(len(whole)):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :])
        with pytest.raises(DamagedFileError, match=path.name):
            read()


def test_a_list_of_released_rounds_of_the_first_version_is_read(tmp_path):
    (tmp_path / "released.json").write_text(json.dumps({"a" * 32: 17}))  # without a checksum
    shuffler = Shuffler(2, 1, 10, tmp_path)
    with pytest.raises(ShufflerError, match="round 17 was released before"):
        shuffler.open("a" * 32, 17)
    shuffler.close()


@pytest.mark.parametrize("at", range(4))
def test_a_link_or_a_folder_in_the_place_of_a_file_is_not_taken_for_a_new_run(tmp_path, at):
    path, read = list(run_files(tmp_path).items())[at]
    path.unlink()
    path.mkdir()
    with pytest.raises((DamagedFileError, OSError)):
        read()
    path.rmdir()
    # A broken link may point to a disk that is not mounted.
    path.symlink_to(tmp_path / "nowhere")
    with pytest.raises((DamagedFileError, OSError, ValueError)):
        read()
