"""Loader of adjacency lists, with lines such as "user item item ...", which LightGCN and later work publish."""

import os
import re
from pathlib import Path

import numpy as np

from fastfedrec.core.arrays import Column
from fastfedrec.core.files import check_file, check_path
from fastfedrec.data.ids import column_array, encode_ids
from fastfedrec.data.interactions import Interactions
from fastfedrec.data.merging import check_duplicates
from fastfedrec.datasets._fields import BLANKS, Field, Kind, parse_field
from fastfedrec.datasets._streams import COMMENT_LINE, open_text, read_bytes, read_lines
from fastfedrec.datasets.columns import to_interactions
from fastfedrec.datasets.files import refuse

__all__ = ["is_adjacency", "load_adjacency"]

_PEEKED = 1 << 16  # bytes at the start of a file that identify its format
_ID = Field("id", Kind.ID)
_POWERS = [10**k for k in range(1, 19)]
_BLANKS = BLANKS + "\r"
_BETWEEN_BLANKS = re.compile(r"[^ \t\r]+")


def load_adjacency(
    path: str | os.PathLike[str],
    *,
    separator: str | None = None,
    duplicates: str | None = None,
    item_ids: Column | None = None,
    user_ids: Column | None = None,
    unlisted: str = "error",
) -> Interactions:
    r"""Load a text file with one line per user, which holds the user's id and then the ids of all items.

    Parameters
    ----------
    path : str or path-like
        Path of a text file in UTF-8, otherwise Latin-1, which may be compressed by gzip or zstandard.  Lines before the
        first user that begin with ``#`` or ``%`` and a blank are comments.
    separator : str or None
        Separator of two ids; None is any number of spaces and tabs.
    duplicates : {"sum", "mean", "first", "last", "earliest", "latest", "max", "error"} or None
        Rule that merges repeated items of a user, see `Interactions.from_arrays`.
    item_ids, user_ids : array_like or None
        Complete catalogue, or list of users, in this order, see `Interactions.from_arrays`; None takes the ids from the
        file.
    unlisted : {"error", "drop"}
        Treatment of an entry with an item or a user that is missing from a given list.

    Returns
    -------
    Interactions
        Interactions without values and timestamps, with a user for each line; a line without items gives a user without
        interactions.  The ids of users, or of items, are integers if all of them are written as integers (as 7, not
        007), otherwise strings.

    Raises
    ------
    FileNotFoundError
        A missing file.
    ValueError
        A line without a user, a comment between users, or a file without items.  The message names the file and the
        line.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from fastfedrec.datasets import load_adjacency
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "train.txt")
    ...     _ = file.write_text("0 4 7 9\n1 7\n2\n")
    ...     data = load_adjacency(file)
    >>> data
    <Interactions: 3 users x 3 items, 4 interactions>
    >>> data.interactions_per_user().tolist()
    [3, 1, 0]
    """
    path = check_path("path", path)
    check_duplicates(duplicates, None)
    if separator is not None and (not isinstance(separator, str) or not separator or set(separator) & set("\r\n")):
        raise ValueError(f"separator must be text without line ends or None, got {separator!r}; for example ','")
    check_file("path", path, "a file with a line for each user")
    content, first_line = _skip_comments(read_bytes(path).replace(b"\r\n", b"\n"))
    users, lengths, items = (_read_numbers(content) if separator is None else None) or _read_lines(
        path, read_lines(path, first_line).replace("\r\n", "\n"), separator, first_line
    )
    if not len(items):
        refuse(str(path), first_line + max(len(users), 1) - 1, "the file ends without a single item")
    return to_interactions(
        np.repeat(users, lengths), items, None, None, duplicates=duplicates, item_ids=item_ids,
        user_ids=encode_ids("users", users)[0] if user_ids is None else user_ids, unlisted=unlisted,
    )  # fmt: skip


def is_adjacency(path: Path) -> bool | None:
    """Return whether a text file looks like an adjacency list, with only whole numbers separated by spaces.

    Parameters
    ----------
    path : Path
        Path of the file; only the first lines are read.

    Returns
    -------
    bool or None
        True for an adjacency list, False for a table.  None if the format is ambiguous: several lines have the same
        length, which is not 2.
    """
    with open_text(path) as stream:
        start = b""
        while len(start) < _PEEKED and (part := stream.read(_PEEKED - len(start))):
            start += part
    if len(start) >= _PEEKED:  # the last number may be truncated
        start = start[: (start.rfind(b"\n") if b"\n" in start else start.rfind(b" ")) + 1]
    lines = [words for line in start.decode("latin-1").split("\n") if (words := line.split())]
    are_numbers = all(word.isdecimal() and word.isascii() for words in lines for word in words)
    if b"\t" in start or not lines or not are_numbers:
        return False
    # Tables have lines of equal length; pairs of numbers and long single lines are adjacency lists.
    lengths = {len(words) for words in lines}
    return len(lengths) > 1 or lengths == {2} or (len(lines) == 1 and lengths.pop() > 4) or None


def _skip_comments(content: bytes) -> tuple[bytes, int]:
    """Return the lines from the first one that is not a comment, and its line number."""
    start, number = 0, 1
    while COMMENT_LINE.match(content, start):
        start, number = (content.find(b"\n", start) + 1) or len(content), number + 1
    return content[start:], number


def _read_numbers(content: bytes) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Parse lines of canonical integers to users, numbers of items and items; return None for other text."""
    letters = np.frombuffer(content, dtype=np.uint8)
    # In uint8, characters below "0" wrap around to large numbers.
    are_digits, are_ends = letters - np.uint8(ord("0")) < 10, letters == ord("\n")
    if not are_digits.any() or not (are_digits | are_ends | (letters == ord(" "))).all():
        return None
    # A number starts at a digit that does not follow another digit.
    starts = np.flatnonzero(are_digits & ~np.concatenate([[False], are_digits[:-1]]))
    numbers = np.fromstring(content, dtype=np.int64, sep=" ")
    largest = int(numbers.max())
    # The number of digits matches only if no number has leading zeros or overflows.
    n_digits = len(numbers) + sum(int(np.count_nonzero(numbers >= power)) for power in _POWERS if power <= largest)
    if len(numbers) != len(starts) or n_digits != np.count_nonzero(are_digits) or largest >= _POWERS[-1]:
        return None
    begins = np.concatenate([[0], np.searchsorted(starts, np.flatnonzero(are_ends)), [len(starts)]])
    lengths = np.diff(begins)
    n_lines = int(np.flatnonzero(lengths)[-1]) + 1  # without blank lines at the end
    if not lengths[:n_lines].all():
        return None
    firsts = begins[:n_lines]  # positions of the users among all numbers
    return numbers[firsts], lengths[:n_lines] - 1, np.delete(numbers, firsts)


def _read_lines(
    path: Path, lines: str, separator: str | None, first_line: int = 1
) -> tuple[np.ndarray, list[int], np.ndarray]:
    """Parse lines of any ids; return the user and the number of items of each line, and all items."""
    users: list[str] = []
    lengths: list[int] = []
    items: list[str] = []
    blank = 0
    # str.split() would also split at other white space, such as the no-break space, which ids may contain.
    split = _BETWEEN_BLANKS.findall if separator is None else lambda line: line.split(separator)
    for number, line in enumerate(lines.split("\n"), start=first_line):
        user, *of_user = [part.strip(_BLANKS) for part in split(line)] if line.strip(_BLANKS) else [""]
        if separator is not None and of_user and not of_user[-1]:
            of_user.pop()  # the empty part after a final separator
        if not user:
            if line.strip(_BLANKS):
                refuse(str(path), number, f"the line must begin with a user, got {line[:40]!r}; add the user's id")
            blank = blank or number
        elif blank:
            refuse(str(path), blank, "the line must not be blank; remove it, or write a user's id")
        elif COMMENT_LINE.match(line.encode()):  # read as a user, it would turn all user ids into text
            refuse(str(path), number, f"a comment must be before the first user, got {line[:40]!r}; remove the line")
        elif "" in of_user:
            refuse(str(path), number, f"items must not be empty, got {line[:40]!r}; remove the extra separator")
        else:
            users.append(user)
            lengths.append(len(of_user))
            items += of_user
    return _typed(users), lengths, _typed(items)


def _typed(ids: list[str]) -> np.ndarray:
    """Return ids as integers if all are written as integers, otherwise as text."""
    distinct = {text: parse_field(_ID, text) for text in set(ids)}
    if None in distinct.values():
        return column_array("ids", ids)
    return np.array([distinct[text] for text in ids], dtype=np.int64)
