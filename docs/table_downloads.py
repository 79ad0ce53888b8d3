"""Write every table of a reproduction's page as a CSV file; each build does this anew, so no file is out of date."""

import csv
import io
import re

TABLE = re.compile(r"^\|.*\|\n\|[-: |]+\|\n(?:\|.*\|\n)+", re.MULTILINE)
HEADING = re.compile(r"^## ([^:\n]+)", re.MULTILINE)
MARKS = re.compile(r"\*\*|`")


def rows_of(table):
    """Yield the rows of a Markdown table as cells without marks."""
    head, _, *body = table.strip().splitlines()
    for line in (head, *body):
        # A bar after a backslash is text, not a border.
        yield [MARKS.sub("", cell).replace("\\|", "|").strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def as_csv(table):
    """Return a Markdown table as CSV."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows_of(table))
    return text.getvalue()


def name_of(text, position, used_names):
    """Return the name of the table at a position: its section's, with a number after the first table."""
    headings = [match[1] for match in HEADING.finditer(text) if match.start() < position]
    name = re.sub(r"\W+", "-", (headings or ["table"])[-1].lower()).strip("-")
    number = sum(used.rpartition("_")[0] == name or used == name for used in used_names)
    return f"{name}_{number + 1}" if number else name


def downloads(text):
    """Yield (end position, name, CSV) of each table of a page."""
    names = []
    for match in TABLE.finditer(text):
        names.append(name_of(text, match.start(), names))
        yield match.end(), names[-1], as_csv(match[0])


def connect(app):
    """Register the step that writes the files and adds a link below each table."""

    def add(app, page, source):
        folder, _, stem = page.rpartition("/")
        if folder != "reproductions" or stem == "index":
            return
        csv_folder = app.srcdir / "_generated" / "csv"
        csv_folder.mkdir(parents=True, exist_ok=True)
        text = source[0]
        # Links are inserted from the end, so that earlier positions stay valid.
        for position, name, table in reversed(list(downloads(text))):
            (csv_folder / f"{stem}-{name}.csv").write_text(table)
            link = f"\n{{download}}`These numbers as CSV <../_generated/csv/{stem}-{name}.csv>`\n"
            text = text[:position] + link + text[position:]
        source[0] = text

    app.connect("source-read", add)
