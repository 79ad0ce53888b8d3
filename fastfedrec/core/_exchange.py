"""Arrays of other libraries, such as PyTorch and JAX, none of which is imported."""

from contextlib import suppress
from typing import Any

import numpy as np

from fastfedrec.core.numbers import show

_CPU = {1, 3, 11, 13}  # kDLCPU, and what both sides address: kDLCUDAHost, kDLROCMHost, kDLCUDAManaged
_DEVICES = {2: "a CUDA GPU", 4: "OpenCL", 7: "Vulkan", 8: "Metal", 10: "a ROCm GPU", 14: "oneAPI", 15: "WebGPU"}
# Conversions that sparse arrays of SciPy, PyData and JAX offer.
_OF_SPARSE = ("to_scipy_sparse", "toarray", "todense")
_PROTOCOLS = ("__dlpack__", "__array__", "__array_interface__", "__array_struct__")


def _other_device(value: Any) -> str:
    """Return the device of an array in words, or "" for memory of the CPU."""
    try:
        number = int(value.__dlpack_device__()[0])
    except Exception as error:  # PyTorch's meta device, which holds no numbers
        return f"a device that its library does not name ({error})"
    return "" if number in _CPU else _DEVICES.get(number, f"device type {number}")


def _lets_numbers_out(value: Any) -> bool:
    """Return whether NumPy can take all numbers of an object at once."""
    if any(hasattr(value, protocol) for protocol in _PROTOCOLS):
        return True
    try:
        memoryview(value).release()
    except TypeError:
        return False
    return True


def host_array(name: str, value: Any) -> np.ndarray:
    """What NumPy makes of an object, in the object's own memory where that can be: by `__dlpack__`, or `__array__`.

    Parameters
    ----------
    name : str
        The argument's name, for messages.
    value : object
        With `__dlpack__` or `__array__`, or anything that `numpy.asarray` takes.

    Returns
    -------
    ndarray
        Perhaps read-only.

    Raises
    ------
    TypeError
        On another device, sparse, or nothing that its own library lets out.
    ValueError
        No array.
    """
    kind = type(value).__name__
    if hasattr(value, "__dlpack_device__") and (where := _other_device(value)):
        raise TypeError(
            f"{name} must be in the memory of the CPU, got {kind} on {where}; copy it first, as .cpu() of PyTorch, "
            ".get() of CuPy and jax.device_get do"
        )
    if remedies := [method for method in _OF_SPARSE if hasattr(value, method)]:
        raise TypeError(f"{name} must be dense, got {kind}; use its {' or '.join(f'{call}()' for call in remedies)}")
    if hasattr(value, "shape") and hasattr(value, "__getitem__") and not _lets_numbers_out(value):
        raise TypeError(
            f"{name} must be an array that NumPy can read, got {kind}, which would be read number by number; convert "
            "it to a NumPy array first"
        )
    if hasattr(value, "__dlpack__"):
        with suppress(Exception):  # not of every type, nor of what is read-only: then by a copy, or with a message
            return np.from_dlpack(value)
    try:
        # A column of polars makes objects of text by itself: NumPy's strings, which lose characters 0 at their end and
        # make one id of two, where NumPy asks it.
        return value.to_numpy() if hasattr(value, "to_physical") else np.asarray(value)
    except ValueError as error:  # rows of different lengths
        raise ValueError(f"{name} must be an array, got {show(value)}: {error}") from None
    except (TypeError, RuntimeError, BufferError) as error:  # a tensor that has a gradient, a type that NumPy has not
        raise TypeError(f"{name} must be an array that NumPy can read, got {kind}: {error}") from None
