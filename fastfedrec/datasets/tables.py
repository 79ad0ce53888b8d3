"""Loader of tables with one row per interaction, in CSV and similar text formats or in Parquet."""

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
    r"""Load a CSV, TSV or Parquet file with one row per interaction.

    Text files are read in blocks by polars (``pip install 'fastfedrec[data]'``).  The encoding is UTF-8, otherwise
    Latin-1 for the whole file; UTF-16 and UTF-32 need a byte order mark.  Files may be compressed by gzip or zstandard
    under any name.  Lines end in line feeds, carriage returns or both.  Blank lines may only be at the end.  A first
    line such as ``sep=;``, which spreadsheets write, is skipped.

    Parameters
    ----------
    path : str or path-like
        Path of the file.  A file is Parquet if its name ends in ``.parquet`` or ``.pq``, or if it begins like a Parquet
        file; other files are text.
    user, item : str or int or None
        Columns of the ids: the name in the header, or without a header the position from 0.  Ids are integers if every
        id of the column is written as one (as 7, not 007 or 7.0), otherwise strings.  Blanks around a field are
        removed unless it is in quotes.

        None selects the column with a usual name (``userId``, ``user_id:token``, ``movieId``, ``business_id``).  If
        both are None, `value` and `timestamp` are selected in the same way unless they are given.  The selected
        columns are logged at level INFO.
    value, timestamp : str or int or None
        Columns of the ratings or counts, and of the times.  Times are whole numbers, which are read unchanged (most are
        seconds since 1970), or dates or dates and times of ISO 8601, in UTC unless they have a time zone.  An empty
        time becomes `fastfedrec.data.interactions.MISSING_TIMESTAMP`.  If the column was selected by its usual name,
        times in another form are skipped with a warning.
    separator : str or None
        Separator of two fields, such as ``"\t"`` or ``"::"``.  None selects the first of tab, ``::``, comma, semicolon,
        bar and space that occurs in the first line.  For a space, several blanks count as one.  Parquet ignores it.
    header : bool
        Whether the first line names the columns.  Parquet ignores it.
    quotes : bool
        Whether a field may be in double quotes, and then contain separators, line ends, and doubled quotes.  False
        makes quotes a part of the text.  Parquet ignores it.
    duplicates : {"sum", "mean", "first", "last", "earliest", "latest", "max", "error"} or None
        Rule that merges several rows of a user-item pair, see `Interactions.from_arrays`.
    item_ids : array_like or None
        Complete catalogue in this order, see `Interactions.from_arrays`; None lists the items of the data.
    user_ids : array_like or None
        All users in this order, see `Interactions.from_arrays`; None lists the users of the data.
    unlisted : {"error", "drop"}
        Treatment of a row with an item or a user that is missing from a given list.
    timestamp_unit : {"s", "ms", "us", "ns"}
        Unit since 1970 into which dates and times are converted.  A time that the unit would truncate raises an error.
    time_format : str or None
        Format of times that are neither whole numbers nor ISO 8601: a format of `datetime.strptime`, such as
        ``"%d/%m/%Y %H:%M"``, or the unit of numbers with a fraction, such as ``"s"`` for 1714564800.25.
    comment : str or None
        Prefix of lines that are comments, such as ``"#"``.  None skips lines before the first record that begin with
        ``#`` or ``%`` and a blank, as in the files of SNAP and KONECT.  Parquet ignores it.
    missing_ids : {"error", "drop"}
        Treatment of a row without a user or an item.  A warning states the number of dropped rows.

    Returns
    -------
    Interactions
        Interactions with every user and item that appears or is listed.

    Raises
    ------
    FileNotFoundError
        A missing file.
    KeyError
        A missing column.  The message lists the columns of the file.
    ValueError
        A malformed file.  The message names the file, the line, the column and the field.
    TypeError
        A column of a Parquet file has another type than its role.  The message names the column and the type.
    ImportError
        polars is not installed, or zstandard for ``.zst``; the extra ``data`` installs both.

    Notes
    -----
    A damaged Parquet file can end the process within polars, if an allocation fails there.  A Parquet file of unknown
    origin is read safely in a separate process.

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
