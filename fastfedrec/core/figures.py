"""Empty figures of matplotlib, which is optional and imported here only."""

from typing import Any

__all__ = ["new_figure"]


def new_figure(option: str = "a plot", **options: Any) -> Any:
    """Return an empty figure without pyplot, which has global state; `option` names the plot in the error."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError(f"{option} needs matplotlib; pip install 'fastfedrec[plot]'") from None
    return Figure(layout="constrained", **options)
