"""The C API: its header, and the arrays that compiled code takes in place of Python's objects.

The header ``fastfedrec.h`` documents the functions for C and C++, ``fastfedrec._kernels.capi`` has them for Cython's
``cimport``, and `fastfedrec.numba` for functions that Numba compiles.  Keys stay in Python: `subkey` claims one and
returns the words with which compiled code opens streams.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fastfedrec.core.check import check_instance
from fastfedrec.core.randomness import Key
from fastfedrec.mechanisms.noise.discrete_gaussian import DiscreteGaussian
from fastfedrec.mechanisms.noise.discrete_laplace import DiscreteLaplace
from fastfedrec.mechanisms.noise.exact_sampling import gaussian_numbers, laplace_numbers
from fastfedrec.mechanisms.noise.integer_noise import IntegerNoise

__all__ = ["exact_numbers", "get_include", "noise_table", "subkey"]

__dir__ = __all__.copy  # dir() lists only the public names


def get_include() -> str:
    """Return the folder with the header ``fastfedrec.h``, for a compiler's ``-I``.

    Returns
    -------
    str
        Absolute path of the folder.

    Examples
    --------
    >>> from pathlib import Path
    >>> import fastfedrec
    >>> [path.name for path in Path(fastfedrec.get_include()).iterdir()]
    ['fastfedrec.h']
    """
    return str(Path(__file__).resolve().parent / "include")


def subkey(key: Key, purpose: str) -> NDArray[np.uint32]:
    """Claim all streams of a purpose, and return their key.

    Parameters
    ----------
    key : Key
        Key; an entropy key gives each purpose away only once.
    purpose : str
        Purpose of the bits.  Open each stream of a round and user once, because its bits repeat otherwise.

    Returns
    -------
    ndarray of shape (8,), uint32
        ChaCha20 key of the purpose, which is as secret as `key`.

    Raises
    ------
    ValueError
        A stream of the purpose was claimed before, or the key for a run.
    """
    key = check_instance("key", key, Key, "use Key.from_entropy(), or Key.from_seed(n) for a simulation")
    check_instance("purpose", purpose, str, "pass a name for the purpose of the bits")
    key.claim_stream("subkey", purpose)
    return key.subkey(purpose)


def exact_numbers(noise: DiscreteLaplace | DiscreteGaussian) -> NDArray[np.uint64]:
    """Return the parameters of exact draws.

    Parameters
    ----------
    noise : DiscreteLaplace or DiscreteGaussian
        Noise with ``sampler="exact"``.

    Returns
    -------
    ndarray of shape (4,) or (10,), uint64
        Argument of ``ffr_discrete_laplace``, or of ``ffr_discrete_gaussian``.

    Raises
    ------
    ValueError
        The parameters need more than 128 bits, or the noise has a table.
    """
    if not isinstance(noise, DiscreteLaplace | DiscreteGaussian):
        raise TypeError(f"noise must be DiscreteLaplace or DiscreteGaussian, got {noise!r}; use noise_table for others")
    if noise.sampler != "exact":
        raise ValueError(f"noise must have sampler='exact', got {noise!r}; use noise_table")
    if isinstance(noise, DiscreteLaplace):
        numbers = laplace_numbers(noise.scale)
    else:
        numbers = gaussian_numbers(noise.stddev**2)
    if numbers is None:
        raise ValueError(f"noise must have a parameter of at most 128 bits, got {noise!r}; use a rounded one")
    return numbers.reshape(-1)


def noise_table(noise: IntegerNoise) -> tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.int32], int]:
    """Return the table of integer noise.

    Parameters
    ----------
    noise : IntegerNoise
        `RoundedGaussian`, or `DiscreteLaplace` or `DiscreteGaussian` with ``sampler="table"``.

    Returns
    -------
    high, low : ndarray of shape (2 * reach + 1,), uint64
        Halves of the thresholds, and a last entry that ends a search; ``ffr_table_noise`` takes n = 2 * reach.
    guide : ndarray of shape (n_cells,), int32
        Start of a search for the highest bits of a word.
    shift : int
        Number of the other bits.

    Raises
    ------
    ValueError
        The noise does not have exactly one table.
    """
    noise = check_instance("noise", noise, IntegerNoise, "use RoundedGaussian, DiscreteGaussian or DiscreteLaplace")
    if len(noise._tables) != 1:
        raise ValueError(f"noise must have one table, got {noise!r}; use sampler='table', or RoundedGaussian")
    (table,) = noise._tables
    return table.high, table.low, table.guide, table.shift
