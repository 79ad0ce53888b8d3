"""Arrays as other libraries hand them over: none of these is NumPy's."""

import numpy as np


class Exported:
    """A tensor of the CPU that knows DLPack alone, as the array API asks for."""

    def __init__(self, array):
        array = np.ascontiguousarray(array)
        self.array = array if array.flags.writeable else array.copy()  # NumPy 2.0 exports nothing that is read-only

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __len__(self):
        return len(self.array)


class Converted:
    """An object that NumPy can read by `__array__` alone."""

    def __init__(self, array):
        self.array = np.ascontiguousarray(array)

    def __array__(self, dtype=None, copy=None):
        return self.array if dtype is None else self.array.astype(dtype)

    def __len__(self):
        return len(self.array)


class OnGPU(Exported):
    """A tensor elsewhere, which says so as CUDA's do."""

    def __dlpack_device__(self):
        return (2, 0)

    def __dlpack__(self, **options):
        raise AssertionError("its memory is not to be asked for")

    def __array__(self, dtype=None, copy=None):
        raise AssertionError("its memory is not to be asked for")


class WithGradient(Exported):
    """A tensor that its library does not let out, as PyTorch's with a gradient."""

    def __dlpack__(self, **options):
        raise BufferError("Can't export tensors that require gradient, use tensor.detach()")

    def __array__(self, dtype=None, copy=None):
        raise RuntimeError("Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.")
