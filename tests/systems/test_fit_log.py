"""A fit logs each completed round and epoch, and no other progress."""

import logging
import re

import numpy as np
import pytest
from support.data import rated
from support.models import MODELS, new

from fastfedrec import BiasedMF, DPGram, ImplicitALS, Key
from fastfedrec.rounds import engine

LINE = re.compile(r"(\w+(?:, [a-z ]+)?): (round|epoch) (\d+) of (\d+) is done")
COSTS = re.compile(r"DPSubspace of 40 items: .*")  # the traffic that public sizes imply, logged before the first round


def lines_of(fit, caplog):
    """Return (class, unit, number, total) of each line that a fit logs; every line must have this form."""
    caplog.clear()
    with caplog.at_level(logging.INFO, logger="fastfedrec"):
        fit()
    assert {record.levelname for record in caplog.records} <= {"INFO"}
    lines = [text for record in caplog.records if not COSTS.fullmatch(text := record.getMessage())]
    matches = [LINE.fullmatch(text).groups() for text in lines]
    return [(who, unit, int(number), int(n)) for who, unit, number, n in matches]


@pytest.fixture(scope="module")
def data():
    return rated(60, 40, 1)


def check(model, lines):
    """Check that each run counts from 1 to its total; it ends early only if held-out ratings stop it."""
    begins = np.flatnonzero([number == 1 for *_, number, _ in lines])
    assert not lines or begins[0] == 0
    for run in np.split(np.array(lines, dtype=object).reshape(-1, 4), begins[1:]):
        assert [number for *_, number, _ in run] == list(range(1, len(run) + 1))
        assert all(len(run) == n or who == "fit_factors" for who, _, _, n in run)
    # A line names the model, its chosen model, or the class that trains for it; these are public classes.
    models = {type(one).__name__ for one in (model, getattr(model, "model_", model))}
    assert {who.split(", ")[0] for who, *_ in lines} <= models | {"fit_factors", "fit_nmf"}
    assert {unit for who, unit, *_ in lines if who.startswith("fit_")} <= {"epoch"}
    for name in ("n_rounds", "n_epochs"):
        n = model.get_params().get(name, 0)
        # With hidden items, no factors are trained.
        has_none = n == 0 or getattr(model, "hide_items", False)
        assert has_none or any(unit == name[2:-1] for _, unit, _, _ in lines)
        if name == "n_rounds" and n != "auto":
            # Rounds may continue the count of earlier ones, as in DPALS.
            assert n <= sum(unit == "round" for _, unit, _, _ in lines)


@pytest.mark.ignores_values
@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_every_round_and_epoch_of_every_model_is_a_line(model, data, caplog):
    fresh = new(model)
    check(fresh, lines_of(lambda: fresh.fit(data, key=Key.from_seed(1)), caplog))


def test_missing_log_lines_are_detected(data, caplog, monkeypatch):
    monkeypatch.setattr("fastfedrec.systems.baselines.implicit_als.log_done", lambda *arguments, **more: None)
    model = ImplicitALS(3, 2)
    lines = lines_of(lambda: model.fit(data.binarize(), key=Key.from_seed(1)), caplog)
    with pytest.raises(AssertionError):
        check(model, lines)


@pytest.mark.ignores_values
def test_a_line_with_another_class_is_detected(data, caplog, monkeypatch):
    log_done = engine.log_done
    monkeypatch.setattr(engine, "log_done", lambda _, *arguments, **more: log_done("ShareSum", *arguments, **more))
    model = DPGram()
    lines = lines_of(lambda: model.fit(data, key=Key.from_seed(1)), caplog)
    with pytest.raises(AssertionError):
        check(model, lines)


def test_a_training_that_stops_early_logs_its_last_epoch(data, caplog):
    model = BiasedMF()
    lines = lines_of(lambda: model.fit(data, key=Key.from_seed(1)), caplog)
    assert lines[0][:2] == ("BiasedMF", "round")
    assert {who for who, unit, _, _ in lines if unit == "epoch"} == {"fit_factors"}
