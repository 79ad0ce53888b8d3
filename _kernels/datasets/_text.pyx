"""One look at lines of text before they are parsed: how many there are, and whether a parser may read them otherwise.

Text is trusted to end in a line feed.
"""
from libc.stdint cimport int64_t, uint8_t

cdef enum:
    BLOCK = 240               # letters, whose number a byte holds: whole vectors of them


cdef struct Seen:
    int64_t lines
    int64_t separators
    uint8_t letters           # all, by "or"
    uint8_t lone_return
    uint8_t doubtful


cdef inline uint8_t is_doubtful(uint8_t before, uint8_t letter, uint8_t after, uint8_t separator) noexcept nogil:
    """Whether a number is written as Python would not: with a plus, after a blank, as -0 or with zeros before it."""
    return (
        (letter == c"+")
        | (((letter == c" ") | (letter == c"\t")) & (letter != separator))
        | ((letter == c"0") & (
            (before == c"-")
            | (((before == c"\n") | (before == separator)) & (<uint8_t>(after - c"0") < 10))
        ))
    )


cdef void look_at(
    const uint8_t* text, Py_ssize_t begin, Py_ssize_t end, uint8_t separator, Seen* seen
) noexcept nogil:
    """Letters that have others on both sides."""
    cdef Py_ssize_t k, stop
    cdef uint8_t lines, separators, letters = 0, lone_return = 0, doubtful = 0
    while begin < end:
        stop, lines, separators = min(begin + BLOCK, end), 0, 0
        for k in range(begin, stop):
            lines += text[k] == c"\n"
            separators += text[k] == separator
            letters |= text[k]
            lone_return |= (text[k] == c"\r") & (text[k + 1] != c"\n")
            doubtful |= is_doubtful(text[k - 1], text[k], text[k + 1], separator)
        seen.lines += lines
        seen.separators += separators
        begin = stop
    seen.letters |= letters
    seen.lone_return |= lone_return
    seen.doubtful |= doubtful


def survey(
    const uint8_t[::1] text,  # IN  (n,), with a line feed at the end
    uint8_t separator,
):
    """Numbers of line feeds and separators; whether all is ASCII, a return stands alone, a number is doubtful."""
    cdef Py_ssize_t n = text.shape[0]
    cdef Seen seen = Seen(0, 0, 0, 0, 0)
    cdef uint8_t[3] begin
    if n == 0:
        return 0, 0, True, False, False
    with nogil:
        begin[0], begin[1], begin[2] = c"\n", text[0], text[1] if n > 1 else c"\n"
        look_at(begin, 1, 2, separator, &seen)
        look_at(&text[0], 1, n - 1, separator, &seen)
        if n > 1:
            seen.lines += 1   # the last letter
    return seen.lines, seen.separators, seen.letters < 128, bool(seen.lone_return), bool(seen.doubtful)
