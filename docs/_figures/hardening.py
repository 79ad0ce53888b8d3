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


def format_timing():
    """Return t of every timed call as tables, the longer times with their difference, with machine and date."""
    timing = json.loads(RECORD.read_text())["timing"]
    groups = {}
    for row in timing["rows"]:
        if row["kind"] == "constant":
            name, _, inputs = row["call"].rpartition(", ")
            groups.setdefault(name, []).append((inputs, row))
    lines = [
        f"Measured on {timing['date']} by {timing['n_calls']:,} calls each: {timing['machine']}.",
        "",
        "| call | median | t by inputs |",
        "|---|---:|---|",
    ]
    for name, cases in groups.items():
        figures = ", ".join(f"{inputs} {row['t']:.1f}" for inputs, row in cases)
        lines.append(f"| {name} | {_microseconds(cases[0][1]['median_ns'])} | {figures} |")
    lines += ["", "| call that takes longer | median | longer by | t |", "|---|---:|---:|---:|"]
    for row in timing["rows"]:
        if row["kind"] != "constant":
            figures = _microseconds(row["median_ns"]), _microseconds(row["difference_ns"]), f"{row['t']:,.0f}"
            lines.append(f"| {row['call']} | {' | '.join(figures)} |")
    return "\n".join(lines) + "\n"


def _microseconds(nanoseconds):
    return f"{nanoseconds / 1e3:,.2f} us"
