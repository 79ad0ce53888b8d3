"""What a server heard in the rounds of a run, on its own disk, so that it can be started again."""

import os
from dataclasses import astuple
from pathlib import Path

from fastfedrec._persistence import read_model, write_model
from fastfedrec.accounting import RoundTraffic
from fastfedrec.systems.base import Heard, Rejection, Update


class RoundRecords:
    """One file a round in a folder that only its owner can read: sums as they came, before any noise of the server."""

    def __init__(self, folder: str | os.PathLike):
        self._folder = Path(folder)

    def recall(self, phase: int, round_number: int) -> tuple[Heard, RoundTraffic] | None:
        """What was heard in a round, and what it moved; None in one that is still to come."""
        path = self._path(phase, round_number)
        if not path.exists():
            return None
        header, arrays = read_model(path)
        total = Update(round_number, "merged", header["n_clients"], arrays)
        rejections = tuple(Rejection(*rejection) for rejection in header["rejections"])
        return Heard(total, rejections, frozenset(header["answered"])), RoundTraffic(*header["traffic"])

    def keep(self, phase: int, round_number: int, heard: Heard, traffic: RoundTraffic) -> None:
        """Write down a round, before the server draws its noise."""
        header = {
            "n_clients": heard.total.n_clients, "answered": sorted(heard.answered), "traffic": astuple(traffic),
            "rejections": [astuple(rejection) for rejection in heard.rejections],
        }  # fmt: skip
        write_model(self._path(phase, round_number), header, dict(heard.total.arrays))

    def _path(self, phase: int, round_number: int) -> Path:
        return self._folder / f"round-{phase}-{round_number}"
