"""Figures of matplotlib, which is optional and imported here only."""

import io
from pathlib import Path
from typing import Any

from fastfedrec.core.files import check_destination, new_file

__all__ = ["PLOT_ENDINGS", "check_plot", "new_figure", "save_figure"]

#: Endings of the files that a figure is written to.
PLOT_ENDINGS = (".png", ".svg", ".pdf")


def new_figure(option: str = "a plot", **options: Any) -> Any:
    """Return an empty figure without pyplot, which has global state; `option` names the plot in the error."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError(f"{option} needs matplotlib; pip install 'fastfedrec[plot]'") from None
    return Figure(layout="constrained", **options)


def check_plot(option: str, path: Path | None) -> None:
    """Raise before a computation if its plot cannot be written to a path; None is no plot."""
    if path is None:
        return
    if path.suffix.lower() not in PLOT_ENDINGS:
        raise ValueError(f"{option} {path} must end in one of {', '.join(PLOT_ENDINGS)}")
    check_destination(path, option)


def save_figure(figure: Any, path: Path) -> None:
    """Write a figure to a file that replaces the old one when it is complete; the ending is the format."""
    content = io.BytesIO()
    figure.savefig(content, format=path.suffix[1:].lower() or None, dpi=150)
    with new_file(path) as file:
        file.write(content.getvalue())
