"""Conversion of other libraries' arrays, such as PyTorch's and JAX's, without an import of these libraries."""

from contextlib import suppress
from typing import Any

import numpy as np

from fastfedrec.core.numbers import show

# DLPack's numbers of CPU memory: kDLCPU, and memory that CPU and GPU share (kDLCUDAHost, kDLROCMHost, kDLCUDAManaged).
_CPU = {1, 3, 11, 13}
_DEVICES = {2: "a CUDA GPU", 4: "OpenCL", 7: "Vulkan", 8: "Metal", 10: "a ROCm GPU", 14: "oneAPI", 15: "WebGPU"}
# Methods by which sparse arrays of SciPy, PyData and JAX convert themselves.
_OF_SPARSE = ("to_scipy_sparse", "toarray", "todense")
#: Types without these methods and protocols, of most small inputs.
PYTHON_TYPES = {list, tuple, float, int, bool}
_PROTOCOLS = ("__dlpack__", "__array__", "__array_interface__", "__array_struct__")


def _other_device(value: Any) -> str:
    """Return a description of an array's device, or "" for CPU memory."""
    try:
        number = int(value.__dlpack_device__()[0])
    except Exception as error:  # for example PyTorch's meta device, which has no numbers
        return f"a device that its library does not name ({error})"
    return "" if number in _CPU else _DEVICES.get(number, f"device type {number}")


def _lets_numbers_out(value: Any) -> bool:
    """Return whether NumPy can read all numbers of an object at once."""
    if any(hasattr(value, protocol) for protocol in _PROTOCOLS):
        return True
    try:
        memoryview(value).release()
    except TypeError:
        return False
    return True


def host_array(name: str, value: Any) -> np.ndarray:
    """Return an object as a NumPy array by `__dlpack__` or `__array__`, in the object's own memory if possible."""
    # The result may be read-only.  A TypeError reports an array on another device, a sparse one, or one that its
    # library does not export; a ValueError reports a value that is not an array.
    kind = type(value).__name__
    if type(value) not in PYTHON_TYPES:
        _refuse_other_kinds(name, value)
    if hasattr(value, "__dlpack__"):
        with suppress(Exception):  # read-only arrays and some types fail; the code below copies them or raises
            return np.from_dlpack(value)
    try:
        # A polars column converts text to objects in `to_numpy`, and to NumPy's strings in `np.asarray`.  The latter
        # lose null characters at the end, so that two ids could become one.
        return value.to_numpy() if hasattr(value, "to_physical") else np.asarray(value)
    except ValueError as error:  # rows of different lengths
        raise ValueError(f"{name} must be an array, got {show(value)}: {error}") from None
    except MemoryError:
        raise
    except Exception as error:  # a tensor with a gradient, or a type that NumPy lacks: each library has its own errors
        raise TypeError(f"{name} must be an array that NumPy can read, got {kind}: {error}") from None


def shared_array(name: str, value: Any) -> np.ndarray | None:
    """Return a NumPy array over the memory of an object with `__dlpack__`, or None for an object without it."""
    # `host_array` may return a copy, which an output must not be.
    if not hasattr(value, "__dlpack__"):
        return None
    _refuse_other_kinds(name, value)
    try:
        shared = np.from_dlpack(value)
    except Exception as error:  # a read-only array, a tensor with a gradient, or a type that NumPy lacks
        raise TypeError(
            f"{name} must be an array with memory that NumPy can write, got {type(value).__name__}: {error}"
        ) from None
    if not shared.flags.writeable:
        # NumPy takes memory as read-only if its exporter does not state the opposite, as older libraries.  It is
        # writable if the exporter's own conversion is a writable array over the same memory.
        with suppress(Exception):
            own = np.asarray(value)
            if own.flags.writeable and own.__array_interface__["data"][0] == shared.__array_interface__["data"][0]:
                return own
    return shared


def _refuse_other_kinds(name: str, value: Any) -> None:
    """Raise a TypeError for an array on another device, a sparse one, or one that NumPy reads number by number."""
    kind = type(value).__name__
    if hasattr(value, "__dlpack_device__") and (device := _other_device(value)):
        raise TypeError(
            f"{name} must be in the memory of the CPU, got {kind} on {device}; copy it first, by .cpu() of PyTorch, "
            ".get() of CuPy or jax.device_get"
        )
    if remedies := [method for method in _OF_SPARSE if hasattr(value, method)]:
        raise TypeError(f"{name} must be dense, got {kind}; use its {' or '.join(f'{call}()' for call in remedies)}")
    if hasattr(value, "shape") and hasattr(value, "__getitem__") and not _lets_numbers_out(value):
        raise TypeError(
            f"{name} must be an array that NumPy can read at once, got {kind}; convert it to a NumPy array first"
        )
