"""Declarations of `_fmf_ldp.h`."""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

cdef extern from "_kernels/systems/fmf/_fmf_ldp.h" namespace "fastfedrec" nogil:
    cdef cppclass FMFRound:
        const double* rows
        const double* columns
        const double* inverse
        Py_ssize_t n_items
        Py_ssize_t n_factors
        Py_ssize_t width
        Py_ssize_t n_reports
        double scale
        int64_t span
        bint is_padded

    cdef cppclass FMFNormal:
        const float* rows
        const float* signs
        const float* mix
        Py_ssize_t length
        Py_ssize_t n_rows
        Py_ssize_t n_columns
        int n_passes
        double scale

    cdef cppclass FMFUser:
        const double* x
        const int32_t* items
        Py_ssize_t n_user_items
        const uint8_t* marks
        const int32_t* position
        const double* confidence
        uint8_t mark

    void fmf_solve(
        const FMFRound& round, const int32_t* items, Py_ssize_t n, uint8_t mark, uint8_t* marks, double* scratch,
        double* x,
    ) noexcept
    int64_t fmf_reports(
        const FMFRound& round, const FMFUser& user, const uint64_t* words, int64_t* coordinates, int64_t* answers
    ) noexcept
    int64_t fmf_normalized_reports(
        const FMFRound& round, const FMFNormal& normal, const FMFUser& user, const uint64_t* words, float* scratch,
        int64_t* coordinates, int64_t* answers,
    ) noexcept
    void fmf_add_gradient(
        const FMFRound& round, const FMFNormal& normal, const FMFUser& user, float* scratch, int64_t* sums,
    ) noexcept
