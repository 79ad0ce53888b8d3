"""Measure how plain the project's English is, and fail if a figure is above its limit.

Usage::

    python .ci/plain_words.py [--lines N] [PATH ...]

Prose is: docstrings without Examples and References, descriptions of parameters and options, labels of plots, comments,
texts of exceptions and warnings, and Markdown outside code blocks.  The limits are three to five times the values of
scikit-learn, SciPy's optimize and implicit.  Without a PATH each of `GROUPS` must keep them.
"""

import argparse
import ast
import io
import itertools
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

# Each group is measured alone, so that a large folder does not hide the faults of a small one.
GROUPS = (
    ("README.md", "docs"),
    ("fastfedrec",),
    ("_kernels",),
    ("tests",),
    (
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "Makefile",
        "pyproject.toml",
        "setup.py",
        ".ci",
        "benches",
        "examples",
    ),
)
# For each name a pattern of words that replace a standard term, and the limit of their number in 10,000 words.
WORDS = {
    "what": (r"what|whatever", 5.0),
    "tell": (r"tells?|told|telling", 1.0),
    "say": (r"says?|said|saying", 2.0),
    "nobody": (r"nobody|somebody|everybody|anybody|whoever", 0.5),
    "nothing": (r"nothing", 4.0),
    "ask": (r"asks?|asked|asking", 1.5),
    "people": (r"people|strangers?", 1.5),
    "door": (r"doors?", 0.1),
    "hear": (r"hears?|heard|spoken|speaks?", 0.3),
    "whose": (r"whose|whom|of which|those of|that of", 6.0),
    "stand": (r"stands?|stood|lies?|borne?|bears?", 2.5),
    "so many": (r"so many|as many as|in turns?|by itself|one by one|no more than|in vain|perhaps", 3.0),
}
PATTERNS = {name: re.compile(rf"\b(?:{words})\b", re.IGNORECASE) for name, (words, _) in WORDS.items()}
FRAGMENT = re.compile(
    r"(Of|What|Whose|Who|Whether|Where|As|That|Those|Which|By|Beyond|Without|How|From|To|Likewise|So|Else)\b"
)
VAGUE_NAME = re.compile(
    r"^(found|told?|tell\w*|say\w*|ask\w*|hear\w*|own|kept|wanted|others|left|rest|again|once|door\w*|stranger\w*"
    r"|nobody\w*|least\w*|most\w*|where|each|many|together|beyond|inside|twice|alone|things?|heat|place[sd]?|law)$",
    re.IGNORECASE,
)
MAX_FRAGMENT_SHARE = 0.02  # of the sentences in Python files
MAX_VAGUE_SHARE = 0.012  # of the names that Python files bind
MIN_COMMENT_SHARE = 0.03  # of the lines of all Python files that are not blank
TEXT_ARGUMENTS = ("help", "label", "title", "xlabel", "ylabel")  # keywords of texts that users read


def prose_of_python(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each docstring, message, label and comment."""
    text = path.read_text()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if docstring := ast.get_docstring(node):
                yield node.body[0].lineno, re.split(r"\n(?:Examples|References|See Also)\n-+", docstring)[0]
        elif (
            isinstance(node, ast.Raise)
            or (isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("warn", "doc"))
            or (isinstance(node, ast.keyword) and node.arg in TEXT_ARGUMENTS)
        ):
            for part in ast.walk(node):
                if isinstance(part, ast.Constant) and isinstance(part.value, str) and " " in part.value:
                    yield part.lineno, part.value
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and not token.string.startswith(("#!", "# type", "# noqa", "# ----")):
            yield token.start[0], token.string.lstrip("#: ")


def prose_of_comments(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each comment of a file in C++, Cython, TOML, make or shell."""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if mark := re.search(r"(?://|#|^\s*\*)\s+(\w.*)", line):
            yield number, mark[1]


def prose_of_markdown(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines outside code blocks, without code, formulas and link targets."""
    in_code = False
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if line.lstrip().startswith("```"):
            in_code = not in_code
        elif not in_code and line.strip():
            yield number, re.sub(r"`[^`]*`|\$[^$]*\$|\]\([^)]*\)", " ", line)


# Keys are suffixes of files, or names of files without a suffix.
Reader = Callable[[Path], Iterator[tuple[int, str]]]
READERS: dict[str, Reader] = {".py": prose_of_python, ".md": prose_of_markdown}
READERS |= dict.fromkeys((".pyx", ".pxd", ".cpp", ".h", ".toml", "Makefile", "run", "nightly"), prose_of_comments)


def files_of(paths: Sequence[str]) -> Iterator[tuple[Path, Reader]]:
    """Yield the files with prose among these files and below these folders, each with its reader."""
    for path in map(Path, paths):
        for file in [path] if path.is_file() else sorted(path.rglob("*")):
            parts = file.relative_to(path).parts
            is_generated = any(part.startswith((".", "_build", "_generated")) for part in parts)
            reader = READERS.get(file.suffix or file.name)
            if reader is not None and not is_generated:
                yield file, reader


def bound_names(text: str) -> Iterator[str]:
    """Yield the names of variables, functions, classes and parameters of a Python file."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg


def is_vague(name: str) -> bool:
    """Return whether a name, or its first word, names no content."""
    return any(VAGUE_NAME.match(part) for part in (name, name.strip("_").split("_")[0]))


def measure(paths: Sequence[str]) -> tuple[Counter[str], list[tuple[int, str]]]:
    """Return the counts of all files, and the number of hits with the text of each piece of prose that has any."""
    counts: Counter[str] = Counter()
    pieces = []
    for file, reader in files_of(paths):
        is_python = file.suffix == ".py"
        for number, text in reader(file):
            hits = Counter({name: len(pattern.findall(text)) for name, pattern in PATTERNS.items()})
            sentences = [s for s in re.split(r"(?<=[.!?])\s+|\n\n", text) if is_python and len(s.split()) > 2]
            hits["fragments"] = sum(FRAGMENT.match(sentence.strip()) is not None for sentence in sentences)
            counts += hits
            counts += Counter(words=len(re.findall(r"[A-Za-z']+", text)), sentences=len(sentences))
            if hits.total():
                pieces.append((hits.total(), f"{file}:{number}: {' '.join(text.split())[:150]}"))
        if is_python:
            text = file.read_text()
            lines = [line.lstrip() for line in text.splitlines() if line.strip()]
            counts += Counter(lines=len(lines), comments=sum(line.startswith("#") for line in lines))
            names = list(bound_names(text))
            counts += Counter(names=len(names), vague=sum(map(is_vague, names)))
    return counts, pieces


def main() -> None:
    """Print the figures of each group, and exit with 1 if one is above its limit."""
    parser = argparse.ArgumentParser(description="Measure how plain the project's English is.")
    parser.add_argument("paths", nargs="*", metavar="PATH", help="files and folders, measured as one group")
    parser.add_argument("--lines", type=int, default=0, metavar="N", help="also print the N worst pieces of prose")
    arguments = parser.parse_args()
    too_large: dict[str, None] = {}  # in order, and without repetition
    total: Counter[str] = Counter()
    for paths in [arguments.paths] if arguments.paths else GROUPS:
        counts, pieces = measure(paths)
        print(f"# {', '.join(paths)}")
        too_large |= dict.fromkeys(report(counts))
        total += counts
        for _, line in itertools.islice(sorted(pieces, key=lambda pair: -pair[0]), arguments.lines):
            print(f"  {line}")
    comments = total["comments"] / max(total["lines"], 1)
    print(f"lines of comments {comments:.1%} (at least {MIN_COMMENT_SHARE:.0%})")
    if total["lines"] and comments < MIN_COMMENT_SHARE:
        too_large["comments (too few)"] = None
    if too_large:
        sys.exit(f"above the limit: {', '.join(too_large)}; --lines 40 prints where; see CONTRIBUTING.md, Words")


def report(counts: Counter[str]) -> list[str]:
    """Print the figures of a group, and return the names of the figures above their limits."""
    figures = [(name, 1e4 * counts[name] / max(counts["words"], 1), limit) for name, (_, limit) in WORDS.items()]
    shares = [
        ("fragments", counts["fragments"] / max(counts["sentences"], 1), MAX_FRAGMENT_SHARE),
        ("vague names", counts["vague"] / max(counts["names"], 1), MAX_VAGUE_SHARE),
    ]
    print(f"{counts['words']:,} words; per 10,000 (limit): " + ", ".join(f"{n} {v:.1f} ({m:g})" for n, v, m in figures))
    print(", ".join(f"{name} {value:.1%} ({limit:.1%})" for name, value, limit in shares))
    return [name for name, value, limit in (*figures, *shares) if value > limit]


if __name__ == "__main__":
    main()
