"""Tables of the page on hardening, from its stored record, which `tests/support/records.py` writes."""

import json
from pathlib import Path

_RECORD = json.loads((Path(__file__).parents[1] / "explanation" / "hardening.json").read_text())


def format_memory():
    """Return the declared and the measured memory of fits as a table, with its machine and date."""
    memory = _RECORD["memory"]
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
    timing = _RECORD["timing"]
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


def format_soak():
    """Return the memory and the answers of long runs as a table, with their machines and dates."""
    lines = [
        "| engine | rounds | accepted | refused or missing | memory at round 50 | growth | measured |",
        "|---|---:|---:|---:|---:|---:|---|",
    ]
    for part, run in _RECORD.items():
        if part.startswith("soak "):
            counts = " | ".join(f"{run[name]:,}" for name in ("rounds", "accepted", "not_accepted"))
            sizes = f"{_megabytes(run['memory'])} | {_megabytes(run['growth'])}"
            lines.append(f"| {part[5:]} | {counts} | {sizes} | {run['date']}: {run['machine']} |")
    return "\n".join(lines) + "\n"


def format_fuzzing():
    """Return the executions of each reader and in all as a table, with machine and date."""
    fuzzing = _RECORD["fuzzing"]
    rows = fuzzing["rows"].values()
    lines = [
        f"Measured until {fuzzing['date']}: {fuzzing['machine']}.",
        "",
        "| reader | executions | hours | branches |",
        "|---|---:|---:|---:|",
    ]
    for name, row in fuzzing["rows"].items():
        hours = row["seconds"] / 3600
        lines.append(f"| {name.replace('_', ' ')} | {row['executions']:,} | {hours:.2f} | {row['branches']:,} |")
    total, hours = sum(row["executions"] for row in rows), sum(row["seconds"] for row in rows) / 3600
    return "\n".join([*lines, f"| in all | {total:,} | {hours:.2f} | |"]) + "\n"


def format_kills():
    """Return the kills of each system, and the results that were compared, as a table, with machine and date."""
    kills = _RECORD["kills"]
    lines = [
        f"Measured on {kills['date']}: {kills['machine']}.",
        "",
        "| system | kills | after a recorded round | runs to the end |",
        "|---|---:|---:|---:|",
    ]
    for name, row in kills["rows"].items():
        lines.append(f"| {name} | {row['killed']:,} | {row['recorded']:,} | {row['ended']:,} |")
    return "\n".join(lines) + "\n"


def _microseconds(nanoseconds):
    return f"{nanoseconds / 1e3:,.2f} us"
