"""Folders of interrupted runs: the key, the state, and the message of a round, as a server and as a node read them."""

import functools
import json
import tempfile
from pathlib import Path

import numpy as np
from support.adder import Adder
from support.hostile_files import json_changed

from fastfedrec import Key
from fastfedrec.accounting import RoundTraffic
from fastfedrec.core.kept_files import write_document
from fastfedrec.engines.deployment.node_memory import RefusalError, RunMemory
from fastfedrec.rounds.checkpoint import read_traffic
from fastfedrec.rounds.receiver import PartialRound, RoundReceiver
from fastfedrec.rounds.round_records import RoundRecords
from fastfedrec.rounds.system import ArrayRule, Update, find_violation
from fuzz.folders import files_of, folder_changed, packed, unpacked
from fuzz.target import Target, check_names

BOUND_TO = {"data": "0" * 32, "system": "f" * 32}
FIELDS = ("round", "traffic")
RULES = {"sum": ArrayRule(np.int64, (3,), low=-9, high=9)}
MESSAGE = Update(1, "a", 9, {"sum": np.arange(3)})


@functools.cache
def folders():
    """Return the files of a simulation, a private run, and a node, by name."""
    folders = []
    for key in (Key.from_seed(1), None):
        with tempfile.TemporaryDirectory() as folder:
            run = RoundRecords(folder, BOUND_TO)
            run.resolve_key(key)
            run.keep_state({"round": 1, "traffic": [10, 20, 3]}, {"factors": np.ones((2, 3))})
            run.keep(0, PartialRound(MESSAGE, (), frozenset({"a"})), RoundTraffic(1, 2, 3))
            memory = RunMemory(folder, BOUND_TO, "")
            memory.run = run.run
            memory.keep_answer(MESSAGE, 5, {"rows": np.zeros((2, 2), dtype=np.float32)})
            folders.append({path.name: path.read_bytes() for path in Path(folder).iterdir()})
    return folders


def seeds():
    """Return each folder as one input."""
    return list(map(packed, folders()))


def read(content, folder):
    """Resume a run from the folder, as a server and as a node."""
    run_folder = folder / "run"
    files_of(content, run_folder)
    run, memory = RoundRecords(run_folder, BOUND_TO), RunMemory(run_folder, BOUND_TO, "restore it")
    try:
        key = run.resolve_key(None)
        state = run.restore(FIELDS)
        with run.checking_state():
            traffic = None if state is None else read_traffic(state[0]["traffic"])
        recorded = run.recall(0, RoundReceiver(Adder(), np.zeros(3), 1, {"a": 9}))
        message = None if recorded is None else recorded[0].total
        answer = memory.answer(1, "a", 5, lambda update: find_violation(RULES, dict(update.arrays)))
        devices = memory.devices(dict)
    except ValueError as error:
        if not isinstance(error, RefusalError):
            check_names(error, str(run_folder))
        raise
    return key, traffic, message, answer, devices


def use(accepted):
    """Use the key, and check the messages again."""
    key, _, message, answer, _ = accepted
    assert key.permutation("fuzz.order", size=3, n_threads=1).max() == 2
    for update in (message, answer):
        assert update is None or find_violation(RULES, dict(update.arrays)) is None


def mutate(random, content):
    """Change files, or the fields of the key's document together with its checksum."""
    if random.random() < 0.7:
        return folder_changed(random, content)
    files = unpacked(content)
    document = json_changed(random, json.loads(files["key.json"]))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "key.json")
        write_document(path, {name: value for name, value in document.items() if name != "checksum"})
        return packed(files | {"key.json": path.read_bytes()})


TARGET = Target(read=read, use=use, errors=(ValueError,), seeds=seeds, mutate=mutate, max_bytes=2**14)
