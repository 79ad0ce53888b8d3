"""Every call with numbers of public functions and methods, by name."""

import functools
import importlib

from support import numbers_case, numbers_mechanisms

TABLES = {
    "mechanisms.": numbers_mechanisms.MECHANISMS, "accounting.": numbers_mechanisms.ACCOUNTING,
    "": numbers_case.FUNCTIONS,
}  # fmt: skip
#: Pairs of a name and a case; a name may have several cases.
CALLS = [
    (prefix + name, entry)
    for prefix, cases in TABLES.items()
    for name, case in cases.items()
    for entry in (case if isinstance(case, list) else [case])
]


def resolve(name):
    """The public object of a dotted name without the package's own."""
    parts = ["fastfedrec", *name.split(".")]
    for length in range(len(parts), 0, -1):
        try:
            result = importlib.import_module(".".join(parts[:length]))
        except ImportError:
            continue
        return functools.reduce(getattr, parts[length:], result)
    raise AssertionError(name)
