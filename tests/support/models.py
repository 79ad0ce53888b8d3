"""The cases of all systems and baselines, and their models by name."""

import inspect
import runpy
from pathlib import Path

SYSTEMS = Path(__file__).parents[1] / "systems"
#: Cases by the name of their class, found in `tests/systems/**/case.py`.
CASES = {
    case.kind.__name__: case for path in sorted(SYSTEMS.rglob("case.py")) for case in runpy.run_path(str(path))["CASES"]
}


def gather(*fields):
    """Return the entries of all cases in some fields, by the name of the class and the entry's label."""
    gathered = {}
    for name, case in CASES.items():
        for label, entry in (pair for field in fields for pair in getattr(case, field).items()):
            full_name = f"{name}, {label}" if label else name
            assert full_name not in gathered, f"{full_name} needs another label in one of {fields}"
            gathered[full_name] = entry
    return gathered


#: The small models of every class.
MODELS = gather("small")
#: Those with secure aggregation, in addition.
SECURE = gather("secure")
#: Those that run on an engine, and of them those with rounds.
ON_ENGINES = {name: model for name, model in MODELS.items() if "engine" in inspect.signature(model.fit).parameters}
WITH_ROUNDS = {name: model for name, model in ON_ENGINES.items() if getattr(model, "n_rounds", 1) != 0}


def new(model, **parameters):
    """Return an unfitted model with the same parameters, except some others."""
    return type(model)(**(model.get_params() | parameters))


def case_of(model):
    """Return the case of a model's class."""
    return CASES[type(model).__name__]


def held(model):
    """Return the model with the released arrays; a recommender's is its chosen model."""
    return getattr(model, "model_", model)
