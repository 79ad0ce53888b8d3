"""Eigenvectors of a symmetric matrix by SciPy's LAPACK, without Python's lock; see `systems/gram/_spectrum.py`.

`scipy.linalg.eigh` holds the lock, so two threads that call it take as long as one.  Inputs are trusted.
"""
from cpython.pycapsule cimport PyCapsule_GetName, PyCapsule_GetPointer
from libc.stdlib cimport free, malloc

ctypedef fused real:
    float
    double

ctypedef void (*Single)(
    char* job, char* triangle, int* n, float* matrix, int* stride, float* values, float* work, int* n_work,
    int* integers, int* n_integers, int* code
) noexcept nogil
ctypedef void (*Double)(
    char* job, char* triangle, int* n, double* matrix, int* stride, double* values, double* work, int* n_work,
    int* integers, int* n_integers, int* code
) noexcept nogil


def replace_by_eigenvectors(
    object routine,          # capsule of LAPACK's ssyevd for float32, dsyevd for float64
    real[:, ::1] matrix,     # IN/OUT (n, n), symmetric, n at most 32,766; row i becomes the eigenvector of values[i]
    real[::1] values,        # OUT (n,), in rising order
):
    """Compute all eigenvalues and eigenvectors by divide and conquer, and return LAPACK's code, 0 for success."""
    cdef void* solve = PyCapsule_GetPointer(routine, PyCapsule_GetName(routine))
    cdef int n = <int>matrix.shape[0], n_integers = 0, code
    cdef real stated = 0
    # A first call states the sizes of the arrays that the second one needs; float32 may round a large one down.
    decompose[real](solve, n, &matrix[0, 0], &values[0], &stated, -1, &n_integers, -1)
    cdef Py_ssize_t n_work = max(<Py_ssize_t>stated, 1 + <Py_ssize_t>n * (6 + 2 * <Py_ssize_t>n))
    cdef real* work = <real*>malloc(n_work * sizeof(real))
    cdef int* integers = <int*>malloc(n_integers * sizeof(int))
    try:
        if work == NULL or integers == NULL:
            raise MemoryError(f"no memory for the eigenvectors of {n} items")
        with nogil:
            code = decompose[real](solve, n, &matrix[0, 0], &values[0], work, <int>n_work, integers, n_integers)
    finally:
        free(work)
        free(integers)
    return code


cdef int decompose(
    void* solve, int n, real* matrix, real* values, real* work, int n_work, int* integers, int n_integers
) noexcept nogil:
    cdef char job = b"V", triangle = b"L"
    cdef int code = 0
    if real is float:
        (<Single>solve)(&job, &triangle, &n, matrix, &n, values, work, &n_work, integers, &n_integers, &code)
    else:
        (<Double>solve)(&job, &triangle, &n, matrix, &n, values, work, &n_work, integers, &n_integers, &code)
    return code
