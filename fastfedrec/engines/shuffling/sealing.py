"""Reports sealed to the server's public key (HPKE, RFC 9180), so that a shuffler forwards them unread.

A sealed report has `SEALED_BYTES` bytes: a fresh public key, and the ciphertext of one report with its identifier.  The
ciphertext depends on the run and the round, so it opens in no other round.  The identifier comes from the node's key,
so the server also refuses a report that was sealed twice.
"""

import functools
import hashlib
import os
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastfedrec.core.randomness import Key
from fastfedrec.engines.shuffling.reports import code_reports, split_codes

__all__ = ["SEALED_BYTES", "PublicKeys", "ServerKeys", "UnsealedReports", "read_key_name", "report_ids"]

# A report before it is sealed: its code, and an identifier of 128 bits.
_REPORT = np.dtype([("code", "<u8"), ("id", "V16")])
# Bytes of the fresh X25519 key, and of the tag of ChaCha20-Poly1305.
_KEY_BYTES, _TAG_BYTES = 32, 16
#: Bytes of a sealed report; the same for all reports.
SEALED_BYTES = _KEY_BYTES + _REPORT.itemsize + _TAG_BYTES
_DOMAIN = b"fastfedrec report 1\0"
_IDS = "shuffler.report_ids"
_PEM = re.compile(rb"-----BEGIN ([A-Z ]+)-----.+?-----END \1-----\n?", re.DOTALL)


@functools.cache
def _packages() -> SimpleNamespace:
    """Return the parts of cryptography, which is imported on first use, and HPKE's suite."""
    try:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import x25519
        from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite
    except ImportError as error:
        raise ImportError(
            "sealed reports need cryptography 47 or later; install it: pip install 'fastfedrec[sealing]'"
        ) from error
    suite = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.CHACHA20_POLY1305)
    return SimpleNamespace(InvalidTag=InvalidTag, serialization=serialization, x25519=x25519, suite=suite)


@dataclass(frozen=True)
class UnsealedReports:
    """Reports of a batch that opened.

    Parameters
    ----------
    index : ndarray of shape (n_opened,), int64
        Coordinates.
    bit : ndarray of shape (n_opened,), uint8
        Bits.
    refused : dict of str to int
        Numbers of refused reports by reason: "unreadable" (of another key or round, or changed), "replayed" and "out of
        range".
    """

    index: NDArray[np.int64]
    bit: NDArray[np.uint8]
    refused: dict[str, int]


class PublicKeys:
    """Public keys of a server that a node trusts.

    Parameters
    ----------
    path : path-like
        PEM file with at least one X25519 public key, as `openssl pkey -pubout` writes it; several during a rotation.

    Raises
    ------
    ValueError
        The file has no such key, or another one.
    ImportError
        The package cryptography is not installed.
    """

    def __init__(self, path: str | os.PathLike[str]):
        self._keys = {_name_of(key): key for key in _read_keys(path, "PUBLIC KEY")}

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the keys.

        Returns
        -------
        tuple of str
            SHA-256 of each key in hexadecimal digits, in the order of the file.
        """
        return tuple(self._keys)

    def seal(
        self,
        name: str,
        index: np.ndarray,
        bit: np.ndarray,
        ids: np.ndarray,
        *,
        n_coordinates: int,
        run: str,
        round: int,
    ) -> bytes:
        """Seal each report separately.

        Parameters
        ----------
        name : str
            Name of the key.
        index, bit : ndarray of shape (n_reports,)
            Coordinates and bits.
        ids : ndarray of shape (n_reports,), V16
            Identifiers of `report_ids`.
        n_coordinates : int
            Number of coordinates that a report can be about.
        run : str
            Name of the run, 32 hexadecimal digits.
        round : int
            Number of the round.

        Returns
        -------
        bytes
            `SEALED_BYTES` for each report, in their order.
        """
        reports = np.empty(len(index), dtype=_REPORT)
        reports["code"], reports["id"] = code_reports(index, bit, n_coordinates), ids
        encrypt, key, info = _packages().suite.encrypt, self._keys[name], _info(run, round)
        return b"".join(encrypt(report, key, info) for report in _rows(reports.tobytes(), _REPORT.itemsize))


class ServerKeys:
    """Private keys of a server, which open the reports of its nodes.

    Parameters
    ----------
    path : path-like
        PEM file with at least one X25519 private key, as `openssl genpkey -algorithm X25519` writes it; several during
        a rotation.

    Raises
    ------
    ValueError
        The file has no such key, or another one.
    ImportError
        The package cryptography is not installed.
    """

    def __init__(self, path: str | os.PathLike[str]):
        self._keys = {_name_of(key.public_key()): key for key in _read_keys(path, "PRIVATE KEY")}

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the keys.

        Returns
        -------
        tuple of str
            SHA-256 of each public key in hexadecimal digits, in the order of the file.
        """
        return tuple(self._keys)

    def unseal(self, name: str, batch: bytes, *, n_coordinates: int, run: str, round: int) -> UnsealedReports:
        """Open the reports of a batch, and refuse reports that cannot be opened, are repeated or are out of range.

        Parameters
        ----------
        name : str
            Name of the key.
        batch : bytes
            Sealed reports.
        n_coordinates : int
            Number of coordinates that a report can be about.
        run : str
            Name of the run.
        round : int
            Number of the round.

        Returns
        -------
        UnsealedReports
            Valid reports, each identifier once.

        Raises
        ------
        ValueError
            The batch is not a whole number of sealed reports.
        """
        if len(batch) % SEALED_BYTES:
            raise ValueError(f"sealed reports must have {SEALED_BYTES} bytes each, got {len(batch)} bytes in total")
        opened = b"".join(_open_all(_rows(batch, SEALED_BYTES), self._keys[name], _info(run, round)))
        reports = np.frombuffer(opened, dtype=_REPORT)
        # A second report with the same identifier would count the first one twice, which reveals it in the sums.
        _, first = np.unique(reports["id"], return_index=True)
        codes = reports["code"][np.sort(first)]
        in_range = codes < 2 * n_coordinates
        refused = {
            "unreadable": len(batch) // SEALED_BYTES - len(reports),
            "replayed": len(reports) - len(codes),
            "out of range": len(codes) - int(in_range.sum()),
        }
        index, bit = split_codes(codes[in_range])
        return UnsealedReports(index, bit, {reason: n for reason, n in refused.items() if n})


def read_key_name(path: str | os.PathLike[str]) -> str:
    """Return the name of the only public key in a PEM file.

    Parameters
    ----------
    path : path-like
        PEM file.

    Returns
    -------
    str
        SHA-256 of the key in hexadecimal digits.

    Raises
    ------
    ValueError
        The file does not have exactly one X25519 public key.
    """
    # Two keys in one round would separate the reports of nodes with different keys.
    names = PublicKeys(path).names
    if len(names) != 1:
        raise ValueError(f"{os.fspath(path)!r} must have one key, which all nodes use, got {len(names)}; keep one")
    return names[0]


def report_ids(key: Key, name: str, round: int, n_reports: int) -> np.ndarray:
    """Return the identifiers of a node's reports in a round.

    Parameters
    ----------
    key : Key
        The node's key of the run.
    name : str
        The node's name, for simulations with one key for all nodes.
    round : int
        Number of the round.
    n_reports : int
        Number of reports.

    Returns
    -------
    ndarray of shape (n_reports,), V16
        Identifiers, which without the key look like random bits.
    """
    node = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")
    return key.words(_IDS, round=round, user=node, size=2 * n_reports).view("V16")


def _open_all(reports: Iterable[memoryview], key: Any, info: bytes) -> Iterable[bytes]:
    """Yield the content of each report that opens."""
    packages = _packages()
    for report in reports:
        with suppress(packages.InvalidTag):
            yield packages.suite.decrypt(report, key, info)


def _rows(data: bytes, n_bytes: int) -> Iterable[memoryview]:
    view = memoryview(data)
    return (view[start : start + n_bytes] for start in range(0, len(data), n_bytes))


def _info(run: str, round: int) -> bytes:
    """Return the context that sender and receiver must agree on."""
    return _DOMAIN + bytes.fromhex(run) + round.to_bytes(8, "big")


def _read_keys(path: str | os.PathLike[str], kind: str) -> list[Any]:
    """Return the X25519 keys of a PEM file, all public or all private."""
    packages = _packages()
    load, expected = {
        "PUBLIC KEY": (packages.serialization.load_pem_public_key, packages.x25519.X25519PublicKey),
        "PRIVATE KEY": (
            functools.partial(packages.serialization.load_pem_private_key, password=None),
            packages.x25519.X25519PrivateKey,
        ),
    }[kind]
    blocks = [(block[1].decode(), block[0]) for block in _PEM.finditer(Path(path).read_bytes())]
    try:
        keys = [load(text) for found, text in blocks if found == kind]
    except (ValueError, TypeError) as error:
        raise ValueError(f"{os.fspath(path)!r} has a {kind} that cannot be read ({error}); make a new one") from None
    if not keys or len(keys) != len(blocks) or not all(isinstance(key, expected) for key in keys):
        raise ValueError(
            f"{os.fspath(path)!r} must have X25519 keys of the kind {kind} and no other; make one with "
            "`openssl genpkey -algorithm X25519`, and its public key with `openssl pkey -pubout`"
        )
    return keys


def _name_of(public_key: Any) -> str:
    return hashlib.sha256(public_key.public_bytes_raw()).hexdigest()
