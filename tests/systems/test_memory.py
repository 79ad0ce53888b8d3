"""The memory that every model declares, against the memory that its fit takes; and fits that are refused for it."""

import numpy as np
import pytest
from support.models import CASES, MODELS, new
from support.peak import measure_peaks, spread
from support.records import read, store

from fastfedrec import DPGram, Interactions, Key, PrivateRecommender, accounting
from fastfedrec.core import memory
from fastfedrec.core.memory import Array, Sizes, total_bytes

KEY = Key.from_seed(1)
#: Part of a peak by which the declared memory may differ, and bytes of objects that are no large arrays.
SHARE, SMALL = 0.25, 2 * 2**20


def differ(declared, measured):
    """Whether a declared figure is wrong."""
    return abs(declared - measured) > SHARE * measured + SMALL


def peaks_of(case, scale=1):
    """Return declared figures and measured peaks of a case, with all sizes of its shapes multiplied."""
    models, shapes = zip(*case.memory.values(), strict=True)
    shapes = [tuple(n * scale for n in shape) for shape in shapes]
    declared = [model.memory_needed(*shape) for model, shape in zip(models, shapes, strict=True)]
    return declared, measure_peaks(models, shapes)


# ---- oracle ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("name", CASES)
def test_a_fit_takes_the_memory_that_its_class_declares(name, scale):
    case = CASES[name]
    declared, measured = peaks_of(case, scale)
    for label, one, peak in zip(case.memory, declared, measured, strict=True):
        assert not differ(one, peak), f"{label}: declared {one / 1e6:.1f} MB, measured {peak / 1e6:.1f} MB"
    if scale == 1:
        # The control: without its largest array, a formula is wrong for at least one shape.
        arrays = [model.memory_needed(*shape, details=True).values() for model, shape in case.memory.values()]
        without = [sum(sorted(array.n_bytes for array in some)[:-1]) for some in arrays]
        assert any(map(differ, without, measured)) or max(measured) < SMALL


@pytest.mark.slow
def test_a_decision_on_two_threads_takes_the_memory_that_its_class_declares():
    shape = 6000, 1000, 180_000
    features = {"item": np.arange(1000), "label": [f"{i % 7}" for i in range(1000)]}
    model = DPGram(8.0, item_features=features)
    (peak,) = measure_peaks([model], [shape], n_threads=2)
    assert not differ(model.memory_needed(*shape, n_threads=2), peak)
    assert differ(model.memory_needed(*shape, n_threads=1), peak)  # the control


# ---- invariants -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_every_model_declares_its_memory_and_has_two_shapes_to_measure(name):
    case = CASES[name]
    assert case.small[""]._memory(Sizes(80, 50, 400)), f"{name} needs _memory(sizes), which lists the arrays of its fit"
    assert len(case.memory) >= 2, f"the case of {name} needs two labelled pairs of a model and a shape in `memory`"


@pytest.mark.parametrize("name", MODELS)
def test_memory_is_whole_arrays_and_grows_with_each_size(name):
    model, shape = MODELS[name], (400, 60, 2400)
    arrays = model.memory_needed(*shape, details=True)
    assert all(isinstance(array, Array) for array in arrays.values())
    assert model.memory_needed(*shape) == total_bytes(arrays)
    for users, items, rows in ((10, 1, 10), (1, 10, 1), (1, 1, 10)):
        larger = shape[0] * users, shape[1] * items, shape[2] * rows
        assert model.memory_needed(*larger) >= model.memory_needed(*shape)


@pytest.mark.parametrize("name", [name for name in MODELS if not isinstance(MODELS[name], PrivateRecommender)])
def test_users_on_nodes_have_a_declaration_too(name):
    """The check of a fit as a server counts no users, whatever cohort a model states."""
    model = MODELS[name]
    parameters = {"cohort_size": 50} if isinstance(model.get_params().get("cohort_size"), int) else {}
    steps = new(model, **parameters)._memory(Sizes(0, 60, 0))
    assert steps
    assert all(size >= 0 for arrays in steps for array in arrays.values() for size in array.shape)


def test_more_threads_need_more_memory():
    model = CASES["DPFMF"].small[""]
    assert model.memory_needed(80, 500, 400, n_threads=4) > model.memory_needed(80, 500, 400)


@pytest.mark.parametrize("name", MODELS)
def test_a_fit_that_exceeds_the_machine_is_refused_before_any_release(name, monkeypatch):
    model = new(MODELS[name])
    data = spread(80, 50, 400, with_values=hasattr(model, "predict"))
    monkeypatch.setattr(memory, "memory_bytes", lambda: 7)
    ledger, key = accounting.Ledger(), Key.from_entropy()
    with pytest.raises(ValueError, match=r"interactions must have fewer items: \w+ of 50 items needs .* 7 bytes"):
        model.fit(data, key=key, ledger=ledger)
    assert not ledger.events
    key.claim("another fit")  # the refused one has not used it


def test_the_largest_catalogue_that_fits_is_named(monkeypatch):
    model = CASES["EASE"].small[""]
    limit = model.memory_needed(20, 123, 60)
    monkeypatch.setattr(memory, "memory_bytes", lambda: limit)
    with pytest.raises(ValueError, match="the largest catalogue that fits has 123 items; fit only the most used items"):
        model.fit(spread(20, 400, 60, with_values=False))
    assert model.fit(spread(20, 123, 60, with_values=False)).interactions_.n_items == 123


def test_where_no_catalogue_fits_fewer_users_are_advised(monkeypatch):
    monkeypatch.setattr(memory, "memory_bytes", lambda: 8 * 40**2)
    with pytest.raises(ValueError, match=r"UserKNN of 30 items needs .*; no catalogue fits, so fit fewer users; "):
        CASES["UserKNN"].small[""].fit(spread(40, 30, 120, with_values=False))


def test_a_private_fit_is_refused_by_public_sizes_alone(monkeypatch):
    model, said = new(CASES["FedRec"].small[""], clip_norm=1.0, noise_multiplier=1.0, divisor=9.0), []
    monkeypatch.setattr(memory, "memory_bytes", lambda: 7)
    for n_interactions in (80, 2400):
        with pytest.raises(ValueError, match="fewer items") as caught:
            model.fit(spread(80, 50, n_interactions, with_values=True))
        said.append(str(caught.value))
    assert said[0] == said[1]


# ---- bad inputs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["n_users", "n_items", "n_interactions", "n_threads"])
def test_sizes_that_cannot_be_are_refused(name):
    sizes = {"n_users": 10, "n_items": 10, "n_interactions": 10}
    with pytest.raises(ValueError, match=f"{name} must be at least"):
        CASES["EASE"].small[""].memory_needed(**sizes | {name: -1})


def test_a_class_without_a_declaration_is_fitted_and_names_the_method(monkeypatch):
    model = CASES["Popularity"].small[""]
    monkeypatch.setattr(type(model), "_memory", lambda self, sizes: ())
    with pytest.raises(TypeError, match=r"Popularity does not declare its memory; define _memory\(sizes\)"):
        model.memory_needed(1, 1, 1)
    assert model.fit(Interactions.from_arrays([1, 2], [1, 1])).item_counts_.tolist() == [2.0]


# ---- the record of the page -----------------------------------------------------------------------------------------


def test_the_record_of_the_page_has_every_case_within_the_bound():
    rows = read("memory")["rows"]
    stated = [(row["model"], tuple(row["shape"]), row["declared"]) for row in rows]
    expected = [
        (name, shape, model.memory_needed(*shape))
        for name, case in CASES.items()
        for model, shape in case.memory.values()
    ]
    assert stated == expected, "run PYTHONPATH=tests python -P tests/systems/test_memory.py"
    assert [row for row in rows if differ(row["declared"], row["measured"])] == []


def record():
    """Measure all shapes, and write the record of docs/explanation/hardening.md."""
    rows = []
    for name, case in CASES.items():
        for (_, shape), declared, measured in zip(case.memory.values(), *peaks_of(case), strict=True):
            rows.append({"model": name, "shape": shape, "declared": declared, "measured": measured})
            print(rows[-1], flush=True)
    store("memory", rows=rows)


if __name__ == "__main__":
    record()
