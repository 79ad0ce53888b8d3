"""The ledger of a saved model, without its people's rows."""

import os
from typing import Any, NamedTuple

from fastfedrec.accounting import Ledger
from fastfedrec.core.model_files import not_a_model, read_header

__all__ = ["SavedLedger", "read_ledger"]


class SavedLedger(NamedTuple):
    """What a file of a model says of its privacy.

    Parameters
    ----------
    ledger : Ledger
        What the fit cost; figures are computed anew from its events.
    about : str
        The model's class and parameters, as the file states them.
    """

    ledger: Ledger
    about: str


def read_ledger(path: str | os.PathLike[str]) -> SavedLedger:
    """Read a saved model's ledger, and nothing of the arrays that hold its people.

    Parameters
    ----------
    path : path-like
        As `save` wrote it.

    Returns
    -------
    SavedLedger
        The ledger, and what it is of.

    Raises
    ------
    ValueError
        Not a model of this package, or one whose ledger is none.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from fastfedrec import DPLCF, Interactions
    >>> from fastfedrec.systems.saved_ledger import read_ledger
    >>> path = pathlib.Path(tempfile.mkdtemp(), "model.npz")
    >>> DPLCF(epsilon=2.5).fit(Interactions.from_arrays([1, 1, 2], [10, 30, 10])).save(path)
    >>> found = read_ledger(path)
    >>> found.about, found.ledger.epsilon()
    ('DPLCF(epsilon=2.5, n_neighbors=50)', 5.0)
    """
    header = read_header(path)
    name, parameters, document = (_field(path, header, field) for field in ("class", "parameters", "ledger"))
    if type(name) is not str or type(parameters) is not dict:
        raise not_a_model(path, "class and parameters must be a string and a mapping")
    try:
        ledger = Ledger.from_dict(document, check_costs=False)
    except Exception as error:
        raise not_a_model(path, f"ledger: {error}") from error
    return SavedLedger(ledger, f"{name}({', '.join(f'{key}={value!r}' for key, value in parameters.items())})")


def _field(path: str | os.PathLike[str], header: dict[str, Any], name: str) -> Any:
    if name not in header:
        raise not_a_model(path, f"{name}: it is missing")
    return header[name]
