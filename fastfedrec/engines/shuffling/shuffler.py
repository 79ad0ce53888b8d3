"""The shuffler: a process of its own, which takes off who sent a report and when, and passes on whole batches only.

Nodes give it their users' single reports, round by round; the server gets all reports of a round at once, in random
order, or, where they come from fewer users than a public number, not at all.  Who trusts whom:
docs/how-to/deploy-with-flower.md.  `fastfedrec shuffler` runs one.
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
from fastfedrec.core.randomness import Key
from fastfedrec.engines.deployment.node_memory import check_run_name
from fastfedrec.engines.shuffling.reports import decode_reports, report_width

__all__ = ["Shuffler", "ShufflerClient", "ShufflerError"]

_ORDER = "shuffler.order"
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_WAY_OUT = (
    "without it a round could be released twice: put back the file itself, never an older copy of it, or start with a "
    "new folder, for runs that begin after that"
)
_LONGEST_TEXT = 4096  # bytes of an answer that is no batch


class ShufflerError(Exception):
    """What a shuffler refuses, or that it could not be reached.

    Parameters
    ----------
    reason : str
        Why.
    is_final : bool
        Whether asking again cannot help.
    """

    def __init__(self, reason: str, *, is_final: bool = False):
        super().__init__(reason)
        self.is_final = is_final


class Shuffler:
    """What a shuffler holds and when it lets go of it; `fastfedrec shuffler` puts it behind a socket.

    One round is open at a time.  Its reports are in memory only, and a process that dies loses them; nodes send the
    same ones again when the server opens the round anew.  On disk are the numbers of the rounds that were released:
    a round is released once, for two batches of which one lacks a node would show that node's reports.

    Parameters
    ----------
    min_crowd : int
        Fewest users whose reports make a batch; public.
    n_reports : int
        Reports of each user in a round.
    n_coordinates : int
        What a report may be about: entries of the item factors (or of the rotated ones).
    folder : path-like
        For the rounds that were released, readable by its owner only.
    max_users : int
        Users for whom one node may send.
    max_nodes : int
        Nodes that may send in one round.

    Raises
    ------
    DamagedFileError
        The folder's list of released rounds cannot be read; the message says what to do.
    FolderInUseError
        Another shuffler has the folder.

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
    1 users have sent reports, and a batch takes 2
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
        self._alone = FolderLock(folder)  # two shufflers would each release the same round
        try:
            self._released = _read_released(self._path)
        except BaseException:
            self.close()
            raise
        self._open: tuple[str, int] | None = None
        self._reports: dict[str, bytes | bytearray] = {}  # by sender, until they are released
        self._batch: bytes | None = None  # of the open round, once it is released: for a server that lost its copy
        self._lock = threading.Lock()

    def close(self) -> None:
        """Let another shuffler have the folder; this one is not to be used any more."""
        self._alone.close()

    def about(self) -> dict[str, int]:
        """What nodes and the server check before they send anything.

        Returns
        -------
        dict of str to int
            All of it public.
        """
        return {"min_crowd": self.min_crowd, "n_reports": self.n_reports, "n_coordinates": self.n_coordinates}

    def open(self, run: str, round: int) -> bool:
        """Let nodes send the reports of a round; what was collected for another is dropped.

        Parameters
        ----------
        run : str
            Its name, 32 hexadecimal digits.
        round : int
            Later than any that was released.

        Returns
        -------
        bool
            Whether this very round has just been released, and its batch is there for a server that lost it.

        Raises
        ------
        ShufflerError
            The round was released before.
        """
        asked = _round_name(run, round)
        with self._lock:
            if asked == self._open:
                return self._batch is not None
            if round <= self._released.get(run, -1):
                raise ShufflerError(f"round {round} was released before, and its reports are gone", is_final=True)
            self._open, self._reports, self._batch = asked, {}, None
            return False

    def wants(self, run: str, round: int, sender: str) -> bool:
        """Whether a sender's reports of a round are still to come; `submit` would refuse them for the same reasons.

        Parameters
        ----------
        run : str
            Its name.
        round : int
            The open one.
        sender : str
            Who asks.

        Returns
        -------
        bool
            False where they are here.

        Raises
        ------
        ShufflerError
            The round is not open, or over, or as many nodes as may have sent reports.
        """
        with self._lock:
            return self._is_awaited(_round_name(run, round), sender)

    def _is_awaited(self, asked: tuple[str, int], sender: str) -> bool:
        if asked != self._open:
            raise ShufflerError("the round is not open")
        if self._batch is not None:
            raise ShufflerError("the round is over", is_final=True)
        if sender not in self._reports and len(self._reports) >= self._max_nodes:
            raise ShufflerError(f"{self._max_nodes} nodes have sent reports, which is all that may")
        return sender not in self._reports

    def submit(self, run: str, round: int, sender: str, body: bytes | bytearray) -> None:
        """Take all reports of one node in a round; what it sends again changes nothing.

        Parameters
        ----------
        run : str
            Its name.
        round : int
            The open one.
        sender : str
            Forgotten when the round is released.
        body : bytes
            As from `encode_reports`; `n_reports` for each user.

        Raises
        ------
        ShufflerError
            Reports that are not sound, or of another round.
        """
        asked = _round_name(run, round)
        if len(body) > self.max_bytes:
            raise ShufflerError(f"at most {self.max_bytes} bytes are taken of one node, got {len(body)}")
        try:
            n_reports = len(decode_reports(body, self.n_coordinates)[0])
        except ValueError as error:
            raise ShufflerError(str(error)) from None
        if n_reports % self.n_reports:  # 0 are those of a node without users
            raise ShufflerError(f"each user sends {self.n_reports} reports, got {n_reports} in all")
        with self._lock:
            self._is_awaited(asked, sender)
            self._reports.setdefault(sender, body)

    def release(self, run: str, round: int, n_users: int = 0) -> bytes:
        """Give all reports of a round away and forget who sent them; asked again, the same bytes.

        Parameters
        ----------
        run : str
            Its name.
        round : int
            The open one.
        n_users : int
            Fewest users that the server wants to hear; below `min_crowd` it says nothing.

        Returns
        -------
        bytes
            As from `encode_reports`, in random order.

        Raises
        ------
        ShufflerError
            Too few users, or no open round.
        """
        asked = _round_name(run, round)
        with self._lock:
            if asked != self._open:
                raise ShufflerError("the round is not open")
            if self._batch is None:
                width = report_width(self.n_coordinates)
                heard = sum(map(len, self._reports.values())) // width.itemsize // self.n_reports
                if heard < max(self.min_crowd, n_users):
                    raise ShufflerError(
                        f"{heard} users have sent reports, and a batch takes {max(self.min_crowd, n_users)}"
                    )
                # Sorted first: then nothing of the order of arrival is left, whatever comes after it.
                codes = np.sort(np.concatenate([np.frombuffer(body, dtype=width) for body in self._reports.values()]))
                order = Key.from_entropy().permutation(_ORDER, size=len(codes), n_threads=0)
                self._remember(run, round)  # before anybody sees it: killed now, the round is lost, not released twice
                self._batch, self._reports = codes[order].tobytes(), {}
            return self._batch

    def _remember(self, run: str, round_number: int) -> None:
        write_document(self._path, {**self._released, run: round_number})
        self._released[run] = round_number


def _read_released(path: Path) -> dict[str, int]:
    """The last round of each run that was released."""
    if not is_kept(path):
        return {}
    with checking(path, _WAY_OUT):
        document = read_document(path)
        return {check_run_name(run): check_integer("round", last, low=0) for run, last in document.items()}


def _round_name(run: Any, round_number: Any) -> tuple[str, int]:
    try:
        return check_run_name(run), check_integer("round", round_number, low=0, high=2**32 - 1)
    except (TypeError, ValueError) as error:
        raise ShufflerError(str(error)) from None


class ShufflerClient:
    """How a node or a server reaches a shuffler; it has the methods of `Shuffler`.

    Parameters
    ----------
    url : str
        "https://host:port"; "http://127.0.0.1:port" only on one machine.
    name : str
        Who this is, on one machine; elsewhere the certificate says so.
    authority, certificate, private_key : path-like or None
        For https: who signed the shuffler's certificate, and this side's own, in PEM.
    timeout : float
        Seconds that the shuffler may be silent.

    Raises
    ------
    ValueError
        A connection that anybody could read or forge.
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
        except ValueError:  # of a port that is no number, or none that there is
            host, port = None, None
        if parts.scheme not in ("http", "https") or not host or not port or parts.path.strip("/"):
            raise ValueError(f"url must be https://host:port, got {url!r}")
        if parts.scheme == "http" and host not in _LOOPBACK:
            raise ValueError(f"url must be https:// beyond this machine, got {url!r}")
        self._host, self._port, self._name = host, port, check_instance("name", name, str, "pass who this is")
        self._timeout = check_real("timeout", timeout, low=0.0, exclusive=True)
        self._tls: ssl.SSLContext | None = None
        if parts.scheme == "https":
            if authority is None or certificate is None or private_key is None:
                raise ValueError("https takes authority, certificate and private_key, all three")
            self._tls = ssl.create_default_context(cafile=os.fspath(authority))
            self._tls.minimum_version = ssl.TLSVersion.TLSv1_3
            self._tls.load_cert_chain(certificate, private_key)

    def about(self) -> dict[str, int]:
        """As `Shuffler.about`.

        Returns
        -------
        dict of str to int
            Whatever else it says is left out.
        """
        try:
            told = json.loads(self._ask("GET", "/about"))
            return {
                name: check_integer(name, told[name], low=1) for name in ("min_crowd", "n_reports", "n_coordinates")
            }
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise ShufflerError(f"what the shuffler says of itself could not be read ({error})") from error

    def open(self, run: str, round: int) -> bool:
        """As `Shuffler.open`.

        Parameters
        ----------
        run : str
            Its name.
        round : int
            To open.

        Returns
        -------
        bool
            Whether its batch is there already.
        """
        return self._ask("POST", f"/open/{quote(run)}/{round}") == b"released"

    def submit(self, run: str, round: int, body: bytes) -> None:
        """As `Shuffler.submit`, under this side's own name.

        Parameters
        ----------
        run : str
            Its name.
        round : int
            The open one.
        body : bytes
            As from `encode_reports`.
        """
        self._ask("POST", f"/reports/{quote(run)}/{round}", body)

    def release(self, run: str, round: int, n_users: int = 0, *, max_bytes: int) -> bytes:
        """As `Shuffler.release`.

        Parameters
        ----------
        run : str
            Its name.
        round : int
            The open one.
        n_users : int
            Fewest users wanted.
        max_bytes : int
            More is not read.

        Returns
        -------
        bytes
            The batch.
        """
        return self._ask("POST", f"/release/{quote(run)}/{round}/{n_users}", max_bytes=max_bytes)

    def _ask(self, method: str, path: str, body: bytes = b"", max_bytes: int = _LONGEST_TEXT) -> bytes:
        if self._tls is None:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=self._timeout)
        else:
            connection = http.client.HTTPSConnection(self._host, self._port, timeout=self._timeout, context=self._tls)
        try:
            headers = {"Content-Length": str(len(body))} | ({"X-Name": quote(self._name)} if self._name else {})
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            length = answer.length
            if length is None or length > (max_bytes if answer.status == 200 else _LONGEST_TEXT):
                raise ShufflerError(f"the shuffler answers with {length} bytes, which is more than it may")
            found = answer.read()
        except (OSError, http.client.HTTPException) as error:
            reason = f": {error.verify_message}" if isinstance(error, ssl.SSLCertVerificationError) else ""
            raise ShufflerError(f"the shuffler could not be reached ({type(error).__name__}{reason})") from error
        finally:
            connection.close()
        return found if answer.status == 200 else _refuse(answer.status, found)


def _refuse(status: int, text: bytes) -> NoReturn:
    raise ShufflerError(f"the shuffler refuses: {text[:400].decode(errors='replace')}", is_final=status != 409)
