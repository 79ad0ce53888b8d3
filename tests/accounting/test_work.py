"""Tests of the limit on work: a ledger from an untrusted source is read with bounded tables, whatever its numbers."""

import contextlib

import numpy as np
import pytest
import scipy.fft
from fuzz import CORPUS

from fastfedrec.accounting import Gaussian, Ledger, ShuffledReports, _work
from fastfedrec.accounting import ledger as ledger_module
from fastfedrec.accounting._splits import _part
from fastfedrec.accounting._work import WorkError, count_work, limit_work
from fastfedrec.accounting.shuffle import _clone_pmf, _zero_out_pmfs
from fastfedrec.accounting.views import _compose

SLOW = sorted((CORPUS / "ledgers").iterdir())
USUAL = {
    "shuffled": [ShuffledReports("binary response", 2.5, 100, 50_000 - 37 * i) for i in range(2)],
    "sketch": [ShuffledReports("binary response", 0.5, 8_000, 50_000 - 37 * i) for i in range(2)],
    "largest": [ShuffledReports("largest response", 2.5, 100, 50_000 - 37 * i, n_candidates=20) for i in range(2)],
    "sampled": [
        Gaussian(1 + i / 10, neighboring="add_remove", sampling="poisson", sampling_probability=0.01, count=1000)
        for i in range(2)
    ],
}  # fmt: skip


@pytest.fixture(autouse=True)
def no_figures():
    """No figure is known from earlier tests."""
    for cache in (_compose, _part, _clone_pmf, _zero_out_pmfs):
        cache.cache_clear()


@pytest.fixture
def sizes(monkeypatch):
    """Sizes of all transforms and convolutions that a test computes."""
    sizes = []

    def measured(function, product):
        def call(*arrays, **options):
            lengths = [len(array) for array in arrays if isinstance(array, np.ndarray)]
            sizes.append(product(lengths))
            return function(*arrays, **options)

        return call

    for name in ("rfft", "irfft"):
        monkeypatch.setattr(scipy.fft, name, measured(getattr(scipy.fft, name), sum))
    # A direct convolution multiplies each number with each other one; about a hundred take the time of one entry.
    monkeypatch.setattr(np, "convolve", measured(np.convolve, lambda lengths: lengths[0] * lengths[1] // 100))
    return sizes


@pytest.fixture
def small_limit(monkeypatch):
    """A limit for tests in little time; `tests/test_fuzz.py` reads the same files with the limit of the package."""
    monkeypatch.setattr(_work, "_MAX_WORK_PER_EVENT", 2**20)
    return 2**20


# ---- invariants -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", SLOW, ids=lambda path: path.name)
def test_a_slow_ledger_is_refused_before_its_tables_are_made(path, sizes, small_limit):
    text = path.read_text()
    with pytest.raises(ValueError, match=r"ledger\.events have figures that take too long .* pass check_costs=False"):
        Ledger.from_json(text)
    assert sum(sizes) < small_limit * (2 + text.count('"kind": "'))
    known = Ledger.from_dict(ledger_module.parse(text), check_costs=False)
    assert len(known.events) == text.count('"kind": "')


@pytest.mark.parametrize("events", USUAL.values(), ids=USUAL)
def test_usual_ledgers_are_read_and_checked(events):
    ledger = Ledger()
    ledger.events.update(dict.fromkeys(events, 20))
    text = ledger.to_json()
    _compose.cache_clear()
    _part.cache_clear()
    assert Ledger.from_json(text).to_json() == text


def test_figures_of_a_run_have_no_limit(monkeypatch):
    monkeypatch.setattr(_work, "_MAX_WORK_PER_EVENT", 1)
    ledger = Ledger()
    ledger.record(USUAL["shuffled"][0])
    text = ledger.to_json()
    assert "epsilon" in ledger.summary()
    _compose.cache_clear()
    _part.cache_clear()
    with pytest.raises(ValueError, match="too long to check"):
        Ledger.from_json(text)


def test_work_is_counted_until_the_block_ends(monkeypatch):
    monkeypatch.setattr(_work, "_MAX_WORK_PER_EVENT", 2)
    count_work(1e300)  # there is no limit
    with limit_work(3):  # 2 * (3 + 2)
        count_work(4)
        with limit_work(0), pytest.raises(WorkError):
            count_work(5)
        count_work(6)
        with pytest.raises(WorkError):
            count_work(float("inf"))
    count_work(1e300)


# ---- controls -------------------------------------------------------------------------------------------------------


def test_without_the_limit_the_same_ledger_makes_large_tables(monkeypatch, small_limit):
    text = (CORPUS / "ledgers" / "billion-reports").read_text()
    total, transform = [0], scipy.fft.rfft

    def add(array, *arguments):
        total[0] += len(array)
        assert total[0] < small_limit * (2 + text.count('"kind": "'))
        return transform(array, *arguments)

    monkeypatch.setattr(scipy.fft, "rfft", add)
    monkeypatch.setattr(ledger_module, "limit_work", lambda n_events: contextlib.nullcontext())
    with pytest.raises(AssertionError):
        Ledger.from_json(text)
