"""Loader of tables of items, with one row of public features per item."""

import itertools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastfedrec.core.check import check_flag
from fastfedrec.core.files import check_file, check_path
from fastfedrec.core.numbers import show_names
from fastfedrec.data.column_names import known_columns, split_type
from fastfedrec.datasets._fields import Field, FieldError, Kind, parse_field
from fastfedrec.datasets._polars import import_polars
from fastfedrec.datasets._records import parse_records, split_records
from fastfedrec.datasets._streams import read_lines
from fastfedrec.datasets.files import reading_parquet, refuse
from fastfedrec.datasets.table_files import first_record, is_parquet

__all__ = ["load_item_features"]

_ITEM = "item"
# Kinds of numbers that are tried for a column; a column that fits neither is text.
_NUMBERS = Field("", Kind.DECIMAL), Field("", Kind.ISO, unit="us")
_ID = Field("", Kind.ID)
_MISSING = {"N/A", "n/a", "#N/A"}  # marks of an empty field in spreadsheets and web pages
_MISSING_NUMBERS = {"NA", "NaN", "nan", "NULL", "null", "None", "-"}  # in columns of numbers; elsewhere possible labels


def load_item_features(
    path: str | os.PathLike[str], *, item: str | None = None, separator: str | None = None, quotes: bool = True
) -> dict[str, Any]:
    r"""Load a CSV, TSV or Parquet file with one row per item, for the parameter `item_features` of models.

    Parameters
    ----------
    path : str or path-like
        Path of a text file with a header, in a format that `load_table` reads, or of a Parquet file.
    item : str or None
        Column of the ids; None selects the column with a usual name (``item``, ``movieId``, ``item_id:token``).
    separator : str or None
        Separator of two fields, such as ``"\t"``; None infers it from the first line.  Parquet ignores it.
    quotes : bool
        Whether a field may be in double quotes; False makes quotes a part of the text.  Parquet ignores it.

    Returns
    -------
    dict of str to array_like
        Columns by name.  ``item`` holds the ids: int64 if every id is written as an integer (as 7, not 007), otherwise
        text.  The other columns follow in the order of the file.  A column of a text file is numbers or dates if all
        of its fields are, otherwise text.  None marks an empty field, ``\N`` and ``N/A``, and in columns of numbers
        also ``NA``, ``null`` and ``nan``.  Headers of RecBole can state the type: the numbers of ``year:token`` are
        labels, and ``genre:token_seq`` has labels that are separated by spaces.

    Raises
    ------
    FileNotFoundError
        A missing file.
    KeyError
        No column of ids.  The message lists the columns of the file.
    ValueError
        A malformed file, a missing id, or a column without a name.  The message names the file, the line and the field.
    ImportError
        A Parquet file without an installed polars; the extra ``data`` installs it.

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
    check_file("path", path, "a CSV, TSV or Parquet file")
    if is_parquet(path):
        return _read_parquet(path, item)
    header, first_line = first_record(path, separator, quotes)
    names, first_line = header.fields, first_line + header.n_lines
    ids = _column_of_ids(path, names, item)
    text = read_lines(path, first_line).rstrip("\r\n")
    if not text:
        refuse(str(path), first_line, "the file ends without a single row")
    fields = [Field(name, Kind.TEXT, "an id" if name == ids else "text", optional=name != ids) for name in names]
    columns, *_ = parse_records(
        text + "\n", fields, header.separator, quotes, name=str(path), line=first_line, heading=None, headings=False,
        at_end=True,
    )  # fmt: skip
    texts = dict(zip(names, columns, strict=True))
    try:
        features = {split_type(name)[0]: _values(name, texts[name]) for name in names if name != ids}
    except FieldError as error:
        records = itertools.islice(split_records(text + "\n", header.separator, quotes), error.index)
        refuse(str(path), first_line + sum(record.n_lines for record in records), str(error))
    return {_ITEM: _ids(texts[ids])} | features


def _column_of_ids(path: Path, names: Sequence[str], item: str | None) -> str:
    """Return the column of ids; raise unless all columns have distinct names."""
    stems = [split_type(name)[0] for name in names]  # names without RecBole's types
    if not all(stems):
        refuse(str(path), 1, f"column {stems.index('') + 1} must have a name, got none; name it, or remove it")
    if len(set(stems)) < len(stems):
        refuse(str(path), 1, f"column names must be distinct, got {show_names(names)}; rename a column")
    if item is None:
        item = known_columns(names, [_ITEM], source=str(path)).get(_ITEM)
        if item is None:
            raise KeyError(
                f"item must be given, because no column of {path} has a usual name of item ids, got "
                f"{show_names(names)}; name the column of ids"
            )
    elif item not in names:
        raise KeyError(f"item={item!r} is not a column; {path} has {show_names(names)}")
    elif split_type(item)[0] != _ITEM in stems:
        refuse(str(path), 1, f"column {_ITEM!r} must hold the ids, which are in {item!r}; rename column {_ITEM!r}")
    return item


def _ids(texts: Sequence[str]) -> NDArray[Any]:
    numbers = [parse_field(_ID, text) for text in texts]
    return np.array(texts) if None in numbers else np.array(numbers, dtype=np.int64)


def _values(name: str, texts: Sequence[str]) -> NDArray[Any]:
    """Return the entries of a column as numbers, text or tuples, or None; raise `FieldError` for an invalid one."""
    kind = split_type(name)[1]
    if kind == "token_seq":
        texts = ["|".join(text.split()) for text in texts]  # `ItemFeatures` separates labels by a bar
    present = {text for text in texts if text.strip()} - _MISSING
    values: dict[str, Any] = {text: text for text in present}
    if kind == "float_seq":
        texts_of_numbers = present - _MISSING_NUMBERS
        values = {text: tuple(parse_field(_NUMBERS[0], part) for part in text.split()) for text in texts_of_numbers}
        if (at := next((at for at, text in enumerate(texts) if None in values.get(text, ())), None)) is not None:
            raise FieldError(
                f"{name} must be finite numbers separated by spaces, got {texts[at][:40]!r}; name it "
                f"{split_type(name)[0]}:token_seq for labels", at, texts[at],
            )  # fmt: skip
    elif not kind.startswith("token"):
        # A column has one kind of numbers, or all of its fields are text.
        for field in _NUMBERS:
            numbers = {text: parse_field(field, text) for text in present - _MISSING_NUMBERS}
            if numbers and None not in numbers.values():
                values = {text: float(number) for text, number in numbers.items() if number is not None}
                break
    column = np.empty(len(texts), dtype=object)  # np.array would convert tuples to a second dimension
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
