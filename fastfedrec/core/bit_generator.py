"""Streams of a `Key` as a bit generator of NumPy."""

import os
import weakref
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import numpy as np

from fastfedrec._kernels.core import bit_generator as _kernel
from fastfedrec.core.check import check_instance, check_integer
from fastfedrec.core.randomness import Key

__all__ = ["ChaCha20"]

_JUMP = 2**30  # words
_SEED = np.random.SeedSequence(0)  # NumPy's base class requires one; no draw depends on it

_of_entropy_keys: "weakref.WeakSet[ChaCha20]" = weakref.WeakSet()


def _close_in_child() -> None:
    for generator in _of_entropy_keys:
        generator._stream.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_child)


class ChaCha20(np.random.BitGenerator):
    """The stream (purpose, round, user) of a key as a bit generator, ``numpy.random.Generator(ChaCha20(...))``.

    The 64-bit words are equal to `Key.words`.  **No guarantee.** The bits are secret, but NumPy's samplers of floats
    are not private: their floating-point numbers depend on more than the distribution.  Noise for a guarantee is
    integer noise of `fastfedrec.mechanisms`.

    A stream of an entropy key is used once: a second generator of it raises an error, and so do `state`, `jumped`,
    pickling and draws in a fork of the process, which would repeat its words.

    Parameters
    ----------
    key : Key
        Key of the stream, which the generator claims for `purpose`, `round` and `user`.
    purpose : str
        Purpose of the bits, which is part of the stream's name.
    round : int
        Number of the round, below 2**32.
    user : int
        Global user id, or number of a block; below 2**64.

    Raises
    ------
    ValueError
        The stream of an entropy key was claimed before, or the key for a run.

    See Also
    --------
    Key.words : The same words as an array.

    Notes
    -----
    A stream has 2**35 words (256 GiB).  A draw after the last one raises an error, as does a position beyond it.

    References
    ----------
    .. [1] Nir and Langley, "ChaCha20 and Poly1305 for IETF protocols", RFC 8439, 2018.

    Examples
    --------
    >>> import numpy as np
    >>> from fastfedrec import ChaCha20, Key
    >>> key = Key.from_seed(7)
    >>> generator = np.random.Generator(ChaCha20(key, "demo"))
    >>> words = generator.integers(0, 2**64, size=3, dtype=np.uint64)
    >>> bool((words == key.words("demo", size=3)).all())
    True
    """

    def __init__(self, key: Key, purpose: str, *, round: int = 0, user: int = 0):
        super().__init__(_SEED)
        self._key = check_instance("key", key, Key, "use Key.from_entropy(), or Key.from_seed(n) for a simulation")
        self._purpose = check_instance("purpose", purpose, str, "pass a name for the purpose of the bits")
        self._round = check_integer("round", round, low=0, high=2**32 - 1)
        self._user = check_integer("user", user, low=0, high=2**64 - 1)
        self._n_spawned = 0
        key.claim_stream("ChaCha20", purpose, self._round, self._user)
        self._stream = _kernel.Stream(key.subkey(purpose), self._round, self._user)
        self._stream.connect(self.capsule)
        if not key.is_simulation:
            _of_entropy_keys.add(self)

    @property
    def seed_seq(self) -> NoReturn:
        """The seed sequence, which a generator with a key does not have."""
        raise AttributeError("a ChaCha20 has a key, and no seed sequence; use spawn() for independent generators")

    @property
    def state(self) -> dict[str, Any]:
        """State of a simulation's generator: the name of its stream, and the position in it.

        Returns
        -------
        dict
            Numbers and strings only.

        Raises
        ------
        TypeError
            The key is an entropy key.
        """
        self._require_simulation("state")
        with self.lock:
            position, half = self._stream.position()
        return {
            "bit_generator": "ChaCha20",
            "state": {
                "seed": self._key._seed,
                "purpose": self._purpose,
                "round": self._round,
                "user": self._user,
                "position": position,
                "n_spawned": self._n_spawned,
            },
            "has_uint32": int(half is not None),
            "uinteger": half or 0,
        }

    @state.setter
    def state(self, value: Mapping[str, Any]) -> None:
        self._require_simulation("state")
        if not isinstance(value, Mapping) or value.get("bit_generator") != "ChaCha20":
            raise ValueError(f"state must be of a ChaCha20, got {value!r:.100}; use the state of another one")
        try:
            name, has_half, half = value["state"], value["has_uint32"], value["uinteger"]
            seed, purpose, round_number, user, position, n_spawned = (
                name[field] for field in ("seed", "purpose", "round", "user", "position", "n_spawned")
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"state must have the fields of ChaCha20.state, and lacks {error}") from None
        other = ChaCha20(Key.from_seed(seed), purpose, round=round_number, user=user)
        position = check_integer("position", position, low=0, high=_kernel.N_WORDS)
        half = check_integer("uinteger", half, low=0, high=2**32 - 1)
        n_spawned = check_integer("n_spawned", n_spawned, low=0, high=None)
        other._stream.seek(position, half if has_half else None)
        with self.lock:
            self._key, self._purpose, self._round, self._user = other._key, other._purpose, other._round, other._user
            self._n_spawned = n_spawned
            self._stream.replace_by(other._stream)

    def spawn(self, n_children: int) -> list["ChaCha20"]:
        """Return generators of new streams, with the purposes ``purpose/0``, ``purpose/1``, and so on.

        Parameters
        ----------
        n_children : int
            Number of generators.

        Returns
        -------
        list of ChaCha20
            Generators of the same key, round and user; later calls go on counting.
        """
        n_children = check_integer("n_children", n_children, low=0)
        with self.lock:
            first = self._n_spawned
            self._n_spawned += n_children
        return [
            ChaCha20(self._key, f"{self._purpose}/{i}", round=self._round, user=self._user)
            for i in range(first, first + n_children)
        ]

    def jumped(self, jumps: int = 1) -> "ChaCha20":
        """Return a simulation's generator at a later position of the same stream.

        Parameters
        ----------
        jumps : int
            Number of jumps by 2**30 words, at least 0.

        Returns
        -------
        ChaCha20
            Generator of the same stream, which goes on independently of this one.

        Raises
        ------
        TypeError
            The key is an entropy key: two calls would give the same words.
        OverflowError
            The position is after the end of the stream, which has 2**35 words.
        """
        self._require_simulation("jumped()")
        jumps = check_integer("jumps", jumps, low=0)
        with self.lock:
            position, _ = self._stream.position()
        position += jumps * _JUMP
        if position > _kernel.N_WORDS:
            raise OverflowError(
                f"jumps must end in the stream's 2**35 words, got {jumps} to word {position}; use spawn()"
            )
        other = ChaCha20(self._key, self._purpose, round=self._round, user=self._user)
        other._stream.seek(position, None)
        return other

    def __reduce__(self) -> tuple[Callable[..., "ChaCha20"], tuple[Any, ...], Mapping[str, Any]]:  # type: ignore[override]
        self._require_simulation("pickling")
        return ChaCha20, (self._key, self._purpose), self.state

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.state = state

    def _require_simulation(self, what: str) -> None:
        if not self._key.is_simulation:
            raise TypeError(
                f"{what} of a generator of an entropy key is refused, because its words would be repeated; "
                "use spawn(), or Key.from_seed(n) for a simulation"
            )

    def __repr__(self) -> str:
        return f"ChaCha20({self._key!r}, {self._purpose!r}, round={self._round}, user={self._user})"
