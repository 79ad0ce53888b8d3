"""The command ``fastfedrec docs``: the package's pages without a network."""

import argparse
import pydoc
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fastfedrec.core.documentation import find_pages
from fastfedrec.core.text import did_you_mean, format_table

__all__ = ["add_docs"]


def add_docs(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the command to the parser of `main`."""
    command = add(
        "docs",
        run_docs,
        "List the pages of the documentation that the package contains, search them, or show one.",
        [
            "fastfedrec docs",
            "fastfedrec docs read-a-ledger",
            "fastfedrec docs shuffler",
            "fastfedrec docs evaluate --path",
        ],
    )
    words = command.add_argument(
        "words", nargs="*", metavar="TOPIC", help="topic of one page, or words that all listed pages contain"
    )
    words.completer = complete_topic  # type: ignore[attr-defined]
    command.add_argument("--path", action="store_true", help="print the paths of the pages instead of their text")


def complete_topic(**_: Any) -> list[str]:
    """Return completions of TOPIC."""
    return list(find_pages())


def run_docs(arguments: argparse.Namespace) -> dict[str, Any] | str | None:
    """Return the list of pages, or the text of one; a terminal shows it with the user's pager."""
    pages = find_pages()
    if not pages:
        raise FileNotFoundError("no pages are installed with this package; reinstall it, or read docs/ in a checkout")
    topic = "-".join(arguments.words).lower()
    selected = {topic: pages[topic]} if topic in pages else search(pages, arguments.words)
    if not selected:
        raise ValueError(
            f"no page contains {' '.join(arguments.words)!r}{did_you_mean(topic, list(pages))}; see fastfedrec docs"
        )
    if arguments.json:
        return {
            "pages": [{"topic": name, "title": title_of(path), "path": str(path)} for name, path in selected.items()]
        }
    if arguments.path:
        return "\n".join(map(str, selected.values()))
    if topic not in pages:
        rows = [(name, title_of(path)) for name, path in selected.items()]
        return f"{format_table(('topic', 'title'), rows)}\nfastfedrec docs TOPIC shows a page."
    text = pages[topic].read_text(encoding="utf-8")
    if not sys.stdout.isatty():
        return text
    pydoc.pager(text)
    return None


def search(pages: dict[str, Path], words: list[str]) -> dict[str, Path]:
    """Return the pages that contain all words; first are those with a heading or a term that begins with them."""
    texts = {name: path.read_text(encoding="utf-8").lower() for name, path in pages.items()}
    found = {name: path for name, path in pages.items() if all(word.lower() in texts[name] for word in words)}
    term = re.compile(rf"^(#+ )?{re.escape(' '.join(words).lower())}", re.MULTILINE)
    return dict(sorted(found.items(), key=lambda page: term.search(texts[page[0]]) is None))


def title_of(path: Path) -> str:
    """Return the first heading of a page."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return next(line.removeprefix("# ") for line in lines if line.startswith("# "))
