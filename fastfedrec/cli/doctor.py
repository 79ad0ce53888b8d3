"""The command ``fastfedrec doctor``: hardware, libraries and packages, and known conflicts with remedies."""

import argparse
from collections.abc import Callable
from typing import Any

from fastfedrec.core import doctor

__all__ = ["add_doctor"]


def add_doctor(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the command to the parser of `main`."""
    add(
        "doctor",
        run_doctor,
        "Print instruction sets, threads, BLAS, OpenMP, Numba, packages and known conflicts.",
        ["fastfedrec doctor"],
    )


def run_doctor(arguments: argparse.Namespace) -> dict[str, Any] | str:
    """Return the report; a conflict does not count as an error."""
    report = doctor.report()
    return report if arguments.json else _format(report)


def _format(report: dict[str, Any]) -> str:
    sets, threads, numba = report["instruction_sets"], report["threads"], report["numba"]
    names = [f"{name} (in use)" if name == sets["in_use"] else name for name in sets["available"]]
    limits = ", ".join(f"{name} {limit}" for name, limit in threads["limits"].items())
    writable = "writable" if numba["writable"] else "NOT writable"
    rows = [
        ("instruction sets", ", ".join(names)),
        ("threads", f"{threads['n']} ({limits}" + ("; forked, so 1)" if threads["forked"] else ")")),
        *(("BLAS", _format_library(library)) for library in report["blas"]),
        *(("OpenMP", _format_library(library)) for library in report["openmp"]),
        (
            "Numba",
            f"{numba['version'] or 'missing'}, threading layer {numba['threading_layer']}, "
            f"cache {numba['cache']} ({writable})",
        ),
        ("packages", _format_versions(report["packages"])),
        *((f"extra [{extra}]", _format_versions(versions, extra)) for extra, versions in report["extras"].items()),
        *(("environment", f"{name}={value}") for name, value in report["environment"].items()),
    ]
    width = max(len(name) for name, _ in rows)
    conflicts = [f"- {conflict['problem']} Remedy: {conflict['remedy']}." for conflict in report["conflicts"]]
    return "\n".join(
        [
            f"fastfedrec {report['version']}, {report['python']}, {report['platform']}",
            *(f"{name:{width}}  {text}" for name, text in rows),
            "",
            *(["Known conflicts:", *conflicts] if conflicts else ["No known conflict."]),
        ]
    )


def _format_library(library: dict[str, Any]) -> str:
    name = " ".join(filter(None, (library["library"], library["version"], library.get("threading_layer"))))
    return f"{name}, {library['threads']} threads, {library['file']}"


def _format_versions(versions: dict[str, str | None], extra: str = "") -> str:
    text = ", ".join(f"{name} {version or 'missing'}" for name, version in versions.items())
    return text + (f": pip install 'fastfedrec[{extra}]'" if extra and None in versions.values() else "")
