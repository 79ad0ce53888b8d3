"""Short pages of the documentation that a wheel contains, as Markdown; `setup.py` reads this file without imports."""

from pathlib import Path, PurePosixPath

__all__ = ["find_pages", "is_page", "list_pages"]

#: Pages in every wheel, as patterns below the checkout.
PATTERNS = (
    "docs/tutorial/*.md",
    "docs/how-to/*.md",
    "docs/explanation/faq.md",
    "docs/explanation/glossary.md",
    "docs/explanation/known-vulnerabilities.md",
    "docs/explanation/limits.md",
    "docs/explanation/evaluation/metrics.md",
)


def is_page(name: str) -> bool:
    """Check whether wheels contain a file of the checkout; an index has only links."""
    path = PurePosixPath(name)
    return path.name != "index.md" and any(path.match(pattern) for pattern in PATTERNS)


def list_pages(root: Path) -> list[Path]:
    """Return the pages below a folder."""
    paths = [path for pattern in PATTERNS for path in sorted(root.glob(pattern))]
    return [path for path in paths if is_page(path.relative_to(root).as_posix())]


def find_pages() -> dict[str, Path]:
    """Return the path of each page by its topic, in the installed package or else in the checkout."""
    package = Path(__file__).parents[1]
    paths = list_pages(package) or list_pages(package.parent)
    return {path.stem: path for path in paths}
