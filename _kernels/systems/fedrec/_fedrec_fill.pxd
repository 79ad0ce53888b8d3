"""Unrated items that each user of FedRec also reports, as marks of ranks among the unrated items of the user.

The rank of an unrated item is the number of unrated items before it, so marks have no duplicates, and every method
draws from 0 .. n_unrated - 1.
"""
from libc.math cimport HUGE_VAL, log
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t

from _kernels.core._chacha20 cimport Stream, stream_next, stream_open, stream_uniform
from _kernels.core._subset cimport bitmap_words, mark_subset

cdef extern from "<algorithm>" namespace "std" nogil:
    void nth_element(double* first, double* nth, double* last) except +

cdef enum:
    RATED = 0
    VIRTUAL = 1
    WITHHELD = 2              # rated, and not reported


cdef inline void set_mark(uint64_t* marked, Py_ssize_t rank) noexcept nogil:
    marked[rank >> 6] |= <uint64_t>1 << (rank & 63)


cdef inline void mark_uniformly(
    uint64_t* marked, const uint32_t* subkey, uint32_t round_number, uint64_t user, Py_ssize_t n_unrated,
    Py_ssize_t size,
) noexcept nogil:
    """Mark a uniform random subset of `size` ranks."""
    cdef Stream stream
    stream_open(&stream, subkey, round_number, user)
    mark_subset(&stream, n_unrated, size, marked)


cdef inline void mark_by_weight(
    uint64_t* marked, double* races, const double* weights, const int32_t* rated, Py_ssize_t n_rated,
    Py_ssize_t n_items, const uint32_t* subkey, uint32_t round_number, uint64_t user, Py_ssize_t size,
) noexcept nogil:
    """Draw without replacement, with probabilities proportional to the remaining weights, by the first arrivals of
    exponential races (Efraimidis and Spirakis 2006)."""
    cdef Stream stream
    cdef Py_ssize_t item, rank = 0, at = 0, n = 0, n_unrated = n_items - n_rated
    cdef double last = HUGE_VAL
    stream_open(&stream, subkey, round_number, user)
    for item in range(n_items):
        if at < n_rated and rated[at] == item:
            at += 1
        else:
            # -log(u) / weight is exponential with that rate: the smallest `size` of them are the sample.
            races[rank] = -log(stream_uniform(&stream)) / weights[item]
            # nth_element reorders the second copy.
            races[n_unrated + rank] = races[rank]
            rank += 1
    if 0 < size < n_unrated:
        nth_element(races + n_unrated, races + n_unrated + size - 1, races + 2 * n_unrated)
        last = races[n_unrated + size - 1]
    # Ranks are marked in ascending order, and at most `size` in total if numbers are equal.
    for rank in range(n_unrated):
        if races[rank] <= last and n < size:
            set_mark(marked, rank)
            n += 1


cdef inline Py_ssize_t mark_by_response(
    uint64_t* marked, uint8_t* is_reported, const int32_t* rated, Py_ssize_t n_rated, Py_ssize_t n_items,
    const uint32_t* subkey, uint64_t user, uint64_t keep, uint64_t add, const uint32_t* later, uint32_t round_number,
    uint64_t show, uint64_t show_other,
) noexcept nogil:
    """Answer for each item with one word: yes below `keep` if the item is rated, and below `add` if it is not.

    With `later`, each round draws another answer: yes below `show` if the first answer was yes, and below `show_other`
    if it was no."""
    cdef Stream stream, second
    cdef Py_ssize_t item, rank = 0, at = 0, n = 0
    cdef bint is_rated, answer
    stream_open(&stream, subkey, 0, user)
    if later != NULL:
        stream_open(&second, later, round_number, user)
    for item in range(n_items):
        # Each item reads one word, rated or not: the words of an item do not depend on the data.
        is_rated = at < n_rated and rated[at] == item
        answer = stream_next(&stream) < (keep if is_rated else add)
        if later != NULL:
            answer = stream_next(&second) < (show if answer else show_other)
        if is_rated:
            is_reported[at] = answer
            at += 1
        else:
            if answer:
                set_mark(marked, rank)
                n += 1
            rank += 1
    return n


cdef inline void write_reported(
    uint64_t* marked, const uint8_t* is_reported, const int32_t* rated, Py_ssize_t n_rated, Py_ssize_t n_items,
    int32_t* items, uint8_t* kinds,
) noexcept nogil:
    """Write rated and marked items in ascending order, which does not depend on which are rated; clear the marks."""
    cdef Py_ssize_t item, rank = 0, at = 0, n = 0
    # Both sequences ascend, and `rank` counts the items that are not rated.
    for item in range(n_items):
        if at < n_rated and rated[at] == item:
            items[n] = <int32_t>item
            kinds[n] = RATED if is_reported == NULL or is_reported[at] else WITHHELD
            at += 1
            n += 1
        else:
            if (marked[rank >> 6] >> (rank & 63)) & 1:
                items[n] = <int32_t>item
                kinds[n] = VIRTUAL
                n += 1
            rank += 1
    # Clear the marks for the next user.
    for rank in range(bitmap_words(n_items)):
        marked[rank] = 0
