"""Single reports as they travel from nodes by a shuffler to a server."""

import numpy as np
from numpy.typing import NDArray

from fastfedrec.core.check import check_integer

__all__ = ["decode_reports", "encode_reports", "report_width"]


def encode_reports(index: np.ndarray, bit: np.ndarray, n_coordinates: int) -> bytes:
    """Reports as they travel: each is one whole number, twice its coordinate plus its bit, all of one width.

    Parameters
    ----------
    index, bit : ndarray of shape (n,)
        As from `FMFLDP.report_stream`.
    n_coordinates : int
        Above every index; it alone sets the width.

    Returns
    -------
    bytes
        Little-endian.
    """
    n_coordinates = check_integer("n_coordinates", n_coordinates, low=1)
    if len(index) and not 0 <= index.min() <= index.max() < n_coordinates:
        raise ValueError(f"index must be from 0 to {n_coordinates - 1}, got {index.min()} to {index.max()}")
    return (2 * index.astype(np.uint64) + bit.astype(np.uint64)).astype(report_width(n_coordinates)).tobytes()


def decode_reports(body: bytes | bytearray, n_coordinates: int) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """And back; the bytes may be anybody's.

    Parameters
    ----------
    body : bytes
        As from `encode_reports`.
    n_coordinates : int
        As there.

    Returns
    -------
    index : ndarray of shape (n,), int64
        Coordinates.
    bit : ndarray of shape (n,), uint8
        0 or 1.

    Raises
    ------
    ValueError
        They are no such reports.
    """
    kind = report_width(n_coordinates := check_integer("n_coordinates", n_coordinates, low=1))
    if len(body) % kind.itemsize:
        raise ValueError(f"reports take {kind.itemsize} bytes each, got {len(body)} bytes")
    codes = np.frombuffer(body, dtype=kind)
    if len(codes) and int(codes.max()) >= 2 * n_coordinates:
        raise ValueError(f"a report is about coordinate {int(codes.max()) // 2} of {n_coordinates}")
    return (codes >> 1).astype(np.int64), (codes & 1).astype(np.uint8)


def report_width(n_coordinates: int) -> np.dtype:
    """The type in which reports about so many coordinates travel."""
    return np.dtype("<u4" if 2 * n_coordinates <= 2**32 else "<u8")
