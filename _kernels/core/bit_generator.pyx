"""The four functions of a NumPy bit generator, over one stream of ChaCha20.  Inputs are trusted.

NumPy's samplers call them through the `bitgen_t` of a bit generator, which its capsule holds [1].  The struct is
declared here, so that a build needs no headers of NumPy.

[1] numpy.org/doc/stable/reference/random/extending.html
"""
from cpython.pycapsule cimport PyCapsule_GetPointer
from cpython.ref cimport PyObject
from libc.stdint cimport uint32_t, uint64_t

from _kernels.core._bounded_stream cimport (
    BoundedStream, STREAM_BLOCKS, WORDS_PER_BLOCK, bounded_left, bounded_open, bounded_refill, bounded_seek,
)

include "_kernels/core/_level.pxi"

cdef extern from "Python.h":
    PyObject* PyExc_OverflowError
    PyObject* PyExc_ValueError
    void PyErr_SetString(PyObject* kind, const char* message)

cdef extern from *:
    """
    struct FastfedrecBitGenerator {  // bitgen_t of numpy/random/bitgen.h
        void* state;
        uint64_t (*next_uint64)(void* state);
        uint32_t (*next_uint32)(void* state);
        double (*next_double)(void* state);
        uint64_t (*next_raw)(void* state);
    };
    """
    cdef struct FastfedrecBitGenerator:
        void* state
        uint64_t (*next_uint64)(void*) noexcept nogil
        uint32_t (*next_uint32)(void*) noexcept nogil
        double (*next_double)(void*) noexcept nogil
        uint64_t (*next_raw)(void*) noexcept nogil

N_WORDS = STREAM_BLOCKS * WORDS_PER_BLOCK  # of a stream


cdef struct Source:
    BoundedStream words
    uint32_t half             # the upper half of a word, if its lower half was the last draw of 32 bits
    bint has_half
    uint64_t filler           # after the end of the stream
    bint is_closed


cdef class Stream:
    """The words of the stream (subkey, round, user) for one bit generator, which holds its lock while it draws."""

    cdef Source source

    def __init__(
        self,
        const uint32_t[::1] subkey,   # IN  (8,)
        uint32_t round_number,
        uint64_t user,
    ):
        bounded_open(&self.source.words, &subkey[0], round_number, user)
        self.source.has_half = False
        self.source.filler = 0
        self.source.is_closed = False

    def connect(self, capsule):
        """Let the bit generator of this capsule draw from here; it must keep this object."""
        cdef FastfedrecBitGenerator* functions = <FastfedrecBitGenerator*>PyCapsule_GetPointer(capsule, "BitGenerator")
        functions.state = &self.source
        functions.next_uint64 = _next_uint64
        functions.next_uint32 = _next_uint32
        functions.next_double = _next_double
        functions.next_raw = _next_uint64

    def replace_by(self, Stream other):
        """Continue as another stream, at the same address, which a NumPy Generator has copied."""
        self.source = other.source

    def position(self):
        """Return the number of words that were read, and the half word that waits, or None."""
        half = self.source.half if self.source.has_half else None
        return N_WORDS - bounded_left(&self.source.words), half

    def seek(self, uint64_t n_read, half):
        """Restore what `position` returned."""
        bounded_seek(&self.source.words, n_read)
        self.source.has_half = half is not None
        self.source.half = 0 if half is None else half

    def close(self):
        """Refuse all further draws, in a child process that would repeat the words of its parent."""
        bounded_seek(&self.source.words, N_WORDS)
        self.source.has_half, self.source.is_closed = False, True


cdef uint64_t _next_uint64(void* state) noexcept nogil:
    cdef BoundedStream* words = &(<Source*>state).words
    if words.position == words.end and not bounded_refill(words):
        return _refuse(<Source*>state)
    words.position += 1
    return words.buffer[words.position - 1]


cdef uint32_t _next_uint32(void* state) noexcept nogil:
    cdef Source* source = <Source*>state
    cdef uint64_t word
    if source.has_half:
        source.has_half = False
        return source.half
    word = _next_uint64(state)
    source.half, source.has_half = <uint32_t>(word >> 32), True
    return <uint32_t>word


cdef double _next_double(void* state) noexcept nogil:
    # 53 bits in [0, 1), as every bit generator of NumPy has them.
    return <double>(_next_uint64(state) >> 11) * (1.0 / 9007199254740992.0)


cdef uint64_t _refuse(Source* source) noexcept nogil:
    """Raise an error in the thread that draws, which Python sees when the sampler returns; return a filler.

    A sampler cannot stop before, and a constant word could keep it in a loop of rejections.  So fillers are the numbers
    of a linear congruential generator; the error replaces all that is made of them.
    """
    source.filler = source.filler * <uint64_t>6364136223846793005 + <uint64_t>1442695040888963407  # Knuth's constants
    with gil:
        if source.is_closed:
            PyErr_SetString(
                PyExc_ValueError,
                "the generator has an entropy key from before the fork of this process, and both would draw the same "
                "words; use a new Key.from_entropy() here",
            )
        else:
            PyErr_SetString(
                PyExc_OverflowError,
                "the stream has ended after 2**35 words; use spawn(), or another purpose, round or user",
            )
    return source.filler
