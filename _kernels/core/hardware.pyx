"""Properties of this machine and its OpenMP runtime; see fastfedrec.hardware."""
from cython.parallel cimport prange


cdef extern from "_kernels/core/_levels.h" namespace "fastfedrec" nogil:
    """
    #if defined(_OPENMP)
    #include <omp.h>
    static inline int fastfedrec_max_threads() { return omp_in_parallel() ? 1 : omp_get_max_threads(); }
    #else
    static inline int fastfedrec_max_threads() { return 0; }
    #endif
    #if defined(__x86_64__)
    #include <cpuid.h>
    static inline int fastfedrec_splits_vectors() {
        unsigned a, vendor, c, d, b;
        if (!__get_cpuid(0, &a, &vendor, &c, &d) || vendor != 0x68747541u) return 0;  // "Auth", of AuthenticAMD
        return __get_cpuid(1, &a, &b, &c, &d) && ((a >> 8) & 15) + ((a >> 20) & 255) == 0x19;
    }
    #else
    static inline int fastfedrec_splits_vectors() { return 0; }
    #endif
    """
    int _n_levels "FASTFEDREC_N_LEVELS"
    int _best_level "fastfedrec::best_level"() noexcept
    int _max_threads "fastfedrec_max_threads"() noexcept
    int _splits_vectors "fastfedrec_splits_vectors"() noexcept

cdef bint SPLITS_VECTORS = _splits_vectors()   # read once: on a virtual machine each query exits to the host


def n_levels():
    """Return the number of levels of vector code that were built: 1, or 3 on x86-64."""
    return _n_levels


def best_level():
    """Return the highest level that this processor runs."""
    return _best_level()


def max_threads():
    """Return the number of threads that OpenMP gives to a parallel loop here; 0 where the build has no OpenMP."""
    return _max_threads()


def call_in_threads(work, int n_threads):
    """Call work(0), ..., work(n_threads - 1), Python functions, each in an OpenMP thread.

    Threads of Python would share the processors with the threads of OpenMP, which poll for their next loop for some
    milliseconds.  If OpenMP gives fewer threads, some calls run after others.  All calls are made, and the first error
    is raised after them.
    """
    cdef int thread
    cdef list errors = []
    for thread in prange(n_threads, nogil=True, schedule="static", chunksize=1, num_threads=n_threads):
        with gil:
            _call(work, thread, errors)
    if errors:
        raise errors[0]


cdef void _call(work, int thread, list errors) noexcept:
    """Call `work`, and append its error; a parallel loop that ends by an error races for a flag of Cython's."""
    try:
        work(thread)
    except BaseException as error:
        errors.append(error)


def splits_vectors():
    """Return whether this processor splits 512-bit vectors in two halves, and so gains no speed by them (AMD Zen 4)."""
    return SPLITS_VECTORS
