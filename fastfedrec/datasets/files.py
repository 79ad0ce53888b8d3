"""Files of a data set in a folder or a zip, and error messages for files that cannot be read."""

import gzip
import re
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, NoReturn

from fastfedrec.core.npz import largest_content

__all__ = ["Files", "other_kind", "reading_parquet", "refuse", "unpacking"]


_TO_CSV = "save it as CSV, with pandas for example"
#: Files that are neither text nor Parquet, by their first bytes: the kind of file and the remedy.
_KINDS = {
    b"PK\x03\x04": ("a zip", "unpack it first"),
    b"BZh": ("bzip2", "unpack it first"),
    b"\xfd7zXZ": ("xz", "unpack it first"),
    b"7z\xbc\xaf": ("7z", "unpack it first"),
    b"\xd0\xcf\x11\xe0": ("an old Excel workbook (.xls)", "save its sheet as CSV"),
    b"ARROW1": ("a Feather or Arrow file", "read it with pandas.read_feather, and use Interactions.from_dataframe"),
    b"FEA1": ("a Feather file", "read it with pandas.read_feather, and use Interactions.from_dataframe"),
    b"\x93NUMPY": ("an array of NumPy (.npy)", "read it with numpy.load, and use Interactions.from_arrays"),
    b"SQLite format 3\0": ("an SQLite database", "query it with pandas.read_sql, and use Interactions.from_dataframe"),
    b"\x89HDF": ("an HDF5 file", _TO_CSV),
    b"Obj\x01": ("an Avro file", _TO_CSV),
    b"ORC": ("an ORC file", _TO_CSV),
    b"%PDF": ("a PDF document", _TO_CSV),
    b"%%MatrixMarket": ("a Matrix Market file", "read it with scipy.io.mmread, and use Interactions.from_scipy"),
    b"MATLAB 5.0": ("a MATLAB file", "read it with scipy.io.loadmat, and use Interactions.from_scipy"),
    b"RDX": ("data of R", "save them as CSV, with write.csv for example"),
    b"X\n\0\0\0": ("data of R", "save them as CSV, with write.csv for example"),
    b"PAR1": ("Parquet", "unpack it first if it is compressed, and read it with load_table"),
}


def other_kind(path: Path, start: bytes = b"") -> str | None:
    """Return the kind of a file that is neither text nor Parquet and the remedy, or None for possible text."""
    # `start` is given if the first bytes are already read, or are uncompressed ones.
    if not start:
        with open(path, "rb") as file:
            start = file.read(512)
    if re.match(rb"\x80[\x02-\x05]", start):
        return "a pickle; load it in Python, and use Interactions.from_dataframe"
    if start.startswith(b"PK") and zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            members = archive.namelist()
        if "xl/workbook.xml" in members:
            return "an Excel workbook (.xlsx); save its sheet as CSV"
        if any(name == "content.xml" for name in members):
            return "an OpenDocument file; save its sheet as CSV"
        if members and all(name.endswith(".npy") for name in members):
            return "an archive of NumPy (.npz); read it with scipy.sparse.load_npz or numpy.load"
    if start[257:262] == b"ustar":
        return "a tar archive; unpack it first"
    if re.match(rb"\s*<(!doctype html|html)", start, re.IGNORECASE):
        return "an HTML page; download the data instead of the page"
    kind = next((kind for mark, kind in _KINDS.items() if start.startswith(mark)), None)
    return None if kind is None else "; ".join(kind)


class Files:
    """Files of a zip, or of a folder and its direct subfolders, by their path relative to `path`."""

    def __init__(self, path: Path, description: str):
        if not path.exists():
            raise FileNotFoundError(f"path {str(path)!r} does not exist; pass the {description} or its unpacked folder")
        self.path = path
        self._in_zip = not path.is_dir()
        if self._in_zip:
            kind = other_kind(path)
            if kind is not None and not kind.startswith("a zip"):
                raise ValueError(f"path {str(path)!r} is {kind}")
            try:
                with zipfile.ZipFile(path) as archive:
                    self.members = [PurePosixPath(name) for name in archive.namelist()]
                    # No member expands to more than its size in the directory.
                    content = sum(member.file_size for member in archive.infolist())
            except zipfile.BadZipFile as error:
                raise ValueError(
                    f"path {str(path)!r} is not a readable zip ({error}); download it again, pass a folder, or read a "
                    "table with load_table (in a shell: --data FILE of other commands)"
                ) from error
            if content > (limit := largest_content(path.stat().st_size)):
                raise ValueError(
                    f"path {str(path)!r} unpacks to {content:,} bytes, which is above the limit of {limit:,} bytes for "
                    "a zip of its size; unpack it first if you trust it"
                )
        else:
            paths = (*path.glob("*"), *path.glob("*/*"))
            self.members = [PurePosixPath(file.relative_to(path).as_posix()) for file in paths]

    def name(self, member: PurePosixPath) -> str:
        """Return the name of a file in error messages."""
        return f"{self.path}: {member}" if self._in_zip else str(self.path / member)

    @contextmanager
    def open(self, member: PurePosixPath) -> Iterator[IO[bytes]]:
        """Open a file for reading."""
        with ExitStack() as stack, unpacking(self.name(member)):
            try:
                if self._in_zip:
                    archive = stack.enter_context(zipfile.ZipFile(self.path))
                    stream = stack.enter_context(archive.open(str(member)))
                else:
                    stream = stack.enter_context(open(self.path / member, "rb"))  # type: ignore[assignment]
            except (KeyError, FileNotFoundError):
                missing = f"{self.name(member)} is missing; unpack or download the data again"
                raise FileNotFoundError(missing) from None
            except (NotImplementedError, RuntimeError) as error:  # unsupported compression, or an encrypted file
                raise zipfile.BadZipFile(str(error)) from error
            yield stream

    def read_text(self, member: PurePosixPath, encoding: str) -> str:
        """Return the text of a small file, in which each line ends with a line feed."""
        with self.open(member) as stream:
            data = stream.read()
        try:
            text = data.decode(encoding)
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            refuse(self.name(member), line, f"the file is not {encoding} text ({error.reason}); download it again")
        text = text.removeprefix("\ufeff").replace("\r\n", "\n")
        return text if text.endswith("\n") or not text else text + "\n"


@contextmanager
def unpacking(name: str) -> Iterator[None]:
    """Raise a ValueError with the file's name for damage that shows during reading."""
    try:
        yield
    except (zipfile.BadZipFile, tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise ValueError(f"{name} cannot be unpacked ({error}); download it again") from error


@contextmanager
def reading_parquet(path: Path) -> Iterator[None]:
    """Raise a ValueError with the file's name for any error of the library that reads Parquet."""
    try:
        yield
    except (ImportError, FileNotFoundError):
        raise
    except BaseException as error:
        # A panic of polars, which damaged files cause, is no Exception.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise ValueError(f"{path} cannot be read as Parquet ({reason}); write or download it again") from error


def refuse(name: str, line: int, reason: str) -> NoReturn:
    """Raise a ValueError for a line of a file."""
    raise ValueError(f"{name}, line {line}: {reason}")
