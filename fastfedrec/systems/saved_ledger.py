"""The ledger of a saved model, read without the users' rows."""

import os
from typing import Any, NamedTuple

from fastfedrec.accounting import Ledger
from fastfedrec.core.model_files import not_a_model, read_header

__all__ = ["SavedLedger", "read_ledger"]


class SavedLedger(NamedTuple):
    """The privacy record in a model file.

    Parameters
    ----------
    ledger : Ledger
        Cost of the fit; epsilons are computed from its events, not read.
    about : str
        The model's class and parameters, from the file's header.
    """

    ledger: Ledger
    about: str


def read_ledger(path: str | os.PathLike[str]) -> SavedLedger:
    """Read a saved model's ledger, without the arrays that hold users' data.

    Parameters
    ----------
    path : path-like
        A file that `save` wrote.

    Returns
    -------
    SavedLedger
        The ledger and the model that it belongs to.

    Raises
    ------
    ValueError
        The file is no model of this package, or its ledger is not valid.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from fastfedrec import DPLCF, Interactions
    >>> from fastfedrec.systems.saved_ledger import read_ledger
    >>> path = pathlib.Path(tempfile.mkdtemp(), "model.npz")
    >>> DPLCF(epsilon=2.5).fit(Interactions.from_arrays([1, 1, 2], [10, 30, 10])).save(path)
    >>> saved = read_ledger(path)
    >>> saved.about, saved.ledger.epsilon()
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
    """Return a field of the header, or raise if it is missing."""
    if name not in header:
        raise not_a_model(path, f"{name}: it is missing")
    return header[name]
