"""Loader of the Frappe log of app usage, with one row per use and its context."""

import os
from pathlib import PurePosixPath

import numpy as np

from fastfedrec.core.arrays import Column
from fastfedrec.core.files import check_path
from fastfedrec.data.ids import Coded, find_rows
from fastfedrec.data.interactions import Interactions
from fastfedrec.data.log import InteractionLog
from fastfedrec.datasets._fields import Field, Kind
from fastfedrec.datasets.columns import ColumnReader
from fastfedrec.datasets.files import Files, refuse

__all__ = ["load_frappe"]

_NAME = "frappe.csv"
_CONTEXTS = ("daytime", "weekday", "isweekend", "homework", "weather", "country", "city")
_WORD = "a word"  # description of a text field in error messages
_FIELDS = tuple(
    Field(name, Kind.ID, "a whole number", low=0) if name in ("user", "item") else Field(name, Kind.TEXT, _WORD)
    for name in (
        "user", "item", "cnt", "daytime", "weekday", "isweekend", "homework", "cost", "weather", "country", "city"
    )
)  # fmt: skip


def load_frappe(
    path: str | os.PathLike[str],
    *,
    item_ids: Column | None = None,
    unlisted: str = "error",
) -> InteractionLog:
    """Load Frappe, a log of the use of mobile apps with seven columns of context.

    Every entry of the log counts as one use.  The column ``cnt``, a count of the uses of an app, is dropped, because it
    reveals the values that a model predicts.

    Parameters
    ----------
    path : str or path-like
        Path of ``frappe.csv`` (tab separated, 11 columns), or of a zip or folder with this file.
    item_ids : array_like or None
        Complete catalogue, see `Interactions.from_arrays`; None lists the apps of the log.
    unlisted : {"error", "drop"}
        Treatment of an entry with an app that is not in the catalogue.

    Returns
    -------
    InteractionLog
        Log with the `contexts` ``daytime``, ``weekday``, ``isweekend``, ``homework``, ``weather``, ``country`` and
        ``city``, all strings.  The items of `interactions` have the feature ``cost`` ("free" or "paid").

    Raises
    ------
    FileNotFoundError
        A missing path, or a path without ``frappe.csv``.
    ValueError
        A malformed file, or an app with two costs.  The message names the file, the line and the reason.

    References
    ----------
    .. [1] L. Baltrunas, K. Church, A. Karatzoglou, N. Oliver, "Frappe: understanding the usage and perception of mobile
       app recommendations in-the-wild", arXiv:1505.03014, 2015.

    Examples
    --------
    >>> from fastfedrec.datasets import load_frappe
    >>> log = load_frappe("frappe.csv")  # doctest: +SKIP
    >>> log.interactions  # doctest: +SKIP
    <Interactions: 957 users x 4,082 items, 18,842 interactions with values>
    >>> log.n_entries  # doctest: +SKIP
    96203
    """
    path = check_path("path", path)
    # A path of the file itself is read as a folder that holds it.
    files = Files(path.absolute().parent if path.name == _NAME and path.is_file() else path, _NAME)
    members = sorted(member for member in files.members if member.name == _NAME)
    if path.name == _NAME and path.is_file():
        members = [PurePosixPath(_NAME)]
    if len(members) != 1:
        raise FileNotFoundError(f"path {str(path)!r} must hold one {_NAME}, got {len(members)} of them; pass the file")
    member = members[0]
    name = files.name(member)
    reader = ColumnReader(_FIELDS, "\t")
    header = "\t".join(field.name for field in _FIELDS)
    with files.open(member) as stream:
        first = stream.readline().decode("utf-8-sig", errors="replace").rstrip("\r\n")
        if first != header:
            refuse(name, 1, f"expected the header {header!r}, got {first[:80]!r}; download the file again")
        reader.read(stream, name, first_line=2)
    columns = dict(zip((field.name for field in _FIELDS), reader.columns(), strict=True))
    users, items = (columns[role].astype(np.int64) for role in ("user", "item"))
    contexts = {context: _texts(columns[context]) for context in _CONTEXTS}
    log = InteractionLog.from_arrays(users, items, contexts, item_ids=item_ids, unlisted=unlisted)
    cost = _item_column(name, "cost", log.interactions, items, _texts(columns["cost"]))
    return log.with_features(item_features={"cost": cost})


def _texts(column: Coded) -> np.ndarray:
    return np.array(column.ids, dtype=np.str_)[column.numbers]


def _item_column(name: str, feature: str, data: Interactions, items: np.ndarray, texts: np.ndarray) -> np.ndarray:
    """Return one entry per item, from a log that repeats the entry with every use."""
    rows = find_rows("item", data.item_ids, items)
    entries = np.flatnonzero(rows >= 0)  # entries with a listed app
    rows = rows[entries]
    column = np.zeros(data.n_items, dtype=texts.dtype)  # the text is empty for an app without use
    column[rows] = texts[entries]
    if (conflicts := np.flatnonzero(column[rows] != texts[entries])).size:
        row = int(entries[conflicts[0]])
        text, other_text = str(texts[row]), str(column[rows[conflicts[0]]])
        # Line 1 is the header, so row 0 is in line 2.
        refuse(name, row + 2, f"item {items[row]} must have one {feature}, got {text!r} and {other_text!r}")
    return column
