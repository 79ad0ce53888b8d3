"""Files of studies: cases that are measured once and then read, and the report in every format."""

import json
import zlib
from collections.abc import Callable, Hashable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from fastfedrec.core.files import write_text
from fastfedrec.core.progress import progress_rounds
from fastfedrec.data.interactions import Interactions
from fastfedrec.studies.report import Report, RunOptions

__all__ = ["Case", "checksum", "file_name", "measure_cases", "run_or_load", "write_report"]

Figures = TypeVar("Figures")
Name = TypeVar("Name", bound=Hashable)


class Case(NamedTuple):
    """One part of a study."""

    file: str  # name of its file of figures
    settings: dict[str, Any]  # all settings that its figures depend on, as JSON values
    measure: Callable[[], Any]  # returns the figures, as JSON values


def measure_cases(cases: Mapping[Name, Case], how: RunOptions, description: str, unit: str) -> dict[Name, Any]:
    """Return the figures of every case, measured or read; `description` and `unit` are for the progress bar."""
    bar = progress_rounds(len(cases), show=how.show_progress, description=description, unit=unit)
    return {name: run_or_load(how.folder, *case) for _, (name, case) in zip(bar, cases.items(), strict=True)}


def run_or_load(folder: str | Path | None, name: str, settings: dict[str, Any], run: Callable[[], Figures]) -> Figures:
    """Return the result of `run`, read from the file `name` of the folder if it was stored with the same settings."""
    if folder is None:
        return run()
    # The name identifies the file, and the settings in it decide whether its result is read.
    path = Path(folder) / f"{name}.json"
    try:
        stored = json.loads(path.read_text())
        # A tuple is a list in the file.
        if stored["settings"] == json.loads(json.dumps(settings)):
            return stored["run"]
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        pass  # there is no such file, or it does not have the format of this function
    result = run()
    path.parent.mkdir(parents=True, exist_ok=True)
    # NaN and infinity are not JSON, so runs return None or text in their place.
    write_text(path, json.dumps({"settings": settings, "run": result}, indent=2, allow_nan=False))
    return result


def file_name(text: str) -> str:
    """Return a name of a model as a part of a file's name: with hyphens, and without commas."""
    return text.replace(" ", "-").replace(",", "")


def checksum(parts: Iterable[Interactions]) -> int:
    """Return the CRC-32 of the sparse matrices of data sets, which identifies the data of a part."""
    value = 0
    for part in parts:
        # Values are included because ratings change figures; ids of users and items are not.
        for array in (part.indptr, part.indices, part.values_or_ones()):
            value = zlib.crc32(array.tobytes(), value)
    return value


def write_report(
    report: Report, folder: str | Path, name: str, document: str, *, plot: bool, machine: str | None = None
) -> list[str]:
    """Write a report as JSON (`document`), CSV, Markdown and, with `plot`, an image, and return the files' names."""
    out = Path(folder)
    out.mkdir(parents=True, exist_ok=True)
    image = f"{name}.png" if plot else None
    write_text(out / f"{name}.json", document)
    write_text(out / f"{name}.csv", report.to_csv())
    write_text(out / f"{name}.md", report.to_markdown(plot=image, machine=machine))
    if image:
        report.plot(out / image)
    return [f"{name}.json", f"{name}.csv", f"{name}.md", *([image] if image else [])]
