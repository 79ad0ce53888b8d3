"""Progress bars on long work: when asked for, and where somebody sees them."""

import sys
from collections.abc import Iterator

__all__ = ["progress_rounds"]


def progress_rounds(n_rounds: int, *, show: bool, description: str, unit: str = "round") -> Iterator[int]:
    """Count rounds, with a bar if asked for.

    Parameters
    ----------
    n_rounds : int
        How many.
    show : bool
        Whether to draw a bar: in a notebook, or on standard error where that is a terminal.  In a file of logs there
        is none.
    description : str
        What is going on.
    unit : str
        What is counted.

    Returns
    -------
    iterator of int
        0, 1, ..., n_rounds - 1.

    Raises
    ------
    ImportError
        A bar is asked for and tqdm is absent.
    """
    if not show:
        return iter(range(n_rounds))
    try:
        from tqdm.auto import tqdm
    except ImportError:
        raise ImportError(
            "show_progress=True needs tqdm: pip install 'fastfedrec[cli]', or pass show_progress=False"
        ) from None
    return iter(tqdm(range(n_rounds), desc=description, unit=unit, disable=not is_watched()))


def is_watched() -> bool:
    """Whether somebody sees what is drawn on standard error: it is a terminal, or this is a notebook.

    Returns
    -------
    bool
        False where standard error is a file, a pipe or closed.
    """
    try:
        if sys.stderr.isatty():
            return True
    except (AttributeError, ValueError):  # there is none, or it is closed
        pass
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return hasattr(shell, "kernel")
