"""`read_test_negatives`: candidates in the format of NCF's data sets."""

import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

__all__ = ["read_test_negatives"]

# The first field of a line, such as "(0,25)": the user and the test item.
_PAIR = re.compile(r"\((\d{1,18}), ?(\d{1,18})\)")


def read_test_negatives(path: str | Path) -> dict[int, NDArray[np.int64]]:
    r"""Read a test.negative file, in the format of NCF's data sets.

    Parameters
    ----------
    path : str or Path
        File of lines with fields that are separated by tabs.  The first field is "(user,item)" with the test item, and
        each further field is an item that the test item is ranked against.

    Returns
    -------
    dict of int to ndarray of int64
        Candidates of each user, without the test item.

    Raises
    ------
    ValueError
        The file is empty, a line has another format, or a user has two lines.

    References
    ----------
    .. [1] He et al., "Neural collaborative filtering", WWW 2017.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from fastfedrec.evaluation import read_test_negatives
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "ml-1m.test.negative"
    ...     _ = path.write_text("(0,25)\t1064\t174\n(1,133)\t1072\t3154\n")
    ...     read_test_negatives(path)
    {0: array([1064,  174]), 1: array([1072, 3154])}
    """
    candidates: dict[int, NDArray[np.int64]] = {}
    with open(path, encoding="utf-8-sig") as file:
        for number, line in enumerate(file, start=1):
            pair, *items = line.rstrip().split("\t")
            match = _PAIR.fullmatch(pair)
            if match is None or not all(re.fullmatch(r"\d{1,18}", item) for item in items):
                raise ValueError(
                    f"{path}, line {number}, must be '(user,item)' and items, separated by tabs, got {line[:60]!r}; "
                    "for other formats pass candidates as a dict or a frame"
                )
            if int(match[1]) in candidates:
                raise ValueError(f"{path}, line {number}, must be of a new user, got user {match[1]} twice; remove one")
            candidates[int(match[1])] = np.array(items, dtype=np.int64)
    if not candidates:
        raise ValueError(f"{path} must hold a line for each user, got none; is it the right file?")
    return candidates
