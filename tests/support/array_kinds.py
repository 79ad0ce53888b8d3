"""Arrays of other libraries, none of them NumPy's."""

import numpy as np


class Exported:
    """CPU tensor that supports DLPack only, as in the array API."""

    def __init__(self, array):
        array = np.ascontiguousarray(array)
        self.array = array if array.flags.writeable else array.copy()  # NumPy 2.0 exports no read-only array

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __len__(self):
        return len(self.array)


class Converted:
    """Object that NumPy can read by `__array__` only."""

    def __init__(self, array):
        self.array = np.ascontiguousarray(array)

    def __array__(self, dtype=None, copy=None):
        return self.array if dtype is None else self.array.astype(dtype)

    def __len__(self):
        return len(self.array)


class OnGPU(Exported):
    """Tensor on another device, with CUDA's errors."""

    def __dlpack_device__(self):
        return (2, 0)

    def __dlpack__(self, **options):
        raise AssertionError("its memory must not be accessed")

    def __array__(self, dtype=None, copy=None):
        raise AssertionError("its memory must not be accessed")


class WithGradient(Exported):
    """Tensor that its library does not export, like PyTorch's with a gradient."""

    def __dlpack__(self, **options):
        raise BufferError("Can't export tensors that require gradient, use tensor.detach()")

    def __array__(self, dtype=None, copy=None):
        raise RuntimeError("Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.")


class OlderExported(Exported):
    """CPU tensor with DLPack before version 1, which does not state whether memory is read-only, and `__array__`."""

    def __init__(self, array):
        self.array = np.ascontiguousarray(array)

    def __dlpack__(self, stream=None):
        return self.array.__dlpack__()

    def __array__(self, dtype=None, copy=None):
        return self.array
