"""The shuffler: a separate process that removes the sender and time of reports, and forwards only whole batches.

Nodes send it their users' single reports in each round.  The server gets all reports of a round at once, in random
order, if they come from at least a public number of users; otherwise it gets none.  The trust model is in
docs/how-to/deploy-with-flower.md.  The command `fastfedrec shuffler` runs a shuffler.
"""

import http.client
import json
import os
import ssl
import threading
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import quote, urlsplit

import numpy as np

from fastfedrec.core.check import check_instance, check_integer, check_real
from fastfedrec.core.files import check_path
from fastfedrec.core.folder_lock import FolderLock
from fastfedrec.core.kept_files import checking, is_kept, read_document, write_document
from fastfedrec.core.old_names import OldAttribute
from fastfedrec.core.randomness import Key
from fastfedrec.engines.deployment.node_memory import check_run_name
from fastfedrec.engines.shuffling.reports import decode_reports, report_width

__all__ = ["Shuffler", "ShufflerClient", "ShufflerError"]

_ORDER = "shuffler.order"
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_REMEDY = (
    "without it a round could be released twice: restore the file itself, never an older copy of it, or start with a "
    "new folder, for later runs only"
)
# Maximum bytes of an answer that is not a batch.
_MAX_TEXT_BYTES = 4096


class ShufflerError(Exception):
    """Refusal of a shuffler, or failure to reach it.

    Parameters
    ----------
    reason : str
        Reason of the refusal or failure.
    is_final : bool
        Whether a retry is useless.
    """

    def __init__(self, reason: str, *, is_final: bool = False):
        super().__init__(reason)
        self.is_final = is_final


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
    ):
        self.min_crowd = check_integer("min_crowd", min_crowd, low=2)
        self.n_reports = check_integer("n_reports", n_reports, low=1)
        self.n_coordinates = check_integer("n_coordinates", n_coordinates, low=1, high=2**62)
        self.max_bytes = (
            check_integer("max_users", max_users, low=1) * self.n_reports * report_width(self.n_coordinates).itemsize
        )
        self._max_nodes = check_integer("max_nodes", max_nodes, low=1)
        folder = check_path("folder", folder)
        self._path = folder / "released.json"
        # Without the lock, two shufflers could each release the same round.
        self._folder_lock = FolderLock(folder)
        try:
            self._released = _read_released(self._path)
        except BaseException:
            self.close()
            raise
        self._open: tuple[str, int] | None = None
        # Reports by sender, until the release.
        self._reports: dict[str, bytes | bytearray] = {}
        # The batch of the open round after its release, for a server that lost its copy.
        self._batch: bytes | None = None
        self._lock = threading.Lock()

    def close(self) -> None:
        """Unlock the folder for another shuffler; do not use this one afterwards."""
        self._folder_lock.close()

    def about(self) -> dict[str, int]:
        """Return the configuration, which nodes and the server check before they send reports.

        Returns
        -------
        dict of str to int
            Public numbers "min_crowd", "n_reports" and "n_coordinates".
        """
        return {"min_crowd": self.min_crowd, "n_reports": self.n_reports, "n_coordinates": self.n_coordinates}

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
            if round <= self._released.get(run, -1):
                raise ShufflerError(f"round {round} was released before, and its reports are gone", is_final=True)
            self._open, self._reports, self._batch = name, {}, None
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
            raise ShufflerError("the round is not open")
        if self._batch is not None:
            raise ShufflerError("the round is over", is_final=True)
        if sender not in self._reports and len(self._reports) >= self._max_nodes:
            raise ShufflerError(f"{self._max_nodes} nodes have sent reports, which is the maximum")
        return sender not in self._reports

    def submit(self, run: str, round: int, sender: str, body: bytes | bytearray) -> None:
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
            Reports from `encode_reports`, `n_reports` for each user.

        Raises
        ------
        ShufflerError
            The reports are invalid, or belong to another round.
        """
        name = _round_name(run, round)
        if len(body) > self.max_bytes:
            raise ShufflerError(f"a node's message must have at most {self.max_bytes} bytes, got {len(body)}")
        try:
            n_reports = len(decode_reports(body, self.n_coordinates)[0])
        except ValueError as error:
            raise ShufflerError(str(error)) from None
        if n_reports % self.n_reports:  # 0 reports are valid: a node without users sends none
            raise ShufflerError(f"each user must send {self.n_reports} reports, got {n_reports} in total")
        with self._lock:
            self._is_missing(name, sender)
            self._reports.setdefault(sender, body)

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
            Reports as from `encode_reports`, in random order.

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
                width = report_width(self.n_coordinates)
                n_received = sum(map(len, self._reports.values())) // width.itemsize // self.n_reports
                if n_received < max(self.min_crowd, n_users):
                    raise ShufflerError(
                        f"a batch must have at least {max(self.min_crowd, n_users)} users, got reports of {n_received}"
                    )
                # Sorting removes the order of arrival, independently of the random permutation.
                codes = np.sort(np.concatenate([np.frombuffer(body, dtype=width) for body in self._reports.values()]))
                order = Key.from_entropy().permutation(_ORDER, size=len(codes), n_threads=0)
                # Recorded before the batch leaves: a crash here loses the round, but cannot release it twice.
                self._remember(run, round)
                self._batch, self._reports = codes[order].tobytes(), {}
            return self._batch

    def _remember(self, run: str, round_number: int) -> None:
        write_document(self._path, {**self._released, run: round_number})
        self._released[run] = round_number


def _read_released(path: Path) -> dict[str, int]:
    """Return the last released round of each run."""
    if not is_kept(path):
        return {}
    with checking(path, _REMEDY):
        document = read_document(path)
        return {check_run_name(run): check_integer("round", last, low=0) for run, last in document.items()}


def _round_name(run: Any, round_number: Any) -> tuple[str, int]:
    try:
        return check_run_name(run), check_integer("round", round_number, low=0, high=2**32 - 1)
    except (TypeError, ValueError) as error:
        raise ShufflerError(str(error)) from None


class ShufflerClient:
    """Client of a shuffler for nodes and the server, with the methods of `Shuffler`.

    Parameters
    ----------
    url : str
        "https://host:port", or "http://127.0.0.1:port" on the same machine.
    name : str
        Name of this party, used only with http; with https the certificate has the name.
    authority, certificate, private_key : path-like or None
        PEM files for https: the authority of the shuffler's certificate, and this party's certificate and key.
    timeout : float
        Maximum seconds, above 0, without data from the shuffler.

    Raises
    ------
    ValueError
        The URL is malformed, or the connection would not be encrypted and authenticated.
    """

    def __init__(
        self,
        url: str,
        *,
        name: str = "",
        authority: str | os.PathLike[str] | None = None,
        certificate: str | os.PathLike[str] | None = None,
        private_key: str | os.PathLike[str] | None = None,
        timeout: float = 60.0,
    ):
        parts = urlsplit(check_instance("url", url, str, "pass https://host:port"))
        try:
            host, port = parts.hostname, parts.port
        except ValueError:  # the port is not a number, or out of range
            host, port = None, None
        if parts.scheme not in ("http", "https") or not host or not port or parts.path.strip("/"):
            raise ValueError(f"url must be https://host:port, got {url!r}; name a host and a port")
        if parts.scheme == "http" and host not in _LOOPBACK:
            raise ValueError(f"url must be https:// for another machine, got {url!r}; use certificates")
        self._host, self._port, self._name = host, port, check_instance("name", name, str, "pass the party's name")
        self._timeout = check_real("timeout", timeout, low=0.0, exclusive=True)
        self._tls: ssl.SSLContext | None = None
        if parts.scheme == "https":
            if authority is None or certificate is None or private_key is None:
                raise ValueError("https needs authority, certificate and private_key; give all three")
            self._tls = ssl.create_default_context(cafile=os.fspath(authority))
            self._tls.minimum_version = ssl.TLSVersion.TLSv1_3
            self._tls.load_cert_chain(certificate, private_key)

    def about(self) -> dict[str, int]:
        """Return the shuffler's configuration, as `Shuffler.about`.

        Returns
        -------
        dict of str to int
            Numbers "min_crowd", "n_reports" and "n_coordinates"; other keys of the answer are dropped.
        """
        try:
            answer = json.loads(self._request("GET", "/about"))
            return {
                name: check_integer(name, answer[name], low=1) for name in ("min_crowd", "n_reports", "n_coordinates")
            }
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise ShufflerError(f"the shuffler's configuration could not be read ({error})") from error

    def open(self, run: str, round: int) -> bool:
        """Open a round, as `Shuffler.open`.

        Parameters
        ----------
        run : str
            Name of the run.
        round : int
            Number of the round.

        Returns
        -------
        bool
            Whether the round is already released.
        """
        return self._request("POST", f"/open/{quote(run)}/{round}") == b"released"

    def submit(self, run: str, round: int, body: bytes) -> None:
        """Send this party's reports, as `Shuffler.submit`.

        Parameters
        ----------
        run : str
            Name of the run.
        round : int
            Number of the open round.
        body : bytes
            Reports from `encode_reports`.
        """
        self._request("POST", f"/reports/{quote(run)}/{round}", body)

    def release(self, run: str, round: int, n_users: int = 0, *, max_bytes: int) -> bytes:
        """Get the batch of a round, as `Shuffler.release`.

        Parameters
        ----------
        run : str
            Name of the run.
        round : int
            Number of the open round.
        n_users : int
            Minimum number of users in the batch.
        max_bytes : int
            Maximum size of the batch; a larger one is refused unread.

        Returns
        -------
        bytes
            Reports of the batch, as from `encode_reports`.
        """
        return self._request("POST", f"/release/{quote(run)}/{round}/{n_users}", max_bytes=max_bytes)

    def _request(self, method: str, path: str, body: bytes = b"", max_bytes: int = _MAX_TEXT_BYTES) -> bytes:
        """Send a request, and return the answer of at most `max_bytes`; raise ShufflerError for a refusal."""
        if self._tls is None:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=self._timeout)
        else:
            connection = http.client.HTTPSConnection(self._host, self._port, timeout=self._timeout, context=self._tls)
        try:
            headers = {"Content-Length": str(len(body))} | ({"X-Name": quote(self._name)} if self._name else {})
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            length = answer.length
            # The declared length is checked before the answer is read into memory.
            limit = max_bytes if answer.status == 200 else _MAX_TEXT_BYTES
            if length is None or length > limit:
                raise ShufflerError(f"the shuffler's answer must have at most {limit} bytes, got {length}")
            content = answer.read()
        except (OSError, http.client.HTTPException) as error:
            reason = f": {error.verify_message}" if isinstance(error, ssl.SSLCertVerificationError) else ""
            raise ShufflerError(f"the shuffler could not be reached ({type(error).__name__}{reason})") from error
        finally:
            connection.close()
        return content if answer.status == 200 else _refuse(answer.status, content)


def _refuse(status: int, text: bytes) -> NoReturn:
    raise ShufflerError(f"the shuffler refuses: {text[:400].decode(errors='replace')}", is_final=status != 409)
