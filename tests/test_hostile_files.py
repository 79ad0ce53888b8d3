"""Tests of untrusted and damaged files: no crash, no hang, and memory in proportion to the file's size.

The readers and their files are targets of the fuzzer; these tests need no fuzzer and repeat the same changes.
"""

import json
import tracemalloc
from dataclasses import replace
from random import Random

import pytest
from fuzz.folders import packed
from fuzz.target import check
from fuzz.targets import ledgers, models, stores
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.hostile_files import bytes_changed, fields_changed, files_changed, json_changed

from fastfedrec import DPGram, Key
from fastfedrec.core.npz import largest_content
from fastfedrec.data.store import open_interactions

pytestmark = pytest.mark.ignores_values

QUICK = settings(suppress_health_check=list(HealthCheck))
SEEDS = st.integers(0, 2**64)  # seeds of changes: one number reproduces a failure


def train(data):
    """Use a store as the target does, and train a private model, which takes too long for the fuzzer."""
    stores.use(data)
    if data.n_interactions:
        DPGram(8.0).fit(stores.fitting(data), key=Key.from_seed(1))


TRAINED_STORE = replace(stores.TARGET, use=train)


@pytest.mark.slow
@pytest.mark.parametrize("changed", [bytes_changed, fields_changed])
@QUICK
@given(seed=SEEDS)
def test_files_that_were_changed(changed, seed, tmp_path_factory):
    random = Random(seed)
    content = changed(random, random.choice(models.contents()))
    tracemalloc.start()
    try:
        check(models.TARGET, content, tmp_path_factory.getbasetemp())
        assert tracemalloc.get_traced_memory()[1] < 2 * largest_content(len(content))
    finally:
        tracemalloc.stop()


@pytest.mark.slow
@QUICK
@given(seed=SEEDS)
def test_ledgers_that_were_changed(seed, tmp_path_factory):
    random = Random(seed)
    text = random.choice(ledgers.texts())
    if random.random() < 0.3:
        content = bytes_changed(random, text.encode())
    else:
        content = json.dumps(json_changed(random, json.loads(text))).encode()
    check(ledgers.TARGET, content, tmp_path_factory.getbasetemp())


@pytest.mark.slow
@QUICK
@given(seed=SEEDS)
def test_stores_that_were_changed(seed, tmp_path_factory):
    random = Random(seed)
    files = files_changed(random, random.choice(stores.stores()))
    check(TRAINED_STORE, packed(files), tmp_path_factory.getbasetemp())


def test_unchanged_files_are_read(tmp_path):
    """The controls: without a change everything is taken, and a change that is known is not."""
    for content in models.contents():
        assert check(models.TARGET, content, tmp_path)
    for text in ledgers.texts():
        assert check(ledgers.TARGET, text.encode(), tmp_path)
        negative = text.replace('"times": ', '"times": -').encode()
        assert check(ledgers.TARGET, negative, tmp_path) == ('"times"' not in text)
    for files in stores.stores():
        assert check(TRAINED_STORE, packed(files), tmp_path)
        wrong = files["indices.npy"][:-4] + b"\xff\xff\xff\x7f"
        assert not check(stores.TARGET, packed(files | {"indices.npy": wrong}), tmp_path)
        with pytest.raises(ValueError, match=r"indices\.npy must be in"):
            open_interactions(tmp_path / "store")
