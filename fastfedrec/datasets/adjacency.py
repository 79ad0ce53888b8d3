"""Reader of lists of items by user: lines such as "user item item ...", as LightGCN's and its followers' data have."""

import os
import re
from pathlib import Path

import numpy as np

from fastfedrec.core.arrays import Column
from fastfedrec.core.files import check_path
from fastfedrec.data.ids import column_array, encode_ids
from fastfedrec.data.interactions import Interactions
from fastfedrec.data.merging import check_duplicates
from fastfedrec.datasets._fields import BLANKS, Field, Kind, parse_field
from fastfedrec.datasets._streams import COMMENT_LINE, open_text
from fastfedrec.datasets.columns import to_interactions
from fastfedrec.datasets.files import refuse

__all__ = ["is_adjacency", "load_adjacency"]

_BYTES = 1 << 22  # read at once
_PEEKED = 1 << 16  # of a file that may be one of these
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
    r"""Read a text file with a line for each user: the user's id, and behind it the ids of all items.

    Parameters
    ----------
    path : str or path-like
        Text in UTF-8, or all in Latin-1 where it is not; perhaps packed by gzip or zstandard.  Lines above the first
        user that begin with ``#`` or ``%`` and a blank are comments.
    separator : str or None
        What stands between two ids; None is any number of spaces and tabs.
    duplicates : {"sum", "mean", "first", "last", "earliest", "latest", "max", "error"} or None
        What becomes of an item that a user has twice, as in `Interactions.from_arrays`.
    item_ids, user_ids : array_like or None
        All items, or all users, in this order, as in `Interactions.from_arrays`; None takes them from the file.
    unlisted : {"error", "drop"}
        What becomes of an entry whose item or user is not listed.

    Returns
    -------
    Interactions
        Without values and timestamps; with a user for each line, without items where the line has none.  Ids stay
        integers where every user, or every item, is written as one (as 7, not 007), and are strings otherwise.

    Raises
    ------
    FileNotFoundError
        Nothing at `path`.
    ValueError
        A line without a user, a comment between users, or a file without an item; the file and line are named.

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
    if not path.is_file():
        raise FileNotFoundError(f"path {str(path)!r} is no file; pass one with a line for each user")
    content, first_line = _below_comments(_content(path))
    people, lengths, items = (_read_numbers(content) if separator is None else None) or _read_lines(
        path, content, separator, first_line
    )
    if not len(items):
        refuse(str(path), first_line + max(len(people), 1) - 1, "the file ends without a single item")
    return to_interactions(
        np.repeat(people, lengths), items, None, None, duplicates=duplicates, item_ids=item_ids,
        user_ids=encode_ids("users", people)[0] if user_ids is None else user_ids, unlisted=unlisted,
    )  # fmt: skip


def is_adjacency(path: Path) -> bool | None:
    """Whether a text file looks like lines of a user and items: whole numbers alone, divided by spaces, and no table.

    Parameters
    ----------
    path : Path
        The file, of which the first lines are read.

    Returns
    -------
    bool or None
        None where it may be either: lines that all have as many numbers, which are neither two nor a single line.
    """
    with open_text(path) as stream:
        start = b""
        while len(start) < _PEEKED and (part := stream.read(_PEEKED - len(start))):
            start += part
    if len(start) >= _PEEKED:  # the last number may be cut in two
        start = start[: (start.rfind(b"\n") if b"\n" in start else start.rfind(b" ")) + 1]
    lines = [words for line in start.decode("latin-1").split("\n") if (words := line.split())]
    are_numbers = all(word.isdecimal() and word.isascii() for words in lines for word in words)
    if b"\t" in start or not lines or not are_numbers:
        return False
    lengths = {len(words) for words in lines}
    return len(lengths) > 1 or lengths == {2} or (len(lines) == 1 and lengths.pop() > 4) or None


def _content(path: Path) -> bytes:
    parts = []
    with open_text(path) as stream:
        while part := stream.read(_BYTES):
            parts.append(part)
    return b"".join(parts).replace(b"\r\n", b"\n")


def _below_comments(content: bytes) -> tuple[bytes, int]:
    """The lines from the first that is no comment, and the number of this line."""
    start, number = 0, 1
    while COMMENT_LINE.match(content, start):
        start, number = (content.find(b"\n", start) + 1) or len(content), number + 1
    return content[start:], number


def _read_numbers(content: bytes) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """As `_read_lines`, of whole numbers that are written as Python writes them; None where that is in doubt."""
    letters = np.frombuffer(content, dtype=np.uint8)
    are_digits, are_ends = letters - np.uint8(ord("0")) < 10, letters == ord("\n")  # what is below "0" wraps
    if not are_digits.any() or not (are_digits | are_ends | (letters == ord(" "))).all():
        return None
    starts = np.flatnonzero(are_digits & ~np.concatenate([[False], are_digits[:-1]]))
    numbers = np.fromstring(content, dtype=np.int64, sep=" ")
    largest = int(numbers.max())
    # Without leading zeros, and so that none is cut: as many digits as the numbers have.
    n_digits = len(numbers) + sum(int(np.count_nonzero(numbers >= power)) for power in _POWERS if power <= largest)
    if len(numbers) != len(starts) or n_digits != np.count_nonzero(are_digits) or largest >= _POWERS[-1]:
        return None
    begins = np.concatenate([[0], np.searchsorted(starts, np.flatnonzero(are_ends)), [len(starts)]])
    lengths = np.diff(begins)
    n_lines = int(np.flatnonzero(lengths)[-1]) + 1  # without blank ones at the end
    if not lengths[:n_lines].all():
        return None
    firsts = begins[:n_lines]
    return numbers[firsts], lengths[:n_lines] - 1, np.delete(numbers, firsts)


def _read_lines(
    path: Path, content: bytes, separator: str | None, first_line: int = 1
) -> tuple[np.ndarray, list[int], np.ndarray]:
    """The user of each line, how many items it has, and all items."""
    users: list[str] = []
    lengths: list[int] = []
    items: list[str] = []
    blank = 0
    # Not str.split(), which parts at other white space too, some of which is in ids of Latin-1.
    split = _BETWEEN_BLANKS.findall if separator is None else lambda line: line.split(separator)
    for number, line in enumerate(_decoded(content).split("\n"), start=first_line):
        user, *of_user = [part.strip(_BLANKS) for part in split(line)] if line.strip(_BLANKS) else [""]
        if separator is not None and of_user and not of_user[-1]:
            of_user.pop()  # behind the last separator
        if not user:
            if line.strip(_BLANKS):
                refuse(str(path), number, f"a user must come first, got {line[:40]!r}")
            blank = blank or number
        elif blank:
            refuse(str(path), blank, "the line is blank, and others follow; remove it, or write a user's id there")
        elif COMMENT_LINE.match(line.encode()):  # as a user it would make text of all other users' numbers
            refuse(str(path), number, f"a comment must be above the first user, got {line[:40]!r}; remove the line")
        elif "" in of_user:
            refuse(str(path), number, f"an item is empty: {line[:40]!r}")
        else:
            users.append(user)
            lengths.append(len(of_user))
            items += of_user
    return _typed(users), lengths, _typed(items)


def _decoded(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content.decode("latin-1")


def _typed(ids: list[str]) -> np.ndarray:
    """Integers where all are written as such."""
    distinct = {text: parse_field(_ID, text) for text in set(ids)}
    if None in distinct.values():
        return column_array("ids", ids)
    return np.array([distinct[text] for text in ids], dtype=np.int64)
