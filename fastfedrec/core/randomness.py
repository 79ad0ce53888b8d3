"""Keys: every random bit of the package comes from ChaCha20 under a `Key`.

A random stream has the name (purpose, round, global user id).  The same name gives the same bits on any thread, shard
or machine, so a simulation does not depend on the number of either.  A guarantee holds only against parties without the
key, so all results of a key from a seed are marked as a simulation.
"""

import hashlib
import os
import threading
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from fastfedrec._kernels.core import randomness as _kernel
from fastfedrec.core.arrays import as_uniform
from fastfedrec.core.check import check_instance, check_integer, plain_array
from fastfedrec.core.docstrings import shares_docstring
from fastfedrec.core.threads import resolve_n_threads, threads_for_rows

__all__ = ["Key", "claim_call", "resolve_key"]

_SIMULATION_DOMAIN = b"fastfedrec simulation key 1:"
_PERSON = b"fastfedrec-1"  # BLAKE2's personalisation, which makes these hashes differ from other programs' hashes
_MIN_WORDS_PER_THREAD = 16_384  # smallest number of words to sort for which another thread saves time

#: Decorator of methods that draw from a stream, with the parameters that they share.
_draws_words = shares_docstring("""\
purpose : str
    Purpose of the bits, which is part of the stream's name.
round : int
    Number of the round, below 2**32.
user : int
    Global user id, or number of a block; below 2**64.
users : ndarray of shape (n_users,), uint64
    Global user ids.
size : int
    Number of draws.
n_threads : int
    Number of threads; 0 for all.  The bits do not depend on it.""")

# Identity of this process.  A fork gets another one; process numbers are not enough, because systems reuse them.
_lineage = object()


def _after_fork_in_child() -> None:
    global _lineage
    _lineage = object()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


class Key:
    """A 256-bit ChaCha20 key, from entropy or (for simulations) from a seed.

    Make one with `Key.from_entropy` or `Key.from_seed`.  An entropy key is single-use: a second ``fit`` with it raises
    an error, because two fits on data that differ in one user would have the same noise, and their difference none.  An
    entropy key belongs to the process that made it, and every draw in a fork of that process raises an error.  It is
    never printed, pickled or saved with a model; only the checkpoint of a run stores it.

    Parameters
    ----------
    secret : bytes
        Secret of 32 bytes.
    seed : int or None
        Seed from which the secret was derived; None for entropy.

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

    __slots__ = ("_lock", "_messages", "_process", "_secret", "_seed", "_streams", "_used_by")

    def __init__(self, secret: bytes, *, seed: int | None = None):
        if not isinstance(secret, bytes) or len(secret) != 32:
            raise ValueError("secret must be 32 bytes; use Key.from_entropy() or Key.from_seed(n)")
        self._secret = secret
        self._seed = seed
        self._used_by: str | None = None
        self._messages: set[tuple[str, int, str]] = set()
        self._streams: set[tuple[str, int | None, int | None]] = set()
        self._process = os.getpid(), _lineage
        self._lock = threading.Lock()

    @classmethod
    def from_entropy(cls) -> "Key":
        """Draw a key from the operating system.

        Returns
        -------
        Key
            Single-use key that cannot be reproduced.
        """
        return cls(os.urandom(32))

    @classmethod
    def from_seed(cls, n: int) -> "Key":
        """Derive a key from a seed, for simulations: an adversary who knows the seed can remove the noise.

        Parameters
        ----------
        n : int
            Seed, at least 0.

        Returns
        -------
        Key
            Reusable key that is marked as a simulation.
        """
        n = check_integer("n", n, low=0, high=None)
        return cls(hashlib.sha256(_SIMULATION_DOMAIN + str(n).encode()).digest(), seed=n)

    @property
    def is_simulation(self) -> bool:
        """Whether the key came from a seed, so that its results have no guarantee against a holder of the seed.

        Returns
        -------
        bool
            False for an entropy key.
        """
        return self._seed is not None

    def subkey(self, purpose: str) -> NDArray[np.uint32]:
        """Derive the ChaCha20 key of one purpose, a keyed BLAKE2b hash of the purpose's name.

        Parameters
        ----------
        purpose : str
            Purpose of the bits, such as ``"fmf_ldp.reports"``; different purposes never share a stream.

        Returns
        -------
        ndarray of shape (8,), uint32
            Derived key, which is as secret as the key itself.

        Raises
        ------
        ValueError
            The key is an entropy key from before the fork of this process.
        """
        check_instance("purpose", purpose, str, "pass a name for the purpose of the bits")
        self._check_process()  # every draw of the package calls this method
        digest = hashlib.blake2b(purpose.encode(), key=self._secret, person=_PERSON, digest_size=32).digest()
        return np.frombuffer(digest, dtype="<u4").astype(np.uint32)

    @_draws_words
    def words(
        self, purpose: str, *, round: int = 0, user: int = 0, size: int, n_threads: int = 1
    ) -> NDArray[np.uint64]:
        """Return the first 64-bit words of the stream (purpose, round, user).

        Parameters
        ----------
        size : int
            Number of words, at most 2**35, the range of the block counter.

        Returns
        -------
        ndarray of shape (size,), uint64
            Uniform words.
        """
        user = check_integer("user", user, low=0, high=2**64 - 1)
        return self._words(purpose, np.array([user], dtype=np.uint64), round, size, n_threads)[0]

    @_draws_words
    def words_by_user(
        self, purpose: str, users: np.ndarray, *, round: int = 0, size: int, n_threads: int = 1
    ) -> NDArray[np.uint64]:
        """Return the first 64-bit words of each user's stream, one row for each user.

        Parameters
        ----------
        size : int
            Number of words for each user, at most 2**35.

        Returns
        -------
        ndarray of shape (n_users, size), uint64
            Uniform words.
        """
        return self._words(purpose, _check_users(users), round, size, n_threads)

    def _words(self, purpose: str, users: np.ndarray, round: int, size: int, n_threads: int) -> NDArray[np.uint64]:
        """Return words of the streams of checked users."""
        size = check_integer("size", size, low=0, high=2**35)
        round_number = check_integer("round", round, low=0, high=2**32 - 1)
        out = np.empty((len(users), size), dtype=np.uint64)
        if out.size:
            _kernel.stream_words(self.subkey(purpose), users, out, round_number, resolve_n_threads(n_threads))
        return out

    @_draws_words
    def ragged_words(
        self, purpose: str, users: np.ndarray, sizes: np.ndarray, *, round: int = 0, n_threads: int = 1
    ) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        """Return the first 64-bit words of each user's stream, with a separate number of words for each user.

        Parameters
        ----------
        sizes : ndarray of shape (n_users,), int64
            Number of words for each user, from 0 to 2**35.

        Returns
        -------
        words : ndarray of shape (sum of sizes,), uint64
            Uniform words in the order of the users.
        starts : ndarray of shape (n_users + 1,), int64
            Start of each user's words.
        """
        round_number = check_integer("round", round, low=0, high=2**32 - 1)
        users, sizes = _check_users(users), plain_array("sizes", sizes)
        if sizes.shape != users.shape or sizes.dtype.kind not in "iu":
            raise ValueError(f"sizes must be {len(users)} integers, one for each user, got {sizes.dtype} {sizes.shape}")
        if sizes.size and not (sizes.min() >= 0 and sizes.max() <= 2**35):
            raise ValueError(f"sizes must be from 0 to 2**35, got {sizes.min()} to {sizes.max()}")
        starts = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
        out = np.empty(starts[-1], dtype=np.uint64)
        _kernel.ragged_words(self.subkey(purpose), users, starts, out, round_number, resolve_n_threads(n_threads))
        return out, starts

    @_draws_words
    def uniform(self, purpose: str, *, round: int = 0, user: int = 0, size: int) -> NDArray[np.float64]:
        """Draw doubles from the uniform distribution on the open interval (0, 1), with 52 bits each.

        Returns
        -------
        ndarray of shape (size,), float64
            Numbers above 0 and below 1.
        """
        return as_uniform(self.words(purpose, round=round, user=user, size=size))

    @_draws_words
    def normal(self, purpose: str, *, round: int = 0, user: int = 0, size: int) -> NDArray[np.float64]:
        """Draw standard normal doubles by the inverse distribution function, for initial values and never for privacy.

        Returns
        -------
        ndarray of shape (size,), float64
            One draw for each word of the stream.
        """
        from scipy.special import ndtri

        return ndtri(self.uniform(purpose, round=round, user=user, size=size))

    @_draws_words
    def permutation(
        self, purpose: str, *, round: int = 0, user: int = 0, size: int, n_threads: int = 1
    ) -> NDArray[np.int64]:
        """Draw a uniformly random order of ``range(size)``.

        Returns
        -------
        ndarray of shape (size,), int64
            Positions that sort `size` random words.  Equal words keep their order; their probability is below
            size**2 / 2**65.
        """
        # A stable sort by random words is an exactly uniform order, given that the words differ.
        words = self.words(purpose, round=round, user=user, size=size, n_threads=n_threads)
        order = np.empty(len(words), dtype=np.int64)
        n_threads = threads_for_rows(len(words), resolve_n_threads(n_threads), min_rows=_MIN_WORDS_PER_THREAD)
        _kernel.argsort(words, order, n_threads)
        return order

    def claim(self, what: str) -> None:
        """Claim the key for one private run; an entropy key can be claimed only once.

        Parameters
        ----------
        what : str
            Name of the run, for the message of a second claim.

        Raises
        ------
        ValueError
            The entropy key was claimed before.
        """
        self._check_process()
        if self.is_simulation:
            return
        # The lock makes test and claim one step, so that two threads cannot both claim the key.
        with self._lock:
            if self._used_by is not None:
                raise ValueError(
                    f"key is single-use and was already used by {self._used_by}: a second run with the same noise on "
                    "other data would cancel it; pass key=None or a new Key.from_entropy(), or Key.from_seed(n) "
                    "for a simulation"
                )
            self._used_by = what

    def _hand_over(self, what: str) -> "Key":
        """Claim the key for a run of another model, and return a key with the same streams for that model's claim."""
        self.claim(what)
        # The new object has no claim yet, and no other code has a reference to it.
        return self if self.is_simulation else Key(self._secret)

    def claim_message(self, purpose: str, round: int, sender: str) -> None:
        """Claim the streams of one sender's randomized message, which an entropy key allows only once.

        Parameters
        ----------
        purpose : str
            Purpose of the streams.
        round : int
            Number of the round that the message answers.
        sender : str
            Name of the shard that makes the message.

        Raises
        ------
        ValueError
            The message was made before, and the same noise on other data would cancel it.  Send the first message
            again.
        """
        self._check_process()
        if self.is_simulation:
            return
        with self._lock:
            # A stream that other code has may be of the same purpose, so no message follows one.
            if (name := (purpose, round, sender)) in self._messages or self._streams:
                raise ValueError(
                    f"key has already made the message of {sender!r} in round {round} ({purpose}), or gave streams to "
                    "other code: the same noise on other data would cancel it; send that message again"
                )
            self._messages.add(name)

    @_draws_words
    def claim_stream(self, what: str, purpose: str, round: int | None = None, user: int | None = None) -> None:
        """Claim one stream, or all of a purpose with None, for draws outside of this package; once for an entropy key.

        Parameters
        ----------
        what : str
            Name of the consumer, for the message of a second claim.

        Raises
        ------
        ValueError
            The stream was claimed before, or the key for a run.
        """
        self._check_process()
        if self.is_simulation:
            return
        name, every = (purpose, round, user), (purpose, None, None)
        with self._lock:
            taken = {other for other in self._streams if other[0] == purpose} if name == every else {name, every}
            if taken & self._streams or self._messages or (self._used_by is not None and not self._streams):
                raise ValueError(
                    f"key is single-use and was already used by {self._used_by or 'a message'}: {what} would repeat "
                    f"bits of {purpose!r}; pass another purpose, round or user, or a new Key.from_entropy()"
                )
            self._streams.add(name)
            self._used_by = what

    def _check_process(self) -> None:
        # The process number changes in a fork, and the lineage also where a child gets the number of a dead process.
        if self._seed is None and self._process != (os.getpid(), _lineage):
            raise ValueError(
                "key must be drawn in this process, got one from before its fork: both processes would draw the same "
                "noise; use a new Key.from_entropy() here"
            )

    # A copy would have no record of the key's use, and a pickle would write the secret to a file or a network.
    def __copy__(self) -> "Key":
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> "Key":
        return self

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        if self._seed is None:
            raise TypeError("an entropy key is never pickled or sent; let each process draw its own Key.from_entropy()")
        return Key.from_seed, (self._seed,)

    def __repr__(self) -> str:
        return f"Key.from_seed({self._seed})" if self.is_simulation else "Key.from_entropy()"


def _check_users(users: np.ndarray) -> np.ndarray:
    # A cast without a check would turn -1 or 0.5 into another user's id, and so read that user's stream.
    users = plain_array("users", users)
    if users.dtype.kind not in "iu":
        raise TypeError(f"users must be integers, got {users.dtype}; pass global_user_ids")
    if users.ndim != 1:
        raise ValueError(f"users must have 1 dimension, got shape {users.shape}")
    if users.size and users.min() < 0:
        raise ValueError(f"users must be at least 0, got {users.min()}")
    return np.ascontiguousarray(users, dtype=np.uint64)


def resolve_key(key: Key | None) -> Key:
    """Return `key`, or a new entropy key for None.

    Parameters
    ----------
    key : Key or None
        Argument of the caller.

    Returns
    -------
    Key
        The key to use.
    """
    if key is None:
        return Key.from_entropy()
    return check_instance("key", key, Key, "use Key.from_seed(n) for a simulation, or None for a new entropy key")


def claim_call(what: str, key: Key | None, round: int, n_threads: int = 1) -> tuple[Key, int, int]:
    """Check the common arguments of a call that randomizes, and claim its key.

    Parameters
    ----------
    what : str
        Name of the call, for the message of a second claim.
    key, round, n_threads : object
        Arguments of the caller; a key of None draws a new one from entropy.

    Returns
    -------
    key : Key
        The claimed key.
    round, n_threads : int
        Number of the round, below 2**32, and number of threads, at least 1.
    """
    # The claim is the last step, so that an invalid argument does not use up an entropy key.
    round = check_integer("round", round, low=0, high=2**32 - 1)
    n_threads = resolve_n_threads(n_threads)
    key = resolve_key(key)
    key.claim(what)
    return key, round, n_threads
