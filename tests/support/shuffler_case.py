"""A shuffler in this process, with small groups and messages of nodes."""

import numpy as np

from fastfedrec.engines.shuffling.shuffler import Shuffler

RUN, OTHER = "a" * 32, "b" * 32


def codes(*values):
    return np.array(values, dtype="<u4").tobytes()


def make(folder, min_crowd=2, n_reports=1, n_coordinates=10, **options):
    return Shuffler(min_crowd, n_reports, n_coordinates, folder, **options)


def opened(folder, sent=(), *, round_number=0, **options):
    """Return a shuffler with an open round and messages of some nodes: pairs of a name and reports."""
    shuffler = make(folder, **options)
    shuffler.open(RUN, round_number)
    for name, reports in sent:
        shuffler.submit(RUN, round_number, name, reports)
    return shuffler


def codes_of(batch):
    return np.frombuffer(batch, dtype="<u4")
