"""Encoding of single reports between nodes, shuffler and server."""

import mmap

import numpy as np
from numpy.typing import NDArray

from fastfedrec.core.check import check_integer

__all__ = ["code_reports", "decode_reports", "encode_reports", "read_codes", "report_width", "split_codes"]


def code_reports(index: np.ndarray, bit: np.ndarray, n_coordinates: int) -> NDArray[np.uint64]:
    """Return each report as one number, twice its coordinate plus its bit."""
    n_coordinates = check_integer("n_coordinates", n_coordinates, low=1)
    if len(index) and not 0 <= index.min() <= index.max() < n_coordinates:
        raise ValueError(f"index must be from 0 to {n_coordinates - 1}, got {index.min()} to {index.max()}")
    return 2 * index.astype(np.uint64) + bit.astype(np.uint64)


def split_codes(codes: np.ndarray) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Return the coordinates and bits of numbers from `code_reports`."""
    return (codes >> 1).astype(np.int64), (codes & 1).astype(np.uint8)


def encode_reports(index: np.ndarray, bit: np.ndarray, n_coordinates: int) -> bytes:
    """Encode each report as one little-endian integer."""
    # `n_coordinates` alone determines the width, so the size of a message does not depend on its reports.
    return code_reports(index, bit, n_coordinates).astype(report_width(n_coordinates)).tobytes()


def decode_reports(body: bytes | mmap.mmap, n_coordinates: int) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Decode untrusted bytes into coordinates and bits; raise ValueError if they are not valid reports."""
    return split_codes(read_codes(body, n_coordinates))


def read_codes(body: bytes | mmap.mmap, n_coordinates: int) -> np.ndarray:
    """Return untrusted bytes as numbers without a copy; raise ValueError if they are not valid reports."""
    kind = report_width(n_coordinates := check_integer("n_coordinates", n_coordinates, low=1))
    if len(body) % kind.itemsize:
        raise ValueError(f"reports must have {kind.itemsize} bytes each, got {len(body)} bytes in total")
    codes = np.frombuffer(body, dtype=kind)
    if len(codes) and int(codes.max()) >= 2 * n_coordinates:
        raise ValueError(f"coordinates must be below {n_coordinates}, got {int(codes.max()) // 2}")
    return codes


def report_width(n_coordinates: int) -> np.dtype:
    """Return the dtype of encoded reports about a number of coordinates."""
    return np.dtype("<u4" if 2 * n_coordinates <= 2**32 else "<u8")
