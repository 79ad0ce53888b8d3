"""Streams of text files as uncompressed UTF-8 without a byte order mark, with a line feed at the end of each line."""

import codecs
import gzip
import importlib
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

from fastfedrec.core.npz import largest_content
from fastfedrec.datasets.files import other_kind, refuse, unpacking

_BLOCK = 1 << 24
_PEEKED = 1 << 16  # bytes at the start of a file that determine its encoding and line ends
#: Comment before the rows in files of SNAP and KONECT; "#user" is not one, because it may be a header.
COMMENT_LINE = re.compile(rb"[#%]([#%\s]|$)")
# UTF-32 comes first, because its little-endian mark begins with the mark of UTF-16.
_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32-le", codecs.BOM_UTF32_BE: "utf-32-be", codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be",
}  # fmt: skip
# Four bytes of zstandard can expand to 128 KiB, so this number of bytes expands to at most 32 MiB.
_PACKED_BYTES = 1 << 10
_GZIP, _ZST = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"


class NotUTF8(ValueError):
    """Text that is not valid UTF-8."""


class PlainText:
    """Stream of UTF-8 with line feeds, from bytes in an encoding that a byte order mark can override."""

    def __init__(self, stream: IO[bytes], encoding: str = "utf-8"):
        self._stream, self._rest, self._line = stream, b"", b""
        #: First bytes of the stream, before any decoding.
        self.start = start = stream.read(_PEEKED)
        mark = next((mark for mark in _MARKS if start.startswith(mark)), b"")
        stated = _MARKS.get(mark, encoding)
        # Readers check UTF-8, and try another encoding for a file without it.  A mark of UTF-8 excludes that encoding.
        self._decode = None if encoding == stated == "utf-8" else codecs.getincrementaldecoder(stated)().decode
        self._start: bytes | None = start[len(mark) :]
        plain = self._start if self._decode is None else self._decode(self._start).encode()
        end = plain.find(b"\r")
        #: Whether lines end in a single carriage return, which the first line shows.
        self._returns = 0 <= end < len(plain) - 1 and plain[end + 1] != ord("\n") and b"\n" not in plain[:end]
        if self._decode is not None:
            self._decode = codecs.getincrementaldecoder(stated)().decode

    def read(self, size: int) -> bytes:
        """Return about `size` bytes, and at least one byte before the end."""
        if self._line:
            data, self._line = self._line, b""
            return data
        while True:
            data, self._start = self._start or self._stream.read(size), None
            at_end = not data
            if self._decode is not None:
                data = self._decode(data, at_end).encode()
            if self._returns:
                data, self._rest = self._rest + data, b""
                # The next read may begin with the line feed of this carriage return.
                if data.endswith(b"\r") and not at_end:
                    data, self._rest = data[:-1], b"\r"
                data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
            if data or at_end:
                return data

    def readline(self) -> bytes:
        """Return one line with its line feed."""
        parts, end = [], 0
        while not end and (data := self.read(_PEEKED)):
            end = data.find(b"\n") + 1
            parts.append(data[:end] if end else data)
            self._line = data[end:] if end else b""
        return b"".join(parts)


class Unpacked:
    """Stream of an unpacked file of untrusted origin, which raises when it exceeds the limit for a file of its size."""

    def __init__(self, stream: Any, name: str, file_size: int):
        self._stream, self._name, self._file_size = stream, name, file_size
        self._limit = self._left = largest_content(file_size)

    def read(self, size: int) -> bytes:
        """Return bytes of the stream."""
        data: bytes = self._stream.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise ValueError(
                f"{self._name} unpacks to more than {self._limit:,} bytes, which is the limit for a compressed file of "
                f"{self._file_size:,} bytes; unpack it first if you trust it"
            )
        return data


@contextmanager
def open_text(path: Path, encoding: str = "utf-8") -> Iterator[PlainText]:
    """Open a text file, and decompress gzip or zstandard, which its first bytes or its suffix identify."""
    with unpacking(str(path)), ExitStack() as stack:
        stream: Any = stack.enter_context(open(path, "rb"))
        start = stream.peek(len(_ZST))
        if start.startswith(_GZIP) or path.suffix.lower() == ".gz":
            stream = Unpacked(stack.enter_context(gzip.open(stream)), str(path), path.stat().st_size)
        elif start.startswith(_ZST) or path.suffix.lower() == ".zst":
            stream = Unpacked(stack.enter_context(_open_zst(stream)), str(path), path.stat().st_size)
        try:
            text = PlainText(stream, encoding)
            _check_is_text(path, text.start)
            yield text
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{path} must be {error.encoding} text, as its first bytes state ({error.reason}); save it as UTF-8"
            ) from error


def read_bytes(path: Path, first_line: int = 1, encoding: str = "utf-8") -> bytes:
    """Return a text file from a line on, as UTF-8 if the file is text in this encoding or in that of its mark."""
    parts = []
    with open_text(path, encoding) as stream:
        for _ in range(1, first_line):
            stream.readline()
        while part := stream.read(_BLOCK):
            parts.append(part)
    return b"".join(parts)


def read_lines(path: Path, first_line: int) -> str:
    """Return the text of a file from a line on; text that is not UTF-8 is Latin-1."""
    try:
        return read_bytes(path, first_line).decode()
    except UnicodeDecodeError:
        return read_bytes(path, first_line, "latin-1").decode()


def decoded(content: bytes) -> str:
    """Return text of UTF-8, or of Latin-1, which can decode any bytes."""
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content.decode("latin-1")


def _check_is_text(path: Path, start: bytes) -> None:
    """Raise for files that are not text, by their first bytes."""
    if (kind := other_kind(path, start)) is not None:
        raise ValueError(f"{path} is not text, but {kind}")
    if b"\0" in start.split(b"\n", 1)[0] and not start.startswith(tuple(_MARKS)):
        refuse(str(path), 1, "text must not contain the byte 0; convert the file to UTF-8, or unpack it first")


@contextmanager
def _open_zst(stream: IO[bytes]) -> Iterator[Any]:
    try:
        zstandard = importlib.import_module("zstandard")
    except ImportError as error:
        raise ImportError(
            "reading .zst files needs zstandard: pip install 'fastfedrec[data]', or unpack the file"
        ) from error
    try:
        yield _Zst(stream, zstandard)
    except zstandard.ZstdError as error:
        raise EOFError(str(error)) from error  # `unpacking` converts it to a ValueError


class _Zst:
    """Decompressed stream that raises for a truncated frame, which the library's own reader does not detect."""

    def __init__(self, stream: IO[bytes], library: Any):
        self._stream, self._library = stream, library
        self._frame: Any = None
        self._packed = b""

    def read(self, size: int) -> bytes:
        """Return about `size` bytes, and at least one byte before the end."""
        parts, n_bytes = [], 0
        while n_bytes < size:
            packed, self._packed = self._packed or self._stream.read(_PACKED_BYTES), b""
            if not packed:
                if self._frame is not None:
                    raise EOFError("the file ends within a frame")
                break
            self._frame = self._frame or self._library.ZstdDecompressor().decompressobj()
            data = self._frame.decompress(packed)
            # A file may consist of several frames.
            if self._frame.eof:
                self._frame, self._packed = None, self._frame.unused_data
            parts.append(data)
            n_bytes += len(data)
        return b"".join(parts)
