"""Every table of a reproduction's page as a CSV file below it: made when the pages are built, so none is behind."""

import csv
import io
import re

TABLE = re.compile(r"^\|.*\|\n\|[-: |]+\|\n(?:\|.*\|\n)+", re.MULTILINE)
HEADING = re.compile(r"^## ([^:\n]+)", re.MULTILINE)
MARKS = re.compile(r"\*\*|`")


def rows_of(table):
    """Cells of a table in Markdown, without its marks; a bar behind a backslash is no border."""
    head, _, *body = table.strip().splitlines()
    for line in (head, *body):
        yield [MARKS.sub("", cell).replace("\\|", "|").strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def as_csv(table):
    """The same as CSV."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows_of(table))
    return text.getvalue()


def name_of(text, place, taken):
    """A name for the table at a place: its section's, numbered where there are several."""
    headings = [found[1] for found in HEADING.finditer(text) if found.start() < place]
    name = re.sub(r"\W+", "-", (headings or ["table"])[-1].lower()).strip("-")
    number = sum(other.rpartition("_")[0] == name or other == name for other in taken)
    return f"{name}_{number + 1}" if number else name


def downloads(text):
    """(place behind it, name, CSV) of each table of a page."""
    taken = []
    for found in TABLE.finditer(text):
        taken.append(name_of(text, found.start(), taken))
        yield found.end(), taken[-1], as_csv(found[0])


def connect(app):
    """Write the files, and put a link below each table."""

    def add(app, page, source):
        folder, _, stem = page.rpartition("/")
        if folder != "reproductions" or stem == "index":
            return
        written = app.srcdir / "_generated" / "csv"
        written.mkdir(parents=True, exist_ok=True)
        text = source[0]
        for place, name, table in reversed(list(downloads(text))):
            (written / f"{stem}-{name}.csv").write_text(table)
            link = f"\n{{download}}`These numbers as CSV <../_generated/csv/{stem}-{name}.csv>`\n"
            text = text[:place] + link + text[place:]
        source[0] = text

    app.connect("source-read", add)
