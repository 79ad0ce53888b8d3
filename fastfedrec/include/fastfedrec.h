/* The C API of fastfedrec; docs/how-to/compiled-code.md has an example.
 *
 * Call `fastfedrec_import()` once in each source file, with the GIL, before any other function.  No function here needs
 * the GIL afterwards.  Arguments are trusted, except where a result reports an error.  Structs are opaque: allocate
 * `ffr_stream_bytes()` bytes, aligned like malloc's, for a stream, and `ffr_als_scratch_bytes()` for a scratch.
 *
 * A stream has 2^35 words (256 GiB).  Functions with a block of draws return -1, without any draw, if fewer words are
 * left; a single draw after the end stops the process with a message, because no word may come twice.  For the same
 * reason, a process and its fork must not both draw from an open stream.
 */
#ifndef FASTFEDREC_H
#define FASTFEDREC_H

#include <Python.h>
#include <stddef.h>
#include <stdint.h>

/* Major and minor version in 16 bits each.  A change of the minor version only adds functions at the end. */
#define FASTFEDREC_API_VERSION 0x10000u
#define FASTFEDREC_API_MODULE "fastfedrec._kernels.capi"
#define FASTFEDREC_API_NAME FASTFEDREC_API_MODULE ".table"

typedef struct {
    uint32_t (*version)(void);

    /* The stream (purpose, round, user) of a key; `subkey` has 8 words, of `fastfedrec.capi.subkey(key, purpose)`. */
    size_t (*stream_bytes)(void);
    void (*stream_open)(void* stream, const uint32_t* subkey, uint32_t round, uint64_t user);
    uint64_t (*stream_left)(const void* stream); /* words */
    uint64_t (*stream_next)(void* stream);
    int (*stream_read)(void* stream, uint64_t* words, int64_t n); /* 0, or -1 */
    double (*stream_uniform)(void* stream); /* in (0, 1) */
    uint64_t (*stream_below)(void* stream, uint64_t bound); /* in [0, bound), with a bias below bound / 2^64 */

    /* `BinaryResponse(epsilon).span`, and values in [-1, 1]; each answer is +1 or -1. */
    int (*binary_response)(void* stream, double value, int64_t span);
    int (*binary_responses)(void* stream, const double* values, int64_t n, int64_t span, int8_t* out); /* 0, or -1 */
    /* The same from words that were read before; a word serves one answer. */
    void (*binary_answers)(const double* values, const uint64_t* words, int64_t n, int64_t span, int8_t* out);

    /* Integer noise.  Exact draws take the numbers of `fastfedrec.capi.exact_numbers(noise)`, 4 for discrete Laplace
     * and 10 for discrete Gaussian noise, and return INT64_MIN, which is no draw, if one needs too large integers.
     * `table_noise` takes the arrays of `fastfedrec.capi.noise_table(noise)`, the first two with n + 1 entries. */
    int64_t (*discrete_laplace)(void* stream, const uint64_t* numbers);
    int64_t (*discrete_gaussian)(void* stream, const uint64_t* numbers);
    int64_t (*table_noise)(void* stream, const uint64_t* high, const uint64_t* low, const int32_t* guide, int64_t n,
                           int shift);

    /* Clip a row to an l1 (order 1) or l2 norm (order 2) of at most `bound`, 1e-100 to 1e100; `out` may be `row`.
     * Returns 1; 0 if the row is not finite, and then `out` is zeros. */
    int (*clip_row_f)(const float* row, float* out, int64_t n, double bound, int order);
    int (*clip_row_d)(const double* row, double* out, int64_t n, double bound, int order);

    /* Users' least squares, as `als.solve_users(..., solver="cholesky")`.  `gram` is
     * `als.regularized_gram(item_factors, regularization, weight)`, n_factors is 1 to 256.  Both arrays are copied.
     * `als_open_*` returns NULL without memory, or for another n_factors.  The handle is shared by threads, each with
     * its own scratch.  Without `has_values` all values are 1, and NULL.  Users are rows first to last - 1 of a CSR
     * matrix with items below n_items; `out` begins with row `first`.  Users with a singular system get zeros.  Returns
     * the first of them, or `last`; -1 for a handle of the other type. */
    void* (*als_open_f)(const float* item_factors, const double* gram, int64_t n_items, int64_t n_factors,
                        double weight, int has_values);
    void* (*als_open_d)(const double* item_factors, const double* gram, int64_t n_items, int64_t n_factors,
                        double weight, int has_values);
    size_t (*als_scratch_bytes)(const void* handle);
    int64_t (*als_n_factors)(const void* handle);
    int64_t (*als_solve_f)(const void* handle, const int64_t* indptr, const int32_t* items, const float* values,
                           int64_t first, int64_t last, void* scratch, float* out);
    int64_t (*als_solve_d)(const void* handle, const int64_t* indptr, const int32_t* items, const double* values,
                           int64_t first, int64_t last, void* scratch, double* out);
    void (*als_close)(void* handle); /* NULL is allowed */
} fastfedrec_table;

static const fastfedrec_table* fastfedrec_api = NULL;

/* Returns 0, or -1 with a Python exception. */
static inline int fastfedrec_import(void) {
    uint32_t version;
    const fastfedrec_table* table;
    PyObject* module = PyImport_ImportModule(FASTFEDREC_API_MODULE); /* the next call takes attributes alone */
    if (module == NULL) return -1;
    Py_DECREF(module);
    table = (const fastfedrec_table*)PyCapsule_Import(FASTFEDREC_API_NAME, 0);
    if (table == NULL) return -1;
    version = table->version();
    if (version >> 16 != FASTFEDREC_API_VERSION >> 16 || version < FASTFEDREC_API_VERSION) {
        PyErr_Format(PyExc_ImportError,
                     "this module was compiled for version %u.%u of fastfedrec's C API, and the installed package has "
                     "%u.%u; compile it again",
                     (unsigned)(FASTFEDREC_API_VERSION >> 16), (unsigned)(FASTFEDREC_API_VERSION & 0xffff),
                     (unsigned)(version >> 16), (unsigned)(version & 0xffff));
        return -1;
    }
    fastfedrec_api = table;
    return 0;
}

#define ffr_version (fastfedrec_api->version)
#define ffr_stream_bytes (fastfedrec_api->stream_bytes)
#define ffr_stream_open (fastfedrec_api->stream_open)
#define ffr_stream_left (fastfedrec_api->stream_left)
#define ffr_stream_next (fastfedrec_api->stream_next)
#define ffr_stream_read (fastfedrec_api->stream_read)
#define ffr_stream_uniform (fastfedrec_api->stream_uniform)
#define ffr_stream_below (fastfedrec_api->stream_below)
#define ffr_binary_response (fastfedrec_api->binary_response)
#define ffr_binary_responses (fastfedrec_api->binary_responses)
#define ffr_binary_answers (fastfedrec_api->binary_answers)
#define ffr_discrete_laplace (fastfedrec_api->discrete_laplace)
#define ffr_discrete_gaussian (fastfedrec_api->discrete_gaussian)
#define ffr_table_noise (fastfedrec_api->table_noise)
#define ffr_clip_row_f (fastfedrec_api->clip_row_f)
#define ffr_clip_row_d (fastfedrec_api->clip_row_d)
#define ffr_als_open_f (fastfedrec_api->als_open_f)
#define ffr_als_open_d (fastfedrec_api->als_open_d)
#define ffr_als_scratch_bytes (fastfedrec_api->als_scratch_bytes)
#define ffr_als_n_factors (fastfedrec_api->als_n_factors)
#define ffr_als_solve_f (fastfedrec_api->als_solve_f)
#define ffr_als_solve_d (fastfedrec_api->als_solve_d)
#define ffr_als_close (fastfedrec_api->als_close)

#endif
