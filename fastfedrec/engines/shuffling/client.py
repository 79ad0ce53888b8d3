"""Client of a shuffler, for nodes and the server."""

import http.client
import json
import os
import ssl
from typing import Any, NoReturn
from urllib.parse import quote, urlsplit

from fastfedrec.core.check import check_instance, check_integer, check_real
from fastfedrec.engines.shuffling._tls import load_tls
from fastfedrec.engines.shuffling.refusals import ShufflerError

__all__ = ["ShufflerClient"]

_LOOPBACK = ("127.0.0.1", "::1", "localhost")
# Maximum bytes of an answer that is not a batch.
_MAX_TEXT_BYTES = 4096
_NUMBERS = ("min_crowd", "n_reports", "n_coordinates")


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
        The URL is malformed, a PEM file has other content, or the connection would not be encrypted and authenticated.
    FileNotFoundError
        A PEM file does not exist.
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
                raise ValueError(
                    f"authority, certificate and private_key must be given with {url!r}, got "
                    f"{(authority, certificate, private_key)}; give all three"
                )
            self._tls = load_tls(ssl.Purpose.SERVER_AUTH, authority, certificate, private_key)

    def about(self) -> dict[str, Any]:
        """Return the shuffler's configuration, as `Shuffler.about`.

        Returns
        -------
        dict
            Numbers "min_crowd", "n_reports" and "n_coordinates", and the text "server_key" if the shuffler takes sealed
            reports; other keys of the answer are dropped.
        """
        try:
            answer = json.loads(self._request("GET", "/about"))
            numbers = {name: check_integer(name, answer[name], low=1) for name in _NUMBERS}
            if "server_key" not in answer:
                return numbers
            return numbers | {"server_key": check_instance("server_key", answer["server_key"], str, "ask its owner")}
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
            Reports from `PublicKeys.seal`, or from `encode_reports` if the shuffler reads them.
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
            Reports of the batch, in random order.
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
            url = f"http{'s' * (self._tls is not None)}://{self._host}:{self._port}"
            raise ShufflerError(
                f"the shuffler could not be reached at {url} ({type(error).__name__}{reason}); {self._remedy(error)}"
            ) from error
        finally:
            connection.close()
        return content if answer.status == 200 else _refuse(answer.status, content)

    def _remedy(self, error: Exception) -> str:
        """Return the usual remedy of a failed connection."""
        if isinstance(error, ssl.SSLCertVerificationError):
            return "the shuffler's certificate must name this host and be signed by `authority`"
        if isinstance(error, ssl.SSLError):
            return "`certificate` must be signed by the shuffler's --authority"
        if isinstance(error, ConnectionRefusedError):
            return "start it, or correct host and port"
        if self._tls is None:
            return "a shuffler with certificates needs https"
        return "check that it runs without --insecure, and the network between"


def _refuse(status: int, text: bytes) -> NoReturn:
    raise ShufflerError(f"the shuffler refuses: {text[:400].decode(errors='replace')}", is_final=status != 409)
