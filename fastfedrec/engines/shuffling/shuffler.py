"""The shuffler: a separate process that removes the sender and time of reports, and forwards only whole batches.

Nodes send it their users' single reports in each round, sealed to the server's key (`sealing`), so it cannot read them.
The server gets all reports of a round at once, in random order, if they come from at least a public number of users;
otherwise it gets none.  The trust model is in docs/how-to/deploy-with-flower.md.  The command `fastfedrec shuffler`
runs a shuffler.
"""

import mmap
import os
import threading
import time
from collections import Counter
from typing import Any

import numpy as np

from fastfedrec.core.check import check_integer
from fastfedrec.core.log import RoundTotals, log_round
from fastfedrec.core.old_names import OldAttribute
from fastfedrec.core.randomness import Key
from fastfedrec.engines.deployment.node_memory import check_run_name
from fastfedrec.engines.shuffling.client import ShufflerClient
from fastfedrec.engines.shuffling.journal import ReleaseJournal
from fastfedrec.engines.shuffling.refusals import ShufflerError
from fastfedrec.engines.shuffling.reports import read_codes, report_width
from fastfedrec.engines.shuffling.sealing import SEALED_BYTES, read_key_name

__all__ = ["Shuffler", "ShufflerClient", "ShufflerError"]

_ORDER = "shuffler.order"


class Shuffler:
    """Buffer of a round's reports, and the rules of their release; `fastfedrec shuffler` serves it on a socket.

    One round is open at a time.  Its reports are only in memory, so a crash loses them; nodes send the same reports
    again when the server reopens the round.  The numbers of released rounds are on disk.  A round is released only
    once, since two batches that differ by one node would reveal that node's reports.

    Parameters
    ----------
    min_crowd : int
        Public minimum number of users in a batch, at least 2.
    n_reports : int
        Number of reports of each user in a round, at least 1.
    n_coordinates : int
        Number of coordinates that a report can be about: entries of the item factors (or of the rotated ones).
    folder : path-like
        Folder that records the released rounds, which only its owner can read.
    max_users : int
        Maximum number of users of a node.
    max_nodes : int
        Maximum number of nodes that send reports in a round.
    max_memory : int
        Maximum number of bytes of a round's reports, those in transfer included.  A release takes up to
        four times as many, and up to nine times for unsealed reports of 4 bytes.
    server_key : path-like or None
        PEM file with the server's public key, which reports must be sealed to.  None accepts reports that the shuffler
        can read; nodes send them only with ``client_app(..., unsealed=True)``.

    Raises
    ------
    DamagedFileError
        The folder's list of released rounds cannot be read; the message has the remedy.
    FolderInUseError
        Another shuffler uses the folder.

    Examples
    --------
    >>> import tempfile
    >>> from fastfedrec.engines.shuffling.shuffler import Shuffler, ShufflerError
    >>> shuffler = Shuffler(2, n_reports=1, n_coordinates=10, folder=tempfile.mkdtemp())
    >>> shuffler.open("0" * 32, 0)
    False
    >>> shuffler.submit("0" * 32, 0, "north", bytes([7, 0, 0, 0]))
    >>> try:
    ...     shuffler.release("0" * 32, 0)
    ... except ShufflerError as error:
    ...     print(error)
    a batch must have at least 2 users, got reports of 1
    >>> shuffler.submit("0" * 32, 0, "south", bytes([7, 0, 0, 0]))
    >>> len(shuffler.release("0" * 32, 0)) // 4
    2
    """

    def __init__(
        self,
        min_crowd: int,
        n_reports: int,
        n_coordinates: int,
        folder: str | os.PathLike[str],
        *,
        max_users: int = 100_000,
        max_nodes: int = 1_000,
        max_memory: int = 2**30,
        server_key: str | os.PathLike[str] | None = None,
    ):
        self.min_crowd = check_integer("min_crowd", min_crowd, low=2)
        self.n_reports = check_integer("n_reports", n_reports, low=1)
        self.n_coordinates = check_integer("n_coordinates", n_coordinates, low=1, high=2**62)
        self._server_key = None if server_key is None else read_key_name(server_key)
        # Bytes of a report.
        self._width = SEALED_BYTES if self._server_key else report_width(self.n_coordinates).itemsize
        self.max_memory = check_integer("max_memory", max_memory, low=1, high=None)
        # Bytes of a node's message.
        self.max_bytes = check_integer("max_users", max_users, low=1) * self.n_reports * self._width
        self._max_nodes = check_integer("max_nodes", max_nodes, low=1)
        self._journal = ReleaseJournal(folder)
        self._open: tuple[str, int] | None = None
        # Reports by sender, until the release.
        self._reports: dict[str, bytes | mmap.mmap] = {}
        # The batch of the open round after its release, for a server that lost its copy.
        self._batch: bytes | None = None
        # Refused messages of the open round by kind, and the time of its start; for the log.
        self._refused: Counter[str] = Counter()
        self._begun = 0.0
        self._lock = threading.Lock()

    def close(self) -> None:
        """Unlock the folder for another shuffler; do not use this one afterwards."""
        self._journal.close()

    @property
    def n_bytes(self) -> int:
        """Number of bytes of the open round's reports in memory.

        Returns
        -------
        int
            Bytes of accepted messages, without a released batch.
        """
        return sum(map(len, list(self._reports.values())))

    def count_refusal(self, kind: str) -> None:
        """Count a message that was refused, for the log of the open round.

        Parameters
        ----------
        kind : str
            Kind of the reason, as in `ShufflerError`.
        """
        with self._lock:
            self._refused[kind] += 1

    def about(self) -> dict[str, Any]:
        """Return the configuration, which nodes and the server check before they send reports.

        Returns
        -------
        dict
            Public numbers "min_crowd", "n_reports" and "n_coordinates"; "server_key" has the name of the server's
            public key, and is missing if the shuffler reads reports.
        """
        numbers = {"min_crowd": self.min_crowd, "n_reports": self.n_reports, "n_coordinates": self.n_coordinates}
        return numbers if self._server_key is None else numbers | {"server_key": self._server_key}

    def open(self, run: str, round: int) -> bool:
        """Open a round for reports, and drop the reports of any other round.

        Parameters
        ----------
        run : str
            Name of the run, 32 hexadecimal digits.
        round : int
            Number of the round, greater than any released one of the run.

        Returns
        -------
        bool
            Whether this round is already released, with its batch available for a server that lost it.

        Raises
        ------
        ShufflerError
            The round was released before, and its batch is gone.
        """
        name = _round_name(run, round)
        with self._lock:
            if name == self._open:
                return self._batch is not None
            if round <= self._journal.last_round(run):
                raise ShufflerError(f"round {round} was released before, and its reports are gone", is_final=True)
            self._log_end("given up")
            self._open, self._reports, self._batch = name, {}, None
            self._refused, self._begun = Counter(), time.monotonic()
            return False

    wants = OldAttribute("expects")

    def expects(self, run: str, round: int, sender: str) -> bool:
        """Check whether a sender's reports of a round are missing; errors are the same as of `submit`.

        Parameters
        ----------
        run : str
            Name of the run.
        round : int
            Number of the open round.
        sender : str
            Name of the sender.

        Returns
        -------
        bool
            False if the reports are already here.

        Raises
        ------
        ShufflerError
            The round is not open or is over, or the maximum number of nodes have sent reports.
        """
        with self._lock:
            return self._is_missing(_round_name(run, round), sender)

    def _is_missing(self, name: tuple[str, int], sender: str) -> bool:
        """Check whether a sender's reports are missing, and raise if the round does not accept them."""
        if name != self._open:
            raise ShufflerError("the round is not open", kind="not open")
        if self._batch is not None:
            raise ShufflerError("the round is over", is_final=True, kind="late")
        if sender not in self._reports and len(self._reports) >= self._max_nodes:
            raise ShufflerError(f"{self._max_nodes} nodes have sent reports, which is the maximum", kind="full")
        return sender not in self._reports

    def submit(self, run: str, round: int, sender: str, body: bytes | mmap.mmap) -> None:
        """Accept all reports of one node in a round; a repeated submission has no effect.

        Parameters
        ----------
        run : str
            Name of the run.
        round : int
            Number of the open round.
        sender : str
            Name of the sender, which the shuffler deletes at the release.
        body : bytes
            Reports from `PublicKeys.seal`, or from `encode_reports` without a server's key; `n_reports` for each user.

        Raises
        ------
        ShufflerError
            The reports are invalid, or belong to another round.
        """
        name = _round_name(run, round)
        if len(body) > self.max_bytes:
            raise ShufflerError(f"a node's message must have at most {self.max_bytes} bytes, got {len(body)}")
        n_reports = self._count_reports(body)
        if n_reports % self.n_reports:  # 0 reports are valid: a node without users sends none
            raise ShufflerError(f"each user must send {self.n_reports} reports, got {n_reports} in total")
        with self._lock:
            if self._is_missing(name, sender):
                self.check_memory(len(body))
            self._reports.setdefault(sender, body)

    def check_memory(self, n_bytes: int) -> None:
        """Raise if there is no memory for more bytes of reports.

        Parameters
        ----------
        n_bytes : int
            Number of bytes in addition to the accepted messages.

        Raises
        ------
        ShufflerError
            The round's reports would take more than `max_memory`.
        """
        if self.n_bytes + n_bytes > self.max_memory:
            raise ShufflerError(
                f"the reports of a round may take {self.max_memory} bytes of memory, and this message exceeds them; "
                "start the shuffler with more memory",
                kind="full",
            )

    def _count_reports(self, body: bytes | mmap.mmap) -> int:
        """Return the number of reports of a message, or raise if it is not a whole number of valid reports."""
        if self._server_key is not None:
            if len(body) % SEALED_BYTES:
                raise ShufflerError(f"sealed reports must have {SEALED_BYTES} bytes each, got {len(body)} in total")
            return len(body) // SEALED_BYTES
        try:
            return len(read_codes(body, self.n_coordinates))
        except ValueError as error:
            raise ShufflerError(str(error)) from None

    def release(self, run: str, round: int, n_users: int = 0) -> bytes:
        """Return all reports of a round and delete their senders; a repeated call returns the same bytes.

        Parameters
        ----------
        run : str
            Name of the run.
        round : int
            Number of the open round.
        n_users : int
            Minimum number of users for the server; below `min_crowd` it has no effect.

        Returns
        -------
        bytes
            Reports as nodes sent them, in random order.

        Raises
        ------
        ShufflerError
            There are too few users, or the round is not open.
        """
        name = _round_name(run, round)
        with self._lock:
            if name != self._open:
                raise ShufflerError("the round is not open")
            if self._batch is None:
                n_received = self.n_bytes // self._width // self.n_reports
                if n_received < max(self.min_crowd, n_users):
                    raise ShufflerError(
                        f"a batch must have at least {max(self.min_crowd, n_users)} users, got reports of {n_received}"
                    )
                batch = _mix(b"".join(self._reports.values()), self._width)
                # Recorded before the batch leaves: a crash here loses the round, but cannot release it twice.
                self._journal.record(run, round)
                self._log_end("released")
                self._batch, self._reports = batch.tobytes(), {}
            return self._batch

    def _log_end(self, outcome: str) -> None:
        """Log the open round, if it ends now."""
        if self._open is None or self._batch is not None:
            return
        run, number = self._open
        totals = RoundTotals(len(self._reports), self._refused, time.monotonic() - self._begun, self.n_bytes)
        text = f"shuffler: round {number} of run {run[:8]} is {outcome}"
        log_round(text, totals, process="shuffler", round=number, outcome=outcome)


def _mix(reports: bytes, width: int) -> np.ndarray:
    """Return reports of `width` bytes in an order that is independent of the order of arrival."""
    rows = np.frombuffer(reports, dtype=f"V{width}")
    # The first bytes: the whole code, or a part of the fresh key of a sealed report.
    starts = np.ndarray((len(rows),), dtype=f"<u{min(width, 8)}", buffer=reports, strides=(width,))
    # Sorting removes the order of arrival, independently of the random permutation.
    order = np.argsort(starts)[Key.from_entropy().permutation(_ORDER, size=len(rows), n_threads=0)]
    return rows[order]


def _round_name(run: Any, round_number: Any) -> tuple[str, int]:
    try:
        return check_run_name(run), check_integer("round", round_number, low=0, high=2**32 - 1)
    except (TypeError, ValueError) as error:
        raise ShufflerError(str(error)) from None
