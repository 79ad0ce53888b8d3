"""Systems and baselines by their names on the command line; a class is imported at its first use."""

from typing import Any

from fastfedrec.core import names
from fastfedrec.core.text import did_you_mean

__all__ = ["SYSTEMS", "make_system", "system_class"]

#: Name on the command line to the name of the class in `fastfedrec`.
SYSTEMS: dict[str, str] = {name: place.rpartition(".")[2] for name, place in names.SYSTEMS.items()}


def system_class(name: str) -> Any:
    """Return the class of a system by either name, ignoring case, hyphens and underscores; raise if it is unknown."""
    plain = str(name).lower().replace("-", "").replace("_", "")
    for known, home in SYSTEMS.items():
        if plain in (known.replace("-", ""), home.lower()):
            return names.find(home)
    meant = did_you_mean(name, SYSTEMS) or did_you_mean(name, SYSTEMS.values())
    if "," in str(name):
        meant = " (pass one name at a time, on the command line each after its own --system)"
    raise ValueError(f"unknown system {name!r}{meant}; there are {', '.join(SYSTEMS)}")


def make_system(name: str, parameters: dict[str, Any]) -> Any:
    """Return an unfitted system with these constructor arguments; raise for an unknown name or a refused value."""
    kind = system_class(name)
    known = kind._parameter_names()
    for parameter in parameters:
        if parameter not in known:
            valid = f"it has {', '.join(known)}" if known else "it has none"
            meant = did_you_mean(parameter, known)
            raise ValueError(f"{kind.__name__} has no parameter {parameter!r}{meant}; {valid}")
    return kind(**parameters)
