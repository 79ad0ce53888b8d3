"""Member files of a data set, in a folder or inside a zip, and what to say of those that cannot be read."""

import gzip
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, NoReturn

__all__ = ["Files", "refuse", "unpacking"]


class Files:
    """The member files of a zip, or of a folder and the folders in it, by their place relative to `path`."""

    def __init__(self, path: Path, what: str):
        if not path.exists():
            raise FileNotFoundError(f"path {str(path)!r} does not exist; pass the {what} or its unpacked folder")
        self.path = path
        self._in_zip = not path.is_dir()
        if self._in_zip:
            try:
                with zipfile.ZipFile(path) as archive:
                    self.members = [PurePosixPath(name) for name in archive.namelist()]
            except zipfile.BadZipFile as error:
                raise ValueError(f"path {str(path)!r} is no readable zip ({error}); download it again") from error
        else:
            found = (*path.glob("*"), *path.glob("*/*"))
            self.members = [PurePosixPath(file.relative_to(path).as_posix()) for file in found]

    def name(self, member: PurePosixPath) -> str:
        """What messages call it."""
        return f"{self.path}: {member}" if self._in_zip else str(self.path / member)

    @contextmanager
    def open(self, member: PurePosixPath) -> Iterator[IO[bytes]]:
        """Open one member for reading."""
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
            except (
                NotImplementedError,
                RuntimeError,
            ) as error:  # packed by a method, or locked, as zipfile cannot read
                raise zipfile.BadZipFile(str(error)) from error
            yield stream

    def read_text(self, member: PurePosixPath, encoding: str) -> str:
        """All of a small member, with plain line ends, the last line's included."""
        with self.open(member) as stream:
            data = stream.read()
        try:
            text = data.decode(encoding)
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            refuse(self.name(member), line, f"not {encoding} text ({error.reason}); download the data again")
        text = text.removeprefix("\ufeff").replace("\r\n", "\n")
        return text if text.endswith("\n") or not text else text + "\n"


@contextmanager
def unpacking(name: str) -> Iterator[None]:
    """Tell damage that shows while a file is read as such."""
    try:
        yield
    except (zipfile.BadZipFile, tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise ValueError(f"{name} cannot be unpacked ({error}); download it again") from error


def refuse(name: str, line: int, reason: str) -> NoReturn:
    """Raise for one line of a file."""
    raise ValueError(f"{name}, line {line}: {reason}")
