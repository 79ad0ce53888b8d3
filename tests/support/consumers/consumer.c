/* A consumer of the C API in C and C++, with the results that consumer.pyx has; arrays are buffers. */
#include <fastfedrec.h>
#include <stdlib.h>

enum { N_FACTORS = 8, N_WORDS = 300, N_DRAWS = 20, N_ARGUMENTS = 9, N_RESULTS = 6 };
static const char* const NAMES[] = {"subkey",       "values", "span",   "laplace", "gaussian",
                                    "item_factors", "gram",   "indptr", "items",   NULL};

static PyObject* run(PyObject* module, PyObject* args, PyObject* kwargs) {
    Py_buffer in[N_ARGUMENTS];
    PyObject* out[N_RESULTS];
    void* memory[N_RESULTS];
    const char* const types[N_RESULTS] = {"Q", "b", "q", "q", "d", "f"};
    int i;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "y*y*y*y*y*y*y*y*y*", (char**)NAMES, &in[0], &in[1], &in[2], &in[3],
                                     &in[4], &in[5], &in[6], &in[7], &in[8]))
        return NULL;
    const uint32_t* subkey = (const uint32_t*)in[0].buf;
    const double* values = (const double*)in[1].buf;
    const int64_t span = *(const int64_t*)in[2].buf, n = in[1].len / 8, n_users = in[7].len / 8 - 1;
    const int64_t n_items = in[5].len / 4 / N_FACTORS;
    const size_t sizes[N_RESULTS] = {8 * N_WORDS, (size_t)n,     8 * N_DRAWS,
                                     8 * N_DRAWS, 8 * (size_t)n, 4 * (size_t)(n_users * N_FACTORS)};
    for (i = 0; i < N_RESULTS; ++i) {
        out[i] = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)sizes[i]);
        memory[i] = PyByteArray_AS_STRING(out[i]);
    }
    Py_BEGIN_ALLOW_THREADS;
    void* stream = malloc(ffr_stream_bytes());
    ffr_stream_open(stream, subkey, 0, 0);
    ((uint64_t*)memory[0])[0] = ffr_stream_next(stream);
    ffr_stream_read(stream, (uint64_t*)memory[0] + 1, N_WORDS - 1);
    ffr_stream_open(stream, subkey, 1, 0);
    ((int8_t*)memory[1])[0] = (int8_t)ffr_binary_response(stream, values[0], span);
    ffr_binary_responses(stream, values + 1, n - 1, span, (int8_t*)memory[1] + 1);
    ffr_stream_open(stream, subkey, 2, 0);
    for (i = 0; i < N_DRAWS; ++i) ((int64_t*)memory[2])[i] = ffr_discrete_laplace(stream, (const uint64_t*)in[3].buf);
    ffr_stream_open(stream, subkey, 3, 0);
    for (i = 0; i < N_DRAWS; ++i) ((int64_t*)memory[3])[i] = ffr_discrete_gaussian(stream, (const uint64_t*)in[4].buf);
    free(stream);
    ffr_clip_row_d(values, (double*)memory[4], n, 0.5, 2);
    void* handle = ffr_als_open_f((const float*)in[5].buf, (const double*)in[6].buf, n_items, N_FACTORS, 2.0, 0);
    void* scratch = malloc(ffr_als_scratch_bytes(handle));
    ffr_als_solve_f(handle, (const int64_t*)in[7].buf, (const int32_t*)in[8].buf, NULL, 0, n_users, scratch,
                    (float*)memory[5]);
    free(scratch);
    ffr_als_close(handle);
    Py_END_ALLOW_THREADS;
    PyObject* results = PyList_New(N_RESULTS);
    for (i = 0; i < N_RESULTS; ++i) {
        PyObject* view = PyMemoryView_FromObject(out[i]);
        PyList_SET_ITEM(results, i, PyObject_CallMethod(view, "cast", "s", types[i]));
        Py_DECREF(view);
        Py_DECREF(out[i]);
    }
    for (i = 0; i < N_ARGUMENTS; ++i) PyBuffer_Release(&in[i]);
    return results;
}

static PyMethodDef METHODS[] = {{"run", (PyCFunction)(void (*)(void))run, METH_VARARGS | METH_KEYWORDS, NULL},
                                {NULL, NULL, 0, NULL}};
static struct PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "consumer", NULL, -1, METHODS, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_consumer(void) { return fastfedrec_import() < 0 ? NULL : PyModule_Create(&MODULE); }
