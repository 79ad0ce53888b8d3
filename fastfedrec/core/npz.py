"""NumPy archives from anywhere: nothing is unpickled, and nothing unpacked beyond what a file of its size may hold.

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

__all__ = ["KINDS", "Archive", "write_archive"]

MIN_CONTENT_BYTES = 2**26  # bytes that any file may unpack to
MAX_CONTENT_RATIO = 100
MAX_MEMBERS = 10_000
_MAX_DIMENSIONS = 8
_CHUNK = 2**20
KINDS = "biufUSMm"  # nothing that holds references, or bytes without a meaning
_ENDING = ".npy"
_ENCRYPTED = 1


def largest_content(file_size: int) -> int:
    """How much a file of this many bytes may unpack to, in bytes."""
    return MIN_CONTENT_BYTES + MAX_CONTENT_RATIO * file_size


class Archive:
    """The arrays of an archive, each read when it is asked for.

    Parameters
    ----------
    file : binary file
        Open for reading; an ordinary file.

    Raises
    ------
    ValueError
        No archive of arrays, or one that would unpack to more than its size allows.
    """

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
        content, most = sum(member.file_size for member in members), largest_content(status.st_size)
        if content > most:
            raise ValueError(f"it would unpack to {content} bytes, and a file of its size may to {most}")

    @property
    def sizes(self) -> dict[str, int]:
        """Bytes of each member, as its directory has them."""
        return {name: member.file_size for name, member in self._members.items()}

    def read(self, name: str) -> np.ndarray:
        """An array, in the byte order of this machine.

        Parameters
        ----------
        name : str
            Of a member.

        Returns
        -------
        ndarray
            Of its own memory, in C order.

        Raises
        ------
        ValueError
            What is there is no array, or not the one that its size promises.
        """
        try:
            with self._zip.open(self._members[name]) as stream:
                return _read_array(stream, self._members[name].file_size)
        except Exception as error:  # whatever damaged bytes do to readers of the format
            raise ValueError(f"{name} cannot be read: {error or type(error).__name__}") from error


def _read_array(stream: Any, size: int) -> np.ndarray:
    magic = stream.read(8)
    if magic != b"\x93NUMPY\x01\x00":  # later versions are for headers beyond what arrays here have
        raise ValueError("it does not begin as an array does")
    length = stream.read(2)
    text = stream.read(int.from_bytes(length, "little"))
    shape, is_fortran, dtype = np.lib.format.read_array_header_1_0(io.BytesIO(length + text))
    if dtype.hasobject or dtype.kind not in KINDS:
        raise ValueError(f"its dtype is {dtype}, and only numbers, strings and dates are read")
    if not (isinstance(shape, tuple) and len(shape) <= _MAX_DIMENSIONS and all(n >= 0 for n in shape)):
        raise ValueError(f"its shape is {shape}")
    n = math.prod(shape)
    if len(magic) + len(length) + len(text) + n * dtype.itemsize != size or (n and not dtype.itemsize):
        raise ValueError(f"{dtype} of shape {shape} is not what {size} bytes hold")
    array = np.empty(n, dtype=dtype)
    flat = array.view(np.uint8) if n else np.empty(0, dtype=np.uint8)
    for start in range(0, len(flat), _CHUNK):
        chunk = stream.read(min(_CHUNK, len(flat) - start))
        flat[start : start + len(chunk)] = np.frombuffer(chunk, dtype=np.uint8)
        if len(chunk) < min(_CHUNK, len(flat) - start):
            raise ValueError("it is cut short")
    if stream.read(1):
        raise ValueError("it is longer than it says")
    array = np.ascontiguousarray(array.astype(dtype.newbyteorder("="), copy=False))
    if dtype.kind == "b" and n and int(array.view(np.uint8).max()) > 1:
        raise ValueError("it holds bytes that are neither true nor false")
    if dtype.kind == "U" and n and int(array.view(np.uint32).max()) > 0x10FFFF:
        raise ValueError("it holds what are no characters")
    return np.ascontiguousarray(array.reshape(shape[::-1]).T) if is_fortran else array.reshape(shape)


def write_archive(file: BinaryIO, arrays: Mapping[str, np.ndarray], least_size: int = 0) -> None:
    """Write arrays so that `Archive` reads them: compressed, unless so well that it would not.

    Parameters
    ----------
    file : binary file
        Open for writing, and empty.
    arrays : mapping of str to ndarray
        Without objects.
    least_size : int
        Bytes below which a file is written again without compression: a reader would not take its texts.
    """
    content = _write(file, arrays, zipfile.ZIP_DEFLATED)
    if content > largest_content(file.tell()) or file.tell() < least_size:
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
