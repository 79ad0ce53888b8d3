"""Drawings that several studies share, on empty figures of matplotlib."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

__all__ = ["draw_bars", "draw_panels"]


def draw_bars(
    figure: Any,
    bars: Mapping[str, float],
    size: tuple[float, float],
    xlabel: str,
    *,
    title: str | None = None,
    label_size: str = "x-small",
    **options: Any,
) -> Any:
    """Draw a horizontal bar for each value, the first one at the top, and return the panel."""
    figure.set_size_inches(*size)
    panel = figure.subplots()
    panel.barh(list(bars)[::-1], list(bars.values())[::-1], **options)
    panel.set(xlabel=xlabel, title=title)
    panel.tick_params(axis="y", labelsize=label_size)
    return panel


def draw_panels(
    figure: Any, names: Iterable[str], width: float, height: float, margin: float = 1.0, **options: Any
) -> Iterator[tuple[Any, str]]:
    """Set the size of an empty figure, and yield a panel for each name, from left to right."""
    names = list(names)
    figure.set_size_inches(width * len(names) + margin, height)
    yield from zip(figure.subplots(1, len(names), squeeze=False, **options)[0], names, strict=True)
