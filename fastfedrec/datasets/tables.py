"""Reader of any table with a row per interaction: CSV and its relatives, plain or gzipped, and Parquet."""

import os
from collections.abc import Hashable, Sequence

import numpy as np

from fastfedrec.data.interactions import Interactions
from fastfedrec.datasets.columns import to_interactions
from fastfedrec.datasets.table_files import find_layout, read_parquet, read_text

__all__ = ["load_table"]


def load_table(
    path: str | os.PathLike,
    *,
    user: str | int,
    item: str | int,
    value: str | int | None = None,
    timestamp: str | int | None = None,
    separator: str = ",",
    header: bool = True,
    duplicates: str | None = None,
    item_ids: Sequence[Hashable] | np.ndarray | None = None,
    unlisted: str = "error",
) -> Interactions:
    r"""Read a CSV, TSV or Parquet file with one row per interaction.

    Text files are read block by block, in UTF-8, with or without gzip (``.gz``).  A field may stand in double quotes,
    and then hold separators, line ends, and quotes written twice.

    Parameters
    ----------
    path : str or path-like
        ``.parquet`` or ``.pq`` is read as Parquet, for which pyarrow or polars must be installed; all else as text.
    user, item : str or int
        Column of the ids: its name in the header, or where there is none its place from 0.  Ids stay integers where
        every one in the column is written as one (as 7, not 007 or 7.0), and are strings otherwise.
    value, timestamp : str or int or None
        Column of the ratings or counts, at least 0, and of the time: seconds since 1970 (any whole numbers will do), or
        dates or dates and times of ISO 8601, which become seconds, in UTC where they name no zone.  An empty time
        becomes `fastfedrec.data.interactions.MISSING_TIMESTAMP`.
    separator : str
        What stands between two fields, such as ``"\t"`` or ``"::"``.  Not for Parquet.
    header : bool
        Whether the first line names the columns.  Not for Parquet.
    duplicates : {"sum", "last", "max", "error"} or None
        What becomes of a user-item pair that stands twice, as in `Interactions.from_arrays`.
    item_ids : array_like or None
        The whole catalogue, in this order, as in `Interactions.from_arrays`; None takes it from the data.
    unlisted : {"error", "drop"}
        What becomes of a row whose item the catalogue does not list.

    Returns
    -------
    Interactions
        Every user that appears, and every item that appears or is listed.

    Raises
    ------
    FileNotFoundError
        Nothing at `path`.
    KeyError
        A column that is not there; the columns that are get listed.
    ValueError
        A malformed file; the file, line, column and field are named.
    ImportError
        A Parquet file, and nothing installed that can read it.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from fastfedrec.datasets import load_table
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "plays.csv")
    ...     _ = file.write_text("who,what,when\nann,7,2024-05-01\nbob,7,2024-05-02T10:00:00Z\nann,9,\n")
    ...     data = load_table(file, user="who", item="what", timestamp="when")
    >>> data
    <Interactions: 2 users x 2 items, 3 interactions>
    >>> data.user_ids.tolist(), data.item_ids.tolist()
    (['ann', 'bob'], [7, 9])
    """
    layout = find_layout(path, user, item, value, timestamp, separator, header)
    columns = read_parquet(layout) if layout.is_parquet else read_text(layout)
    return to_interactions(
        columns["user"], columns["item"], columns.get("value"), columns.get("timestamp"), duplicates=duplicates,
        item_ids=item_ids, unlisted=unlisted,
    )  # fmt: skip
