"""Memory that begins on a cache line: a vector that crosses two lines is read and written twice.

Inline functions only: a compiled module cannot be cimported under the `_kernels` mapping (see setup.py).
"""

cdef extern from "<cstdlib>" nogil:
    void* aligned_alloc(size_t alignment, size_t n_bytes) noexcept

cdef enum:
    CACHE_LINE = 64


cdef inline void* malloc_lines(size_t n_bytes) noexcept nogil:
    """Allocate at least `n_bytes`, to be freed like memory of `malloc`; return NULL if there is no memory."""
    # The size is whole lines, as `aligned_alloc` requires, plus one line, so that 0 bytes give a valid pointer.
    return aligned_alloc(CACHE_LINE, (n_bytes // CACHE_LINE + 1) * CACHE_LINE)
