"""Stored figures of the page on hardening, with the machine and the date of each measurement."""

import json
from datetime import date
from pathlib import Path

from fastfedrec import doctor

_RECORD = Path(__file__).parents[2] / "docs" / "explanation" / "hardening.json"


def read(part):
    """Return the stored figures of a part; without any, an empty dictionary."""
    return json.loads(_RECORD.read_text()).get(part, {})


def store(part, **figures):
    """Replace the figures of a part."""
    document = json.loads(_RECORD.read_text())
    document[part] = {"date": date.today().isoformat(), "machine": doctor.describe_machine(), **figures}
    _RECORD.write_text(json.dumps(dict(sorted(document.items())), indent=1) + "\n")
