"""Reader of any table with a row per interaction: CSV and its relatives, plain or packed, and Parquet."""

import os

from fastfedrec.core.arrays import Column
from fastfedrec.data.interactions import Interactions
from fastfedrec.datasets._parquet import read_parquet
from fastfedrec.datasets.columns import to_interactions
from fastfedrec.datasets.table_files import find_layout, read_text

__all__ = ["load_table"]


def load_table(
    path: str | os.PathLike[str],
    *,
    user: str | int | None = None,
    item: str | int | None = None,
    value: str | int | None = None,
    timestamp: str | int | None = None,
    separator: str | None = None,
    header: bool = True,
    quotes: bool = True,
    duplicates: str | None = None,
    item_ids: Column | None = None,
    user_ids: Column | None = None,
    unlisted: str = "error",
    timestamp_unit: str = "s",
    time_format: str | None = None,
    comment: str | None = None,
    missing_ids: str = "error",
) -> Interactions:
    r"""Read a CSV, TSV or Parquet file with one row per interaction.

    Text files are read block by block, by polars (``pip install 'fastfedrec[data]'``): in UTF-8, or all in Latin-1
    where that is not what they hold, or in UTF-16 or UTF-32 with its mark; packed by gzip or zstandard, whatever the
    name.  Lines end in line feeds, carriage returns or both.  Blank lines may be the last, and nowhere else.  A first
    line such as ``sep=;``, of spreadsheets, is no row.

    Parameters
    ----------
    path : str or path-like
        What is named ``.parquet`` or ``.pq`` or begins as such a file is read as Parquet, all else as text.
    user, item : str or int or None
        Column of the ids: its name in the header, or where there is none its place from 0.  Ids stay integers where
        every one in the column is written as one (as 7, not 007 or 7.0), and are strings otherwise.  Blanks around
        a field are no part of it, unless it stands in quotes.

        None takes the column that the header names as publishers do (``userId``, ``user_id:token``, ``movieId``,
        ``business_id``).  Where neither is given, so are `value` and `timestamp` that are not.  Which columns are taken
        is logged, at level INFO.
    value, timestamp : str or int or None
        Column of the ratings or counts, and of the time: whole numbers, which are taken as they are (most are seconds
        since 1970), or dates or dates and times of ISO 8601, in UTC where they name no zone.  An empty time becomes
        `fastfedrec.data.interactions.MISSING_TIMESTAMP`.  Times in another form, in a column that is known by its name
        alone, are not read, with a warning.
    separator : str or None
        What stands between two fields, such as ``"\t"`` or ``"::"``; None takes the first of tab, ``::``, comma,
        semicolon, bar and space that the first line holds.  Where it is a space, several blanks count as one.  Not for
        Parquet.
    header : bool
        Whether the first line names the columns.  Not for Parquet.
    quotes : bool
        Whether a field may stand in double quotes, and then hold separators, line ends, and quotes written twice; if
        not, quotes are a part of the text.  Not for Parquet.
    duplicates : {"sum", "mean", "first", "last", "earliest", "latest", "max", "error"} or None
        What becomes of a user-item pair that stands twice, as in `Interactions.from_arrays`.
    item_ids : array_like or None
        The whole catalogue, in this order, as in `Interactions.from_arrays`; None takes it from the data.
    user_ids : array_like or None
        All users, in this order, as in `Interactions.from_arrays`; None takes those of the data.
    unlisted : {"error", "drop"}
        What becomes of a row whose item or user is not listed.
    timestamp_unit : {"s", "ms", "us", "ns"}
        What dates and times become, since 1970.  One that has parts which the unit would cut is refused.
    time_format : str or None
        The form of times that are neither whole numbers nor ISO 8601: a format of `datetime.strptime`, such as
        ``"%d/%m/%Y %H:%M"``, or the unit of numbers that may have a fraction, such as ``"s"`` for 1714564800.25.
    comment : str or None
        The begin of lines that are comments, such as ``"#"``.  None skips lines above the first record that begin with
        ``#`` or ``%`` and a blank, as SNAP and KONECT write them.  Not for Parquet.
    missing_ids : {"error", "drop"}
        What becomes of a row without a user or an item.  A warning counts the rows that are dropped.

    Returns
    -------
    Interactions
        Every user and item that appears or is listed.

    Raises
    ------
    FileNotFoundError
        Nothing at `path`.
    KeyError
        A column that is not there; the columns that are get listed.
    ValueError
        A malformed file; the file, line, column and field are named.
    ImportError
        polars is not installed, or for ``.zst`` zstandard; the extra ``data`` has both.

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
    layout = find_layout(
        path, user, item, value, timestamp, separator, header, quotes, timestamp_unit, time_format, comment, missing_ids
    )  # fmt: skip
    columns = read_parquet(layout) if layout.is_parquet else read_text(layout)
    return to_interactions(
        columns["user"], columns["item"], columns.get("value"), columns.get("timestamp"), duplicates=duplicates,
        item_ids=item_ids, user_ids=user_ids, unlisted=unlisted,
    )  # fmt: skip
