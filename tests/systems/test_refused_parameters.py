"""Wrong parameters are refused by name: at once, by `set_params`, and by `fit` if they were changed in place."""

import copy
import re

import pytest
from support.data import rated
from support.models import CASES, MODELS, gather, new

from fastfedrec import FMFLDP, PrivRec
from fastfedrec.core.parameters import declared_parameters

DATA = rated(30, 40, 1)
BAD = [
    pytest.param(case.kind, *row, error, id=f"{name} {row[0]}")
    for name, case in CASES.items()
    for error, rows in ((ValueError, case.bad_values), (TypeError, case.bad_types))
    for row in rows
]


def assign_and_fit(kind, parameters):
    model = kind()
    for name, value in parameters.items():
        setattr(model, model._attributes.get(name, name), value)
    model.fit(DATA)


@pytest.mark.parametrize(("kind", "parameters", "message", "error"), BAD)
def test_wrong_parameters_are_refused_by_name(kind, parameters, message, error):
    with pytest.raises(error, match=message):
        kind(**parameters)
    with pytest.raises(error, match=message):
        kind().set_params(**parameters)
    with pytest.raises(error, match=message):
        assign_and_fit(kind, parameters)


# ---- changes in place ------------------------------------------------------------------------------------------------


def accepted_changes(model, value):
    """Return the parameters that a fit does not refuse by name after an unchecked change to a value."""
    accepted = []
    for name, entry in declared_parameters(type(model)).items():
        changed = new(model)
        vars(changed)[entry.attribute] = value
        try:
            changed.fit(DATA)
            accepted.append(name)
        except Exception as error:
            is_refused = isinstance(error, TypeError | ValueError) and re.search(rf"\b{name}\b", str(error))
            accepted += [] if is_refused and not error.ledger.events else [name]
    return accepted


@pytest.mark.parametrize("name", MODELS)
def test_a_fit_refuses_every_parameter_that_was_changed_in_place(name):
    assert accepted_changes(MODELS[name], object()) == []


def test_a_fit_without_checks_is_detected(monkeypatch):
    model = FMFLDP(n_rounds=1, n_reports=1)
    monkeypatch.setattr(FMFLDP, "_unfitted", copy.copy)
    assert {"server_steps", "n_rounds"} <= set(accepted_changes(model, 0))


def with_mappings():
    """Yield models of the cases with a mapping among their parameters, and the name of the parameter."""
    for label, model in gather("central").items():
        for name, value in model.get_params().items():
            if isinstance(value, dict):
                yield pytest.param(model, name, id=f"{label}-{name}")


@pytest.mark.parametrize(
    ("model", "name"),
    [pytest.param(PrivRec({"user": ["age"]}), "features", id="PrivRec-features"), *with_mappings()],
)
def test_a_fit_refuses_a_mapping_that_was_changed_in_place(model, name):
    given = dict(model.get_params()[name])
    changed = new(model, **{name: given})
    getattr(changed, name)["unknown"] = 1
    with pytest.raises(ValueError, match=rf"^{name} .*'unknown'"):
        changed.fit(DATA)
    assert not hasattr(changed, "ledger_")
