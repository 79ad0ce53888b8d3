"""Reader of a table of items: a row for each, with its id and what is publicly known of it."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastfedrec.core.check import check_flag
from fastfedrec.core.files import check_path
from fastfedrec.core.numbers import show_names
from fastfedrec.data.column_names import known_columns, split_type
from fastfedrec.datasets._fields import Field, Kind, parse_field
from fastfedrec.datasets._polars import import_polars
from fastfedrec.datasets._records import parse_records
from fastfedrec.datasets._streams import open_text
from fastfedrec.datasets.files import reading_parquet, refuse
from fastfedrec.datasets.table_files import first_record, is_parquet

__all__ = ["load_item_features"]

_ITEM = "item"
_NUMBERS = Field("", Kind.DECIMAL), Field("", Kind.ISO, unit="us")  # of which a column holds one, or text
_ID = Field("", Kind.ID)
_NOT_KNOWN = {"N/A", "n/a", "#N/A"}  # of spreadsheets and web pages, for an empty field
_NO_NUMBERS = {"NA", "NaN", "nan", "NULL", "null", "None", "-"}  # among numbers; in other columns they may be labels


def load_item_features(
    path: str | os.PathLike[str], *, item: str | None = None, separator: str | None = None, quotes: bool = True
) -> dict[str, Any]:
    r"""Read a CSV, TSV or Parquet file with a row for each item, as the parameter `item_features` of models takes it.

    Parameters
    ----------
    path : str or path-like
        Text as `load_table` takes it, with a header, or Parquet.
    item : str or None
        The column of ids; None takes the one that the header names as publishers do (``item``, ``movieId``,
        ``item_id:token``).
    separator : str or None
        What stands between two fields, such as ``"\t"``; None finds it in the first line.  Not for Parquet.
    quotes : bool
        Whether a field may stand in double quotes; if not, they are a part of the text.  Not for Parquet.

    Returns
    -------
    dict of str to array_like
        ``item``: the ids, int64 where every one is written as an integer (as 7, not 007), and text otherwise; then all
        other columns, in the order of the file.  Of text files: numbers or dates where all fields of the column are
        such, and text otherwise; what is empty is None, and so are ``\N`` and ``N/A``, and among numbers ``NA``,
        ``null`` and ``nan``.  A header of RecBole may say so itself: of ``year:token`` the numbers are labels, and
        ``genre:token_seq`` has labels with spaces between.

    Raises
    ------
    FileNotFoundError
        Nothing at `path`.
    KeyError
        No column of ids; the columns that there are get listed.
    ValueError
        A malformed file, an id that is missing, or a column without a name; the file, line and field are named.
    ImportError
        A Parquet file, without polars; the extra ``data`` has it.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from fastfedrec.datasets import load_item_features
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "songs.csv")
    ...     _ = file.write_text("trackId,genres,year\n7,folk|pop,1971\n9,jazz,\n")
    ...     songs = load_item_features(file)
    >>> {name: column.tolist() for name, column in songs.items()}
    {'item': [7, 9], 'genres': ['folk|pop', 'jazz'], 'year': [1971.0, None]}
    """
    path, quotes = check_path("path", path), check_flag("quotes", quotes)
    if not path.is_file():
        raise FileNotFoundError(f"path {str(path)!r} is no file; pass a CSV, TSV or Parquet file")
    if is_parquet(path):
        return _read_parquet(path, item)
    header, first_line = first_record(path, separator, quotes)
    names, first_line = header.fields, first_line + header.n_lines
    ids = _column_of_ids(path, names, item)
    try:
        text = _text_from(path, "utf-8", first_line)
    except UnicodeDecodeError:
        text = _text_from(path, "latin-1", first_line)
    if not text:
        refuse(str(path), first_line, "the file ends without a single row")
    fields = [Field(name, Kind.TEXT, "an id" if name == ids else "text", optional=name != ids) for name in names]
    columns, *_ = parse_records(
        text, fields, header.separator, quotes, name=str(path), line=first_line, heading=None, headings=False,
        at_end=True,
    )  # fmt: skip
    found = dict(zip(names, columns, strict=True))
    others = {split_type(name)[0]: _values(found[name], split_type(name)[1]) for name in names if name != ids}
    return {_ITEM: _ids(found[ids])} | others


def _column_of_ids(path: Path, names: Sequence[str], item: str | None) -> str:
    """The column of ids; all others must have a name of their own."""
    called = [split_type(name)[0] for name in names]
    if not all(called):
        refuse(str(path), 1, f"column {called.index('') + 1} has no name; name it, or remove it")
    if len(set(called)) < len(called):
        refuse(str(path), 1, f"a name stands twice among {show_names(names)}; rename a column")
    if item is None:
        item = known_columns(names, [_ITEM]).get(_ITEM)
        if item is None:
            raise KeyError(f"item is not given, and none of {show_names(names)} of {path} is known as one; name it")
    elif item not in names:
        raise KeyError(f"item={item!r} is not a column; {path} has {show_names(names)}")
    elif split_type(item)[0] != _ITEM in called:
        refuse(str(path), 1, f"{_ITEM!r} is not the column of ids, which is {item!r}; rename it")
    return item


def _text_from(path: Path, encoding: str, first_line: int) -> str:
    """All lines from that one on, each with its end; blank last lines are none."""
    parts = []
    with open_text(path, encoding) as stream:
        for _ in range(1, first_line):
            stream.readline()
        while part := stream.read(1 << 24):
            parts.append(part)
    text = b"".join(parts).decode().rstrip("\r\n")
    return text + "\n" if text else ""


def _ids(texts: Sequence[str]) -> NDArray[Any]:
    numbers = [parse_field(_ID, text) for text in texts]
    return np.array(texts) if None in numbers else np.array(numbers, dtype=np.int64)


def _values(texts: Sequence[str], kind: str) -> NDArray[Any]:
    """Numbers, text, tuples or None; of a type that the header gives, what that says."""
    if kind == "token_seq":
        texts = ["|".join(text.split()) for text in texts]  # as labels are joined elsewhere
    there = {text for text in texts if text.strip()} - _NOT_KNOWN
    values: dict[str, Any] = {text: text for text in there}
    if kind == "float_seq":
        values = {text: tuple(parse_field(_NUMBERS[0], part) for part in text.split()) for text in there}
    elif not kind.startswith("token"):
        for field in _NUMBERS:
            numbers = {text: parse_field(field, text) for text in there - _NO_NUMBERS}
            if numbers and None not in numbers.values():
                values = {text: float(number) for text, number in numbers.items() if number is not None}
                break
    column = np.empty(len(texts), dtype=object)  # NumPy would make a second dimension of tuples
    column[:] = [values.get(text) for text in texts]
    return column


def _read_parquet(path: Path, item: str | None) -> dict[str, Any]:
    polars = import_polars(str(path))
    with reading_parquet(path):
        table = polars.read_parquet(path)
    if not len(table):
        raise ValueError(f"{path}: the file ends without a single row")
    ids = _column_of_ids(path, table.columns, item)
    return {_ITEM: table[ids]} | {name: table[name] for name in table.columns if name != ids}
