"""Table of long runs on the page on hardening, from its stored record."""

import json
from pathlib import Path

RECORD = Path(__file__).parents[1] / "explanation" / "soak.json"


def format_soak():
    """Return the memory and the answers of long runs as a table, with their machines and dates."""
    lines = [
        "| engine | rounds | accepted | refused or missing | memory at round 50 | growth | measured |",
        "|---|---:|---:|---:|---:|---:|---|",
    ]
    for engine, run in json.loads(RECORD.read_text()).items():
        counts = " | ".join(f"{run[name]:,}" for name in ("rounds", "accepted", "not_accepted"))
        sizes = f"{run['memory'] / 1e6:,.1f} MB | {run['growth'] / 1e6:,.1f} MB"
        lines.append(f"| {engine} | {counts} | {sizes} | {run['date']}: {run['machine']} |")
    return "\n".join(lines) + "\n"
