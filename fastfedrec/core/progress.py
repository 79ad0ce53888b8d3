"""Progress bars of long computations, on request and only on a terminal or in a notebook."""

import sys
from collections.abc import Iterator

__all__ = ["progress_rounds"]


def progress_rounds(n_rounds: int, *, show: bool, description: str, unit: str = "round") -> Iterator[int]:
    """Return an iterator over the numbers of `n_rounds` rounds, with a progress bar if `show`."""
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
    """Return whether standard error is a terminal, or this is a notebook."""
    try:
        if sys.stderr.isatty():
            return True
    except (AttributeError, ValueError):  # standard error is None or closed
        pass
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return hasattr(shell, "kernel")
