"""Keys: every random bit of the package comes from ChaCha20 under a `Key`.

A stream is named by (purpose, round, global user id).  The same name gives the same bits on any thread, shard or
machine, so a simulation does not depend on how it was split.  A guarantee holds only against parties without the key:
a key made from a seed marks everything made with it as a simulation.
"""

import hashlib
import os
import threading
from typing import Any, NoReturn, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from fastfedrec._kernels.core import randomness as _kernel
from fastfedrec.core.arrays import as_uniform
from fastfedrec.core.check import check_instance, check_integer, plain_array
from fastfedrec.core.docstrings import shares_docstring
from fastfedrec.core.threads import resolve_n_threads, threads_for_rows

__all__ = ["Key", "claim_call", "resolve_key"]

_SIMULATION_DOMAIN = b"fastfedrec simulation key 1:"
_PERSON = b"fastfedrec-1"
_MIN_WORDS_PER_THREAD = 16_384  # that are worth a thread to sort them

#: Of a method that draws from a stream, its docstring's part that all of them have in common.
_draws_words = shares_docstring("""\
purpose : str
    What the bits are for, which names the stream.
round : int
    Below 2**32.
user : int
    A global user id, or a block number; below 2**64.
users : ndarray of shape (n_users,), uint64
    Global user ids.
size : int
    How many.
n_threads : int
    0 for all; the bits do not depend on it.""")

_lineage = object()  # of this process; a fork has another one, and unlike a process's number none comes twice


def _after_fork_in_child() -> None:
    global _lineage
    _lineage = object()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


class Key:
    """A 256-bit ChaCha20 key, from entropy or (for simulations) from a seed.

    Make one with `Key.from_entropy` or `Key.from_seed`.  An entropy key is single-use: a second ``fit`` with it
    raises, because refitting on data that differ by one user would cancel the noise exactly.  It belongs to the process
    that made it: in a fork of that process every draw from it raises.  It is never printed, pickled or saved.

    Parameters
    ----------
    secret : bytes
        32 bytes.
    seed : int or None
        Where they come from, if it is a seed.

    See Also
    --------
    fastfedrec.Interactions : Its ``global_user_ids`` name the streams.

    References
    ----------
    .. [1] Nir and Langley, "ChaCha20 and Poly1305 for IETF protocols", RFC 8439, 2018.

    Examples
    --------
    >>> from fastfedrec import Key
    >>> key = Key.from_seed(7)
    >>> bool((key.words("demo", size=3) == Key.from_seed(7).words("demo", size=3)).all())
    True
    >>> key
    Key.from_seed(7)
    """

    __slots__ = ("_lock", "_messages", "_process", "_secret", "_seed", "_used_by")

    def __init__(self, secret: bytes, *, seed: int | None = None):
        if not isinstance(secret, bytes) or len(secret) != 32:
            raise ValueError("secret must be 32 bytes; use Key.from_entropy() or Key.from_seed(n)")
        self._secret = secret
        self._seed = seed
        self._used_by: str | None = None
        self._messages: set[tuple[str, int, str]] = set()
        self._process = os.getpid(), _lineage
        self._lock = threading.Lock()

    @classmethod
    def from_entropy(cls) -> "Key":
        """Draw a key from the operating system.

        Returns
        -------
        Key
            Single-use; nothing can reproduce it.
        """
        return cls(os.urandom(32))

    @classmethod
    def from_seed(cls, n: int) -> "Key":
        """Derive a key from a seed, for simulations: whoever knows the seed can undo the noise.

        Parameters
        ----------
        n : int
            Any integer of at least 0.

        Returns
        -------
        Key
            Marked as a simulation; reusable.
        """
        n = check_integer("n", n, low=0, high=None)
        return cls(hashlib.sha256(_SIMULATION_DOMAIN + str(n).encode()).digest(), seed=n)

    @property
    def is_simulation(self) -> bool:
        """Whether the key came from a seed, so that results made with it protect nobody from its holder.

        Returns
        -------
        bool
            False for an entropy key.
        """
        return self._seed is not None

    def subkey(self, purpose: str) -> NDArray[np.uint32]:
        """The ChaCha20 key of one purpose: a keyed BLAKE2b hash of its name.

        Parameters
        ----------
        purpose : str
            What the bits are for, such as ``"fmf_ldp.reports"``; different purposes never share a stream.

        Returns
        -------
        ndarray of shape (8,), uint32
            Secret like the key itself.

        Raises
        ------
        ValueError
            An entropy key in a fork of the process that made it, which would draw the same bits.
        """
        check_instance("purpose", purpose, str, "name what the bits are for")
        self._check_process()  # here, for every draw of the package comes by
        digest = hashlib.blake2b(purpose.encode(), key=self._secret, person=_PERSON, digest_size=32).digest()
        return np.frombuffer(digest, dtype="<u4").astype(np.uint32)

    @_draws_words
    def words(
        self, purpose: str, *, round: int = 0, user: int = 0, size: int, n_threads: int = 1
    ) -> NDArray[np.uint64]:
        """The first 64-bit words of the stream (purpose, round, user).

        Parameters
        ----------
        size : int
            How many words; at most 2**35, where the block counter ends.

        Returns
        -------
        ndarray of shape (size,), uint64
            Uniform words.
        """
        user = check_integer("user", user, low=0, high=2**64 - 1)
        users = np.array([user], dtype=np.uint64)
        return self.words_by_user(purpose, users, round=round, size=size, n_threads=n_threads)[0]

    @_draws_words
    def words_by_user(
        self, purpose: str, users: np.ndarray, *, round: int = 0, size: int, n_threads: int = 1
    ) -> NDArray[np.uint64]:
        """The first 64-bit words of each user's stream, one row a user.

        Parameters
        ----------
        size : int
            Words a user; at most 2**35.

        Returns
        -------
        ndarray of shape (n_users, size), uint64
            Uniform words.
        """
        size = check_integer("size", size, low=0, high=2**35)
        round_number = check_integer("round", round, low=0, high=2**32 - 1)
        users = _check_users(users)
        out = np.empty((len(users), size), dtype=np.uint64)
        if out.size:
            _kernel.stream_words(self.subkey(purpose), users, out, round_number, resolve_n_threads(n_threads))
        return out

    @_draws_words
    def ragged_words(
        self, purpose: str, users: np.ndarray, sizes: np.ndarray, *, round: int = 0, n_threads: int = 1
    ) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        """The first 64-bit words of each user's stream, of each as many as asked for.

        Parameters
        ----------
        sizes : ndarray of shape (n_users,), int64
            Words of each user; at least 0, at most 2**35.

        Returns
        -------
        words : ndarray of shape (sum of sizes,), uint64
            One user's after the other's.
        starts : ndarray of shape (n_users + 1,), int64
            Where each user's begin.
        """
        round_number = check_integer("round", round, low=0, high=2**32 - 1)
        users, sizes = _check_users(users), plain_array("sizes", sizes)
        if sizes.shape != users.shape or sizes.dtype.kind not in "iu":
            raise ValueError(f"sizes must be {len(users)} integers, one a user, got {sizes.dtype} {sizes.shape}")
        if sizes.size and not (sizes.min() >= 0 and sizes.max() <= 2**35):
            raise ValueError(f"sizes must be from 0 to 2**35, got {sizes.min()} to {sizes.max()}")
        starts = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
        out = np.empty(starts[-1], dtype=np.uint64)
        _kernel.ragged_words(self.subkey(purpose), users, starts, out, round_number, resolve_n_threads(n_threads))
        return out, starts

    @_draws_words
    def uniform(self, purpose: str, *, round: int = 0, user: int = 0, size: int) -> NDArray[np.float64]:
        """Doubles in the open interval (0, 1), 52 bits each.

        Returns
        -------
        ndarray of shape (size,), float64
            Never 0 and never 1.
        """
        return as_uniform(self.words(purpose, round=round, user=user, size=size))

    @_draws_words
    def normal(self, purpose: str, *, round: int = 0, user: int = 0, size: int) -> NDArray[np.float64]:
        """Standard normal doubles, by the inverse distribution function; for initial values, never for privacy.

        Returns
        -------
        ndarray of shape (size,), float64
            One draw a word of the stream.
        """
        from scipy.special import ndtri

        return ndtri(self.uniform(purpose, round=round, user=user, size=size))

    @_draws_words
    def permutation(
        self, purpose: str, *, round: int = 0, user: int = 0, size: int, n_threads: int = 1
    ) -> NDArray[np.int64]:
        """A uniformly random order of ``range(size)``.

        Returns
        -------
        ndarray of shape (size,), int64
            Sorting positions of `size` random words; two equal words, with chance below size**2 / 2**65, keep
            their order.
        """
        words = self.words(purpose, round=round, user=user, size=size, n_threads=n_threads)
        order = np.empty(len(words), dtype=np.int64)
        n_threads = threads_for_rows(len(words), resolve_n_threads(n_threads), least=_MIN_WORDS_PER_THREAD)
        _kernel.sort_places(words, order, n_threads)
        return order

    def claim(self, what: str) -> None:
        """Take the key for one private run; an entropy key can be taken once.

        Parameters
        ----------
        what : str
            Who takes it, for the message of the next attempt.

        Raises
        ------
        ValueError
            An entropy key that was taken before.
        """
        self._check_process()
        if self.is_simulation:
            return
        with self._lock:
            if self._used_by is not None:
                raise ValueError(
                    f"key is single-use and was already used by {self._used_by}: a second run with the same noise on "
                    "other data would cancel it; pass key=None or a new Key.from_entropy(), or Key.from_seed(n) "
                    "for a simulation"
                )
            self._used_by = what

    def _hand_over(self, what: str) -> "Key":
        """Take the key for a private run that another model makes: the same streams, which it may take once."""
        self.claim(what)
        return self if self.is_simulation else Key(self._secret)

    def claim_message(self, purpose: str, round: int, sender: str) -> None:
        """Take the streams of one sender's randomized message; under an entropy key it is made once.

        Parameters
        ----------
        purpose : str
            The streams' purpose.
        round : int
            The round the message answers.
        sender : str
            The shard whose users' streams are read.

        Raises
        ------
        ValueError
            The message was made before: the same noise on other data would cancel it.  Send the first one again.
        """
        self._check_process()
        if self.is_simulation:
            return
        with self._lock:
            name = (purpose, round, sender)
            if name in self._messages:
                raise ValueError(
                    f"key has already made the message of {sender!r} in round {round} ({purpose}): the same noise on "
                    "other data would cancel it; keep that message and send it again"
                )
            self._messages.add(name)

    def _check_process(self) -> None:
        if self._seed is None and self._process != (os.getpid(), _lineage):
            raise ValueError(
                "key was drawn in another process, of which this one is a fork: both would draw the same noise; "
                "use a new Key.from_entropy() here"
            )

    # A copy would forget that the key was used; a pickle would write it somewhere.
    def __copy__(self) -> "Key":
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> "Key":
        return self

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        if self._seed is None:
            self._refuse_pickle()
        return Key.from_seed, (self._seed,)

    @staticmethod
    def _refuse_pickle() -> NoReturn:
        raise TypeError("an entropy key is never pickled or sent; let each process draw its own Key.from_entropy()")

    def __repr__(self) -> str:
        return f"Key.from_seed({self._seed})" if self.is_simulation else "Key.from_entropy()"


def _check_users(users: np.ndarray) -> np.ndarray:
    # A cast alone would wrap -1 and cut 0.5, and so read another user's stream.
    users = plain_array("users", users)
    if users.dtype.kind not in "iu":
        raise TypeError(f"users must be integers, got {users.dtype}; pass global_user_ids")
    if users.ndim != 1:
        raise ValueError(f"users must have 1 dimension, got shape {users.shape}")
    if users.size and users.min() < 0:
        raise ValueError(f"users must be at least 0, got {users.min()}")
    return np.ascontiguousarray(users, dtype=np.uint64)


def resolve_key(key: Key | None) -> Key:
    """`key`, or a new entropy key where it is None.

    Parameters
    ----------
    key : Key or None
        What the caller passed.

    Returns
    -------
    Key
        Never None.
    """
    if key is None:
        return Key.from_entropy()
    return check_instance("key", key, Key, "use Key.from_seed(n) for a simulation, or None for a new entropy key")


def claim_call(what: str, key: Key | None, round: int, n_threads: int = 1) -> tuple[Key, int, int]:
    """Check what a call that randomizes was given, and take its key last: a mistake does not use it up.

    Parameters
    ----------
    what : str
        Who takes the key, for the message of the next attempt.
    key, round, n_threads : object
        What the caller passed; None draws a new key from entropy.

    Returns
    -------
    key : Key
        Never None.
    round, n_threads : int
        Below 2**32, and at least 1.
    """
    round = check_integer("round", round, low=0, high=2**32 - 1)
    n_threads = resolve_n_threads(n_threads)
    key = resolve_key(key)
    key.claim(what)
    return key, round, n_threads
