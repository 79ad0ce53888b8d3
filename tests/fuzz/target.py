"""A reader of untrusted bytes, and the check that holds for all inputs."""

import signal
import traceback
from collections.abc import Callable, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

__all__ = ["ACCOUNTS_BYTES", "Finding", "Target", "check", "check_names", "deadline"]


#: Memory of a table of accounts of privacy, which takes up to 900 MB, and of the parts of earlier ones that stay,
#: such as SciPy's 16 last plans of transforms.
ACCOUNTS_BYTES = 3 * 2**30


class Finding(BaseException):
    """An input that breaks the invariant of a target; a BaseException, so that no reader converts it."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """A reader with its documented errors, valid inputs and mutations."""

    #: Returns the content as an object; it may write to the folder.
    read: Callable[[bytes, Path], Any]
    #: The exceptions that the reader documents.
    errors: tuple[type[Exception], ...]
    #: Uses the object and asserts its properties, without an exception.
    use: Callable[[Any], None] = lambda _: None
    #: Returns first inputs, of which the reader accepts one at least.
    seeds: Callable[[], Iterable[bytes]]
    #: Changes the structure of an input, which random changes of bytes would break.
    mutate: Callable[[Random, bytes], bytes] | None = None
    #: Tokens of a text format.
    words: tuple[bytes, ...] = ()
    #: Maximum size of an input in bytes.
    max_bytes: int = 2**16
    #: Maximum seconds for one input.
    seconds: int = 5
    #: Maximum bytes that one input, and all inputs of a run, may add to the memory of the process.
    memory_bytes: int = 2**29


def check(target: Target, content: bytes, folder: Path) -> bool:
    """Read the content; return whether it was accepted, and raise `Finding` for an undocumented outcome."""
    try:
        try:
            accepted = target.read(content, folder)
        except target.errors as error:
            # A reader may convert any error to a documented one, but it must not request unlimited memory before.
            if (failed := _failed_allocation(error)) is not None:
                raise Finding(f"an allocation failed: {failed!r}") from error
            return False
        target.use(accepted)
    except (KeyboardInterrupt, Finding):
        raise
    except BaseException as error:  # a panic of a Rust library is a BaseException
        raise Finding(f"{type(error).__name__}: {' '.join(str(error).split())[:200]}") from error
    return True


def check_names(error: Exception, *texts: str) -> None:
    """Raise `Finding` for an error with none of these texts, such as the path of the file."""
    if not any(text in str(error) for text in texts):
        raise Finding(f"the error names none of {texts}: {error}") from error


def _failed_allocation(error: BaseException | None) -> MemoryError | None:
    seen = set()
    # Causes and contexts together can form a cycle.
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        # Python's parser also raises a MemoryError, for an expression that is nested too deeply.
        if isinstance(error, MemoryError):
            frames = traceback.extract_tb(error.__traceback__)
            if not (frames and Path(frames[-1].filename).name == "ast.py"):
                return error
        error = error.__cause__ or error.__context__
    return None


@contextmanager
def deadline(seconds: int):
    """Raise `Finding` in the block after some seconds of this process, which do not depend on other processes."""

    def interrupt(*_):
        raise Finding(f"it takes more than {seconds} s")

    previous = signal.signal(signal.SIGPROF, interrupt)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, previous)
