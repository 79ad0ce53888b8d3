"""The command ``fastfedrec ledger``: the privacy cost of a saved model, also as a page for approval."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fastfedrec.cli.inputs import UsageError
from fastfedrec.cli.ledgers import read_json_ledger
from fastfedrec.core.files import check_destination
from fastfedrec.systems.recommender import load
from fastfedrec.systems.saved_ledger import SavedLedger, read_ledger

__all__ = ["add_ledger"]


def add_ledger(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the command to the parser of `main`."""
    command = add(
        "ledger",
        run_ledger,
        "Print the privacy cost of a saved model, write it as a page for approval, or write the model's card. Only "
        "--card reads users' rows.",
        ["fastfedrec ledger model.npz --html ledger.html", "fastfedrec ledger model.npz --card card.md"],
    )
    command.add_argument("file", metavar="MODEL", type=Path, help="file saved by fit --out, or a ledger's .json")
    command.add_argument("--html", type=Path, metavar="FILE", help="write a page for a browser or printer")
    command.add_argument("--markdown", type=Path, metavar="FILE", help="write the page as Markdown")
    command.add_argument("--card", type=Path, metavar="FILE", help="write the model's card, a .html or .md file")
    command.add_argument("--purpose", metavar="TEXT", help="with --card: sentences on the model's intended use")


def run_ledger(arguments: argparse.Namespace) -> dict[str, Any] | str:
    """Return the ledger, and write the pages."""
    endings = {"html": (".html",), "markdown": (".md",), "card": (".html", ".md")}
    pages = {name: page for name in endings if (page := getattr(arguments, name)) is not None}
    # Destinations are checked before anything is read or written.
    for name, page in pages.items():
        if page.suffix.lower() not in endings[name]:
            raise UsageError(f"--{name} {page} must end in {' or '.join(endings[name])}")
        check_destination(page, f"--{name}")
    if arguments.card is not None and arguments.file.suffix.lower() == ".json":
        raise UsageError(f"--card needs a model's file, got the ledger {arguments.file}; pass the file of fit --out")
    if arguments.purpose is not None and arguments.card is None:
        raise UsageError("--purpose is a part of the model's card; pass --card FILE, or leave it out")
    ledger, about = _read(arguments.file)
    for page in (arguments.html, arguments.markdown):
        if page is not None:
            ledger.report(page, about=about)
    if arguments.card is not None:
        load(arguments.file).card(arguments.card, purpose=arguments.purpose)
    if arguments.json:
        return {
            "model": about,
            "privacy": ledger.to_dict(),
            "digest": ledger.digest(),
            "pages": [str(page) for page in pages.values()],
        }
    parts = [f"Ledger of {about}", ledger.summary().rstrip(), f"Digest: {ledger.digest()}"]
    return "\n\n".join([*parts, *(f"Written: {page}" for page in pages.values())])


def _read(path: Path) -> SavedLedger:
    if path.suffix.lower() != ".json":
        return read_ledger(path)
    return SavedLedger(read_json_ledger(path), path.name)
