"""NumPy archives from untrusted sources, read without pickle and within a limit on their expanded size.

A zip file can expand to a thousand times its size, so `Archive` checks the directory before it unpacks anything.
"""

import io
import math
import os
import stat
import zipfile
from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy as np

__all__ = ["ARRAY_START", "KINDS", "Archive", "largest_content", "write_archive"]

# A file may expand to MIN_CONTENT_BYTES + MAX_CONTENT_RATIO * its size, in bytes.
MIN_CONTENT_BYTES = 2**26
MAX_CONTENT_RATIO = 100
MAX_MEMBERS = 10_000
_MAX_DIMENSIONS = 8
_CHUNK = 2**20  # bytes
KINDS = "biufUSMm"  # bool, numbers, strings, dates and durations: no kind has references or undefined bytes
#: First bytes of an array of version 1.0.  Later versions state headers of up to 4 GiB, for which NumPy takes memory.
ARRAY_START = b"\x93NUMPY\x01\x00"
_ENDING = ".npy"
_ENCRYPTED = 1  # bit of a member's flags


def largest_content(file_size: int) -> int:
    """Return the number of bytes to which a compressed file of this size, from any source, may expand.

    Parameters
    ----------
    file_size : int
        Size of the file in bytes.

    Returns
    -------
    int
        64 MiB and a hundred times the size.

    Examples
    --------
    >>> from fastfedrec.core.npz import largest_content
    >>> largest_content(0) == 64 * 2**20
    True
    """
    return MIN_CONTENT_BYTES + MAX_CONTENT_RATIO * file_size


class Archive:
    """Arrays of an untrusted archive in an ordinary file; each array is read on request."""

    def __init__(self, file: BinaryIO):
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("it is no ordinary file")
        self._zip = zipfile.ZipFile(file)
        self._members: dict[str, zipfile.ZipInfo] = {}
        members = self._zip.infolist()
        if len(members) > MAX_MEMBERS:
            raise ValueError(f"it has {len(members)} members, more than {MAX_MEMBERS}")
        for member in members:
            name = member.filename.removesuffix(_ENDING)
            if name in self._members:
                raise ValueError(f"it holds {member.filename!r} twice")
            if name == member.filename:
                raise ValueError(f"its member {member.filename!r} is no array")
            if member.flag_bits & _ENCRYPTED or member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise ValueError(f"its member {member.filename!r} is packed in a way that arrays are not")
            self._members[name] = member
        # The sum comes from the directory; `read` rejects a member that expands to another size.
        content, max_bytes = sum(member.file_size for member in members), largest_content(status.st_size)
        if content > max_bytes:
            raise ValueError(f"it would unpack to {content} bytes, and a file of its size may unpack to {max_bytes}")

    @property
    def sizes(self) -> dict[str, int]:
        """Size of each member in bytes, from the directory of the archive."""
        return {name: member.file_size for name, member in self._members.items()}

    def read(self, name: str) -> np.ndarray:
        """Read an array in the machine's byte order and C order, or raise a ValueError that names it."""
        try:
            with self._zip.open(self._members[name]) as stream:
                return _read_array(stream, self._members[name].file_size)
        except Exception as error:  # damaged bytes may cause any error in the readers of the format
            raise ValueError(f"{name} cannot be read: {error or type(error).__name__}") from error


def _read_array(stream: Any, size: int) -> np.ndarray:
    magic = stream.read(8)
    if magic != ARRAY_START:
        raise ValueError("it does not begin as an array does")
    length = stream.read(2)
    text = stream.read(int.from_bytes(length, "little"))
    shape, is_fortran, dtype = np.lib.format.read_array_header_1_0(io.BytesIO(length + text))
    if dtype.hasobject or dtype.kind not in KINDS:
        raise ValueError(f"its dtype is {dtype}, and only numbers, strings and dates are read")
    if not (isinstance(shape, tuple) and len(shape) <= _MAX_DIMENSIONS and all(n >= 0 for n in shape)):
        raise ValueError(f"its shape is {shape}")
    # The sizes must agree before the allocation, so that a false shape cannot request unlimited memory.
    n = math.prod(shape)
    if len(magic) + len(length) + len(text) + n * dtype.itemsize != size or (n and not dtype.itemsize):
        raise ValueError(f"{dtype} of shape {shape} does not have {size} bytes")
    array = np.empty(n, dtype=dtype)
    flat = array.view(np.uint8) if n else np.empty(0, dtype=np.uint8)
    for start in range(0, len(flat), _CHUNK):
        chunk = stream.read(min(_CHUNK, len(flat) - start))
        flat[start : start + len(chunk)] = np.frombuffer(chunk, dtype=np.uint8)
        if len(chunk) < min(_CHUNK, len(flat) - start):
            raise ValueError("it is cut short")
    if stream.read(1):
        raise ValueError("it is longer than its header states")
    array = np.ascontiguousarray(array.astype(dtype.newbyteorder("="), copy=False))
    if dtype.kind == "b" and n and int(array.view(np.uint8).max()) > 1:
        raise ValueError("it holds bytes that are neither true nor false")
    if dtype.kind == "U" and n and int(array.view(np.uint32).max()) > 0x10FFFF:
        raise ValueError("it holds numbers that are not Unicode characters")
    return np.ascontiguousarray(array.reshape(shape[::-1]).T) if is_fortran else array.reshape(shape)


def write_archive(file: BinaryIO, arrays: Mapping[str, np.ndarray], min_size: int = 0) -> None:
    """Write arrays for `Archive`, without compression if a compressed file would exceed the limits of a reader."""
    # `min_size` is a size in bytes; readers would reject the texts in a smaller file.
    content = _write(file, arrays, zipfile.ZIP_DEFLATED)
    if content > largest_content(file.tell()) or file.tell() < min_size:
        file.seek(0)
        file.truncate()
        _write(file, arrays, zipfile.ZIP_STORED)


def _write(file: BinaryIO, arrays: Mapping[str, np.ndarray], compression: int) -> int:
    content = 0
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, array in arrays.items():
            with archive.open(name + _ENDING, "w", force_zip64=True) as stream:
                np.lib.format.write_array(stream, np.asanyarray(array, order="C"), version=(1, 0), allow_pickle=False)
        content = sum(member.file_size for member in archive.infolist())
    return content
