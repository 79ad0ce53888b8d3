"""Recommended lists of blocks of users, and files of them as CSV, JSON or Parquet, written one block at a time."""

import json
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from fastfedrec.cli.outputs import csv_lines
from fastfedrec.core.files import check_destination, new_file
from fastfedrec.datasets.columns import BLANKS

__all__ = ["FORMATS", "Lists", "lists_of", "write_lists"]

_COLUMNS = "user", "item", "score", "rank"


class Lists(NamedTuple):
    """Recommendations of a block of users: external ids, scores, and the length of each user's list."""

    users: list[Any]
    ids: np.ndarray
    scores: np.ndarray
    lengths: np.ndarray

    def entries(self) -> Iterator[dict[str, Any]]:
        """Yield each user with the items and scores of the list."""
        for user, ids, scores, length in zip(
            self.users, self.ids.tolist(), self.scores.tolist(), self.lengths.tolist(), strict=True
        ):
            yield {"user": user, "items": ids[:length], "scores": scores[:length]}

    def rows(self) -> Iterator[tuple[Any, Any, float, int]]:
        """Yield user, item, score and rank of each recommendation."""
        for entry in self.entries():
            for rank, (item, score) in enumerate(zip(entry["items"], entry["scores"], strict=True), start=1):
                yield entry["user"], item, score, rank


def lists_of(users: list[Any], ids: np.ndarray, scores: np.ndarray) -> Lists:
    """Return the lists of some users without ranks of score -inf, which end the lists of users with few items."""
    return Lists(users, ids, scores, (scores > -np.inf).sum(axis=1))


def write_lists(path: Path, blocks: Iterable[Lists], *, source: str) -> tuple[int, int]:
    """Write lists to a file that only its owner may read, and return the numbers of users and of recommendations."""
    check_destination(path, "--out")
    counts = np.zeros(2, dtype=np.int64)

    def counted() -> Iterator[Lists]:
        for block in blocks:
            counts[:] += len(block.users), int(block.lengths.sum())
            yield block

    with new_file(path, private=True) as file:
        _WRITERS[path.suffix.lower()](file, counted(), source)
    n_users, n_recommendations = counts.tolist()
    return n_users, n_recommendations


def _write_csv(file: BinaryIO, blocks: Iterable[Lists], source: str) -> None:
    file.write(csv_lines([_COLUMNS]))
    for block in blocks:
        # Readers keep blanks around an id only in quotes.
        ids = (key for row in (block.users, *block.ids.tolist()) for key in row if isinstance(key, str))
        file.write(csv_lines(block.rows(), quote_text=any(key != key.strip(BLANKS) for key in ids)))


def _write_json(file: BinaryIO, blocks: Iterable[Lists], source: str) -> None:
    file.write(f'{{"model": {json.dumps(source)}, "recommendations": ['.encode())
    separator = "\n"
    for block in blocks:
        for entry in block.entries():
            file.write((separator + json.dumps(entry, allow_nan=False)).encode())
            separator = ",\n"
    file.write(b"\n]}\n")


def _write_parquet(file: BinaryIO, blocks: Iterable[Lists], source: str) -> None:
    try:
        import polars
    except ImportError:
        raise ImportError("--out FILE.parquet needs polars: pip install 'fastfedrec[data]', or write .csv") from None
    # Each block is a file, and polars joins the files without holding all of them in memory.
    with tempfile.TemporaryDirectory() as folder:
        parts: list[Path] = []
        empty = Path()
        for number, block in enumerate(blocks):
            columns = dict(zip(_COLUMNS, zip(*block.rows(), strict=True), strict=False)) or dict.fromkeys(_COLUMNS, ())
            part = Path(folder, f"{number}.parquet")
            try:
                frame = polars.DataFrame({name: polars.Series(list(column)) for name, column in columns.items()})
                frame.write_parquet(part)
            except (TypeError, polars.exceptions.PolarsError) as error:
                raise TypeError(
                    f"--out FILE.parquet must hold ids of one type, numbers or text ({error}); write .csv or .json"
                ) from error
            # An empty list has no type of ids, so it is a part only if there is no other.
            if n_rows := len(frame):
                parts.append(part)
            empty = part if not n_rows else empty
        joined = Path(folder, "joined.parquet")
        polars.scan_parquet(parts or [empty]).sink_parquet(joined)
        with joined.open("rb") as stream:
            shutil.copyfileobj(stream, file)


_WRITERS = {".csv": _write_csv, ".json": _write_json, ".parquet": _write_parquet}
#: Endings of the names of files that `write_lists` writes.
FORMATS = tuple(_WRITERS)
