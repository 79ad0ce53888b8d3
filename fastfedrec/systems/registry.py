"""Every system and baseline by the name that a command line gives it; a class is imported when it is asked for."""

from typing import Any

from fastfedrec.core import names
from fastfedrec.core.text import did_you_mean

__all__ = ["SYSTEMS", "make_system", "system_class"]

#: Name to class, as `fastfedrec` has it.
SYSTEMS: dict[str, str] = {name: place.rpartition(".")[2] for name, place in names.SYSTEMS.items()}


def system_class(name: str) -> Any:
    """The class of a system, by its name here or its own, in either case and with or without hyphens.

    Parameters
    ----------
    name : str
        As "dp-gram" or "DPGram".

    Returns
    -------
    type
        A `Recommender`.

    Raises
    ------
    ValueError
        There is none.
    """
    plain = str(name).lower().replace("-", "").replace("_", "")
    for known, home in SYSTEMS.items():
        if plain in (known.replace("-", ""), home.lower()):
            return names.find(home)
    meant = did_you_mean(name, [*SYSTEMS, *SYSTEMS.values()])
    raise ValueError(f"unknown system {name!r}{meant}; there are {', '.join(SYSTEMS)}")


def make_system(name: str, parameters: dict[str, Any]) -> Any:
    """A system with these parameters.

    Parameters
    ----------
    name : str
        As for `system_class`.
    parameters : dict
        Of its constructor; all others keep their defaults.

    Returns
    -------
    Recommender
        Not fitted.

    Raises
    ------
    ValueError
        A parameter that it does not have, or a value that it refuses.
    """
    kind = system_class(name)
    known = kind._parameter_names()
    for parameter in parameters:
        if parameter not in known:
            valid = f"it has {', '.join(known)}" if known else "it has none"
            meant = did_you_mean(parameter, known)
            raise ValueError(f"{kind.__name__} has no parameter {parameter!r}{meant}; {valid}")
    return kind(**parameters)
