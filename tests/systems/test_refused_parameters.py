"""Parameters that no declaration refuses alone are refused by name: at once, by `set_params`, and by `fit`."""

import pytest
from support.data import rated
from support.models import CASES

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
