"""Tables of the page on hardening, from its stored record."""

import json
from pathlib import Path

RECORD = Path(__file__).parents[1] / "explanation" / "hardening.json"


def format_memory():
    """Return the declared and the measured memory of fits as a table, with its machine and date."""
    memory = json.loads(RECORD.read_text())["memory"]
    lines = [
        f"Measured on {memory['date']}: {memory['machine']}.",
        "",
        "| model | users | items | interactions | declared | measured |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for row in memory["rows"]:
        sizes = " | ".join(f"{n:,}" for n in row["shape"])
        lines.append(f"| {row['model']} | {sizes} | {_megabytes(row['declared'])} | {_megabytes(row['measured'])} |")
    return "\n".join(lines) + "\n"


def _megabytes(n_bytes):
    return f"{n_bytes / 1e6:,.1f} MB"
