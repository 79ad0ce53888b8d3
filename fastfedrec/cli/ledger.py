"""The command ``fastfedrec ledger``: what a saved model cost people in privacy, also as a page for who must sign."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fastfedrec.accounting import Ledger
from fastfedrec.cli.inputs import UsageError
from fastfedrec.core.files import check_destination
from fastfedrec.systems.saved_ledger import SavedLedger, read_ledger

__all__ = ["add_ledger"]

_LARGEST_JSON = 2**26  # bytes of a ledger


def add_ledger(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Describe the command to the parser of `main`."""
    command = add(
        "ledger",
        run_ledger,
        "What a saved model cost people in privacy; as a page, for somebody who must sign. Reads no one's rows.",
        ["fastfedrec ledger model.npz", "fastfedrec ledger model.npz --html ledger.html"],
    )
    command.add_argument("file", metavar="MODEL", type=Path, help="as saved by fit --out, or a ledger's own .json")
    command.add_argument("--html", type=Path, metavar="FILE", help="write a page for a browser or the printer")
    command.add_argument("--markdown", type=Path, metavar="FILE", help="write the same as Markdown")


def run_ledger(arguments: argparse.Namespace) -> dict[str, Any] | str:
    """Answer, and write the pages."""
    pages = [(arguments.html, ".html"), (arguments.markdown, ".md")]
    for page, ending in pages:
        if page is None:
            continue
        if page.suffix.lower() != ending or page.is_dir() or not page.parent.is_dir():
            raise UsageError(f"{page} must be a file in a folder that exists, and end in {ending}")
        check_destination(page)
    ledger, about = _read(arguments.file)
    written = [page for page, _ in pages if page is not None]
    for page in written:
        ledger.report(page, about=about)
    if arguments.json:
        return {
            "model": about,
            "privacy": ledger.to_dict(),
            "digest": ledger.digest(),
            "pages": [str(page) for page in written],
        }
    parts = [f"Ledger of {about}", ledger.summary().rstrip(), f"Digest: {ledger.digest()}"]
    return "\n\n".join([*parts, *(f"Written: {page}" for page in written)])


def _read(path: Path) -> SavedLedger:
    if path.suffix.lower() != ".json":
        return read_ledger(path)
    if path.stat().st_size > _LARGEST_JSON:
        raise ValueError(f"{path} has {path.stat().st_size} bytes, and no ledger has more than {_LARGEST_JSON}")
    try:
        return SavedLedger(Ledger.from_json(path.read_text(encoding="utf-8")), path.name)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is no JSON in UTF-8 ({error.reason})") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
