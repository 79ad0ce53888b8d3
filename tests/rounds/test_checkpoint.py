"""Checkpoints of a run: bound to its data and parameters, private, complete, and named if damaged."""

import contextlib
import os
import shutil
import stat

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.stored_run_case import AGES, ENTROPY, FEATURES, GENRES, ITEMS, PRIVATE, SMALL, USERS, fit, interrupted, log

from fastfedrec import Interactions, Key, PrivRec, hardware
from fastfedrec.core.arithmetic import describe_arithmetic
from fastfedrec.core.kept_files import DamagedFileError
from fastfedrec.data.digest import data_parts, digests
from fastfedrec.engines.deployment.node_memory import NodeMemory
from fastfedrec.rounds import checkpoint
from fastfedrec.rounds.checkpoint import Checkpoint, OtherRunError
from fastfedrec.rounds.system import Update


def rated(**changes):
    data = Interactions.from_arrays(USERS, ITEMS, np.arange(48) % 5 + 1.0, np.arange(48))
    return data._replace(**{name: change(getattr(data, name)) for name, change in changes.items()})


def changed(array):
    """The same but for the last entry."""
    out = np.array(array)
    out[-1] = out[-2]
    return out


# ---- digests --------------------------------------------------------------------------------------------------------


scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(st.characters(codec="utf-8"))


arrays = st.builds(
    lambda n, kind, shape: np.arange(n).astype(kind).reshape(shape),
    st.just(4), st.sampled_from(["<i4", "<i8", ">i4", "<f4", "<U3"]), st.sampled_from([(4,), (2, 2), (4, 1)]),
)  # fmt: skip


values = st.recursive(
    scalars | arrays,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=2), inner, max_size=2),
    max_leaves=6,
)


def known_as(value):
    """Return the part of a value that a digest must distinguish."""
    if isinstance(value, np.ndarray):
        return "array", value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, dict):
        return "mapping", tuple((name, known_as(part)) for name, part in value.items())
    if isinstance(value, list):
        return "sequence", tuple(map(known_as, value))
    return "constant" if value is None or isinstance(value, bool) else type(value) is str, value


@given(values, values)
def test_digests_are_equal_where_values_are(a, b):
    assert (digests({"part": a}) == digests({"part": b})) == (known_as(a) == known_as(b))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (["ab", "c"], ["a", "bc"]),
        ([["a"], "b"], ["a", ["b"]]),
        (["a", "b"], {"a": "b"}),
        (None, "None"),
        (True, 1),
        ("1", 1),
        (0.5, 0.75),
        (np.array([1, 2]), [1, 2]),
        (np.array([0, 1], dtype=np.int32), np.array([2**32], dtype=np.int64)),
        (np.array(["a", 1], dtype=object), np.array(["a", "1"], dtype=object)),
        (np.array(["a", "b"]), np.array(["ab", ""])),
        (np.zeros((0, 3)), np.zeros((3, 0))),
    ],
)
def test_what_looks_alike_has_different_digests(a, b):
    assert digests({"x": a})["x"] != digests({"x": b})["x"]


def test_numbers_are_the_same_however_they_are_written():
    assert len({digests({"x": number})["x"] for number in (1, 1.0, np.int32(1), np.float64(1.0))}) == 1


def test_what_is_not_known_has_no_digest():
    with pytest.raises(TypeError, match=r"callback must hold .* got <object.*\(object\), which has no digest"):
        digests({"callback": object()})


@pytest.mark.parametrize(
    ("part", "other"),
    [
        ("values", rated(values=changed)),
        ("timestamps", rated(timestamps=changed)),
        ("rows", rated(indices=lambda columns: np.concatenate([columns[:-1], columns[-1:] + 1]))),
        ("users", rated(user_ids=lambda ids: ids[::-1])),
        ("users", rated(global_user_ids=lambda ids: ids + np.uint64(12))),
        ("catalogue", rated(item_ids=lambda ids: ids[::-1])),
        ("features of users", rated().with_features(user_features={"age": AGES})),
        ("features of items", rated().with_features(item_features={"genre": GENRES})),
    ],
)
def test_every_part_of_the_data_has_a_digest(part, other):
    here, there = digests(data_parts(rated())), digests(data_parts(other))
    assert [name for name in here if here[name] != there[name]] == [part]


# ---- a key and what its noise is for --------------------------------------------------------------------------------


OTHER_INPUTS = {
    "one entry's item": log(items=changed(ITEMS)),
    "one entry's context": log(hours=changed(np.arange(48) % 5)),
    "a feature of a user": log(ages=AGES[::-1]),
    "a feature of an item": log(genres=1 - GENRES),
    "the catalogue": log(items=ITEMS[::-1]),
}


@pytest.mark.parametrize("key", [ENTROPY, Key.from_seed(1)])
@pytest.mark.parametrize("lost", [(), ("round-0-1",), ("ledger.json",), ("round-0-0", "round-0-1")])
@pytest.mark.parametrize("other", OTHER_INPUTS)
def test_a_key_is_used_for_no_other_data_whatever_is_lost(tmp_path, key, lost, other):
    fit(log(), tmp_path, key)
    for name in lost:
        (tmp_path / name).unlink()
    original = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(ValueError, match="holds a run on other data or with other parameters"):
        fit(OTHER_INPUTS[other], tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == original


def test_a_folder_of_another_run_names_its_cost_or_that_no_round_has_begun(tmp_path):
    fit(log(), tmp_path)
    with pytest.raises(ValueError, match=r"its ledger\.json, counts for its users also without a model"):
        fit(OTHER_INPUTS["the catalogue"], tmp_path)
    for path in tmp_path.iterdir():
        if path.name not in ("key.json", "lock"):
            path.unlink()
    with pytest.raises(ValueError, match="no round of it has begun, so remove the folder"):
        fit(OTHER_INPUTS["the catalogue"], tmp_path)


def test_a_run_whose_last_record_is_gone_makes_the_same_noise_for_the_same_data_only(tmp_path):
    first = fit(log(), tmp_path)
    (tmp_path / "round-0-1").unlink()
    # The key is in its own file, so the rounds are repeated with the same noise on the same data.
    np.testing.assert_array_equal(fit(log(), tmp_path).parameters_, first.parameters_)


@pytest.mark.parametrize("name", ["n_rounds", "noise_multiplier", "clip_norm", "learning_rate", "batch_size"])
def test_a_key_is_used_with_no_other_parameters(tmp_path, name):
    fit(log(), tmp_path)
    (tmp_path / "round-0-1").unlink()
    with pytest.raises(ValueError, match=f"key.json was made with other settings|other .*parameter {name}"):
        fit(log(), tmp_path, **{name: 3})


def test_a_copied_folder_is_used_for_no_other_features(tmp_path):
    fit(log(), tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    with pytest.raises(ValueError, match=r"/b' holds a run .*\(key.json was made with other features of users\)"):
        fit(log(ages=AGES[::-1]), tmp_path / "b")
    fit(log(), tmp_path / "b")


def test_files_of_another_run_are_not_mixed_in(tmp_path):
    fit(log(), tmp_path / "a")
    fit(OTHER_INPUTS["one entry's item"], tmp_path / "b")
    for name in ("round-0-0", "round-0-1"):
        shutil.copytree(tmp_path / "a", tmp_path / name)
        shutil.copy(tmp_path / "b" / name, tmp_path / name / name)
        with pytest.raises(ValueError, match=rf"\({name} was made with other rows"):
            fit(log(), tmp_path / name)


def test_stage_one_is_bound_too(tmp_path):
    options = {"stage1": "dp", "stage1_options": {"n_rounds": 1, "cohort_size": 4, "length": 3}}
    fit(rated(), tmp_path, **options)
    for number in range(2):
        (tmp_path / f"round-1-{number}").unlink()
    with pytest.raises(ValueError, match="made with other timestamps"):
        fit(rated(timestamps=lambda times: times[::-1]), tmp_path, **options)
    # The round of stage 1 is left, and its noise must not be combined with a new key.
    (tmp_path / "key.json").unlink()
    (tmp_path / "ledger.json").unlink()
    with pytest.raises(DamagedFileError, match=r"round-0-0' is damaged: the key \(key.json\) of its run is missing"):
        fit(rated(), tmp_path, **options)


def test_other_peoples_public_sequences_are_bound_too(tmp_path):
    """The rounds start from their statistics, so with other data the same noise would hide other sums."""
    options = {"stage1": "public", "stage1_options": {"n_rounds": 1, "cohort_size": 4, "length": 3}}

    def fit_with(public):
        return PrivRec(**(PRIVATE | options)).fit(rated(), checkpoint=tmp_path, public=public)

    public = Interactions.from_arrays(USERS, (ITEMS + USERS) % 7, np.ones(48), np.arange(48))
    fit_with(public)
    (tmp_path / "round-0-1").unlink()
    with pytest.raises(ValueError, match=r"key.json was made with other public timestamps"):
        fit_with(public._replace(timestamps=public.timestamps[::-1].copy()))
    fit_with(public)


# ---- the arithmetic that sums are computed with ----------------------------------------------------------------------


def other_arithmetic(**changes):
    return lambda: describe_arithmetic() | changes


@pytest.mark.parametrize("name", describe_arithmetic())
@pytest.mark.parametrize("lost", [(), ("round-0-1",), ("round-0-0", "round-0-1", "ledger.json")])
def test_the_noise_of_a_run_is_added_to_no_sums_of_other_arithmetic(tmp_path, monkeypatch, name, lost):
    fit(log(), tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    for file in lost:
        (tmp_path / "b" / file).unlink()
    original = {path.name: path.read_bytes() for path in (tmp_path / "b").iterdir()}
    monkeypatch.setattr(checkpoint, "describe_arithmetic", other_arithmetic(**{name: "another"}))
    with pytest.raises(
        OtherRunError, match=rf"other arithmetic \(key.json: {name} .* and not 'another'\), so its noise"
    ):
        fit(log(), tmp_path / "b")
    assert {path.name: path.read_bytes() for path in (tmp_path / "b").iterdir()} == original


@pytest.mark.skipif(len(hardware.instruction_sets()) < 2, reason="the processor has one instruction set")
def test_a_copied_run_is_not_resumed_with_another_instruction_set(tmp_path, monkeypatch):
    """The program of the faults' page: second rounds differed by a step of the grid, under the same noise."""
    interrupted(log(), tmp_path / "a", monkeypatch)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    # The original run ends with the instruction set that it began with, and the copy must not use another one.
    here = fit(log(), tmp_path / "a")
    with (
        hardware.use_instruction_set("plain"),
        pytest.raises(OtherRunError, match=r"instruction set 'x86-64-v.' and not 'plain'"),
    ):
        fit(log(), tmp_path / "b")
    np.testing.assert_array_equal(fit(log(), tmp_path / "b").parameters_, here.parameters_)


@pytest.mark.skipif(len(hardware.instruction_sets()) < 2, reason="the processor has one instruction set")
def test_a_run_keeps_to_one_instruction_set(tmp_path):
    """Its files would name one that their sums were not computed with."""
    outside = contextlib.ExitStack()

    def change(model, number):
        outside.enter_context(hardware.use_instruction_set("plain"))

    with outside, pytest.raises(OtherRunError, match="round-0-1: instruction set 'plain'"):
        PrivRec(**PRIVATE).fit(rated(), checkpoint=tmp_path, callback=change)
    assert fit(rated(), tmp_path).ledger_.events  # which goes on where it was


def test_a_run_does_not_depend_on_threads(tmp_path, monkeypatch):
    interrupted(log(), tmp_path / "a", monkeypatch)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    # Two copies of an interrupted run are resumed with different numbers of threads.
    given = {"a": 1, "b": 4}
    runs = [PrivRec(FEATURES, **PRIVATE).fit(log(), checkpoint=tmp_path / n, n_threads=given[n]) for n in given]
    np.testing.assert_array_equal(runs[0].parameters_, runs[1].parameters_)


def test_a_node_answers_no_round_with_other_arithmetic(tmp_path, monkeypatch):
    update = Update(0, "node", 1, {"sums": np.zeros(3)})
    memory = NodeMemory(tmp_path, None).of_run("0" * 32, {"run": "1"})
    memory.key()
    memory.keep_answer(update, 1, {})
    monkeypatch.setattr(checkpoint, "describe_arithmetic", other_arithmetic(NumPy="1.0"))
    # A restart of the node after an update of NumPy reads files that name the old version.
    restarted = NodeMemory(tmp_path, None).of_run("0" * 32, {"run": "1"})
    with pytest.raises(OtherRunError, match=r"answer: NumPy .* and not '1.0'"):
        restarted.answer(0, "node", 1, lambda _: None)
    with pytest.raises(OtherRunError, match=r"key.json: NumPy .* and not '1.0'"):
        restarted.key()


@pytest.mark.parametrize("name", [*describe_arithmetic(), "key"])
def test_no_digest_has_the_name_of_a_part_of_the_arithmetic(tmp_path, name):
    """A Flower server binds its run to a digest that is called "system"."""
    with pytest.raises(ValueError, match=rf"`bound_to` must not use names .*, got \['{name}'\]"):
        Checkpoint(tmp_path, {name: "0"})
    Checkpoint(tmp_path, {"system": "0"}).new_key(Key.from_seed(1))


def test_files_of_two_runs_alike_but_for_their_names_are_not_mixed(tmp_path):
    """Data and parameters of the two runs are equal, and their keys differ."""
    for name in ("a", "b"):
        fit(log(), tmp_path / name)
    for name in ("round-0-0", "round-0-1"):
        shutil.copytree(tmp_path / "a", tmp_path / f"{name} of b")
        shutil.copy(tmp_path / "b" / name, tmp_path / f"{name} of b" / name)
        with pytest.raises(OtherRunError, match=rf"\({name} was made with other key\)"):
            fit(log(), tmp_path / f"{name} of b")


@pytest.mark.parametrize("remaining", ["round-0-0", "ledger.json"])
def test_a_run_without_its_key_does_not_go_on_with_another(tmp_path, remaining):
    fit(log(), tmp_path)
    for path in tmp_path.iterdir():
        if path.name != remaining:
            path.unlink()
    missing = rf"{remaining}' is damaged: the key .* pass another one"
    with pytest.raises((DamagedFileError, OtherRunError), match=missing):  # before there is another key
        fit(log(), tmp_path)
    assert set(os.listdir(tmp_path)) == {remaining, "lock"}


@pytest.mark.ignores_values
def test_a_key_goes_to_one_run(tmp_path):
    # A claimed key is refused before anything is written.
    used = Key.from_entropy()
    used.claim("another fit")
    with pytest.raises(ValueError, match="already used by another fit"):
        fit(log(), tmp_path / "a", used)
    assert not (tmp_path / "a" / "key.json").exists()
    key = Key.from_entropy()
    fit(log(), tmp_path / "b", key)
    with pytest.raises(ValueError, match="already used by the run in"):
        PrivRec(**SMALL).fit(rated(), key=key)
    # A key that the caller passes must not be ignored: the caller would believe that the noise came from it.
    for other in (Key.from_entropy(), Key.from_seed(1)):
        with pytest.raises(ValueError, match=r"key must be None: the run in .* has its own"):
            fit(log(), tmp_path / "b", other)


def test_files_are_their_owners_alone(tmp_path):
    tmp_path.chmod(0o755)
    fit(log(), tmp_path)
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}


@pytest.mark.parametrize("stops", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_key_is_whole_or_not_there(tmp_path, monkeypatch, stops):
    def stop(descriptor):
        raise stops

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", stop)
        with pytest.raises(type(stops)):
            fit(log(), tmp_path)
    # The key file was not complete, so it is absent and a new run may begin.
    assert os.listdir(tmp_path) == ["lock"]
    fit(log(), tmp_path)
