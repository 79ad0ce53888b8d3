"""A scan of text before it is parsed: the number of lines, and whether a parser may read numbers differently.

Text is trusted to end in a line feed.
"""
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcmp, memcpy

cdef enum:
    BLOCK = 240               # letters of a block: counts fit into a byte, and vectors are whole


cdef struct Counts:
    int64_t lines
    int64_t separators
    uint8_t letters           # all letters, combined by "or"
    uint8_t lone_return
    uint8_t ambiguous


cdef inline uint8_t is_ambiguous(uint8_t before, uint8_t letter, uint8_t after, uint8_t separator) noexcept nogil:
    """Return whether Python would write a number differently: with a plus, after a blank, as -0 or zero-padded."""
    return (
        (letter == c"+")
        | (((letter == c" ") | (letter == c"\t")) & (letter != separator))
        | ((letter == c"0") & (
            (before == c"-")
            | (((before == c"\n") | (before == separator)) & (<uint8_t>(after - c"0") < 10))
        ))
    )


cdef void scan_block(
    const uint8_t* text, Py_ssize_t begin, Py_ssize_t end, uint8_t separator, Counts* counts
) noexcept nogil:
    """Update `counts` for a range of letters with neighbours on both sides."""
    cdef Py_ssize_t k, stop
    cdef uint8_t lines, separators, letters = 0, lone_return = 0, ambiguous = 0
    while begin < end:
        stop, lines, separators = min(begin + BLOCK, end), 0, 0
        for k in range(begin, stop):
            lines += text[k] == c"\n"
            separators += text[k] == separator
            letters |= text[k]
            lone_return |= (text[k] == c"\r") & (text[k + 1] != c"\n")
            ambiguous |= is_ambiguous(text[k - 1], text[k], text[k + 1], separator)
        counts.lines += lines
        counts.separators += separators
        begin = stop
    counts.letters |= letters
    counts.lone_return |= lone_return
    counts.ambiguous |= ambiguous


def scan(
    const uint8_t[::1] text,  # IN  (n,), with a line feed at the end
    uint8_t separator,
):
    """Count line feeds and separators; return whether all is ASCII, and flag a lone return or an ambiguous number."""
    cdef Py_ssize_t n = text.shape[0]
    cdef Counts counts = Counts(0, 0, 0, 0, 0)
    cdef uint8_t[3] begin
    if n == 0:
        return 0, 0, True, False, False
    with nogil:
        begin[0], begin[1], begin[2] = c"\n", text[0], text[1] if n > 1 else c"\n"
        scan_block(begin, 1, 2, separator, &counts)
        scan_block(&text[0], 1, n - 1, separator, &counts)
        if n > 1:
            counts.lines += 1   # the last letter
    return counts.lines, counts.separators, counts.letters < 128, bool(counts.lone_return), bool(counts.ambiguous)


cdef inline Py_ssize_t blank_at(const uint8_t* text, Py_ssize_t k, Py_ssize_t n) noexcept nogil:
    """Return the bytes of the blank at a position, or 0: a tab, or a space of Unicode (category Zs) in UTF-8."""
    cdef uint8_t letter = text[k]
    if letter == c" " or letter == c"\t":
        return 1
    if letter < 0xC2 or letter > 0xE3:
        return 0
    if letter == 0xC2:                       # no-break space
        return 2 if k + 1 < n and text[k + 1] == 0xA0 else 0
    if k + 2 >= n:
        return 0
    if letter == 0xE1:                       # ogham space mark
        return 3 if text[k + 1] == 0x9A and text[k + 2] == 0x80 else 0
    if letter == 0xE2:                       # typographic spaces, narrow no-break and mathematical space
        if text[k + 1] == 0x80:
            return 3 if 0x80 <= text[k + 2] <= 0x8A or text[k + 2] == 0xAF else 0
        return 3 if text[k + 1] == 0x81 and text[k + 2] == 0x9F else 0
    if letter == 0xE3:                       # ideographic space
        return 3 if text[k + 1] == 0x80 and text[k + 2] == 0x80 else 0
    return 0


cdef inline bint is_separator_at(
    const uint8_t* text, Py_ssize_t k, Py_ssize_t n, const uint8_t* separator, Py_ssize_t length
) noexcept nogil:
    return text[k] == separator[0] and k + length <= n and (
        length == 1 or memcmp(text + k, separator, length) == 0
    )


cdef inline bint ends_line(const uint8_t* text, Py_ssize_t k, Py_ssize_t n) noexcept nogil:
    """Return whether a line ends at position k, with or without a carriage return."""
    return text[k] == c"\n" or (text[k] == c"\r" and k + 1 < n and text[k + 1] == c"\n")


cdef Py_ssize_t copy_quoted(const uint8_t* text, Py_ssize_t k, Py_ssize_t n, uint8_t* out) noexcept nogil:
    """Copy from an opening quote to the closing one, or to the end; a quote within is written as two."""
    cdef Py_ssize_t begin = k
    out[0] = text[k]
    k += 1
    while k < n:
        out[k - begin] = text[k]
        k += 1
        if text[k - 1] == c'"':
            if k == n or text[k] != c'"':
                break
            out[k - begin] = text[k]
            k += 1
    return k - begin


cdef Py_ssize_t copy_stripped(
    const uint8_t* text, Py_ssize_t n, const uint8_t* separator, Py_ssize_t length, bint quotes, uint8_t* out
) noexcept nogil:
    """Copy all but the blanks around fields, and return the number of bytes.

    Blanks are copied when a letter of the same field follows them.  Between fields that a space separates, a run of
    blanks with a space or a tab counts as one.  Blanks at the end of the text may be within a field, and are copied.
    """
    cdef Py_ssize_t k = 0, written = 0, stop, width, taken
    cdef bint in_runs = length == 1 and separator[0] == c" "
    cdef bint at_start = True, has_ascii_blank
    while k < n:
        stop, has_ascii_blank = k, False           # the run of blanks from here
        while stop < n and (in_runs or not is_separator_at(text, stop, n, separator, length)):
            width = blank_at(text, stop, n)
            if width == 0:
                break
            has_ascii_blank |= width == 1
            stop += width
        if stop == n:
            memcpy(out + written, text + k, n - k)
            return written + n - k
        if ends_line(text, stop, n):
            taken = 1 + (text[stop] == c"\r")
            memcpy(out + written, text + stop, taken)
            written, k, at_start = written + taken, stop + taken, True
        elif not in_runs and is_separator_at(text, stop, n, separator, length):
            memcpy(out + written, text + stop, length)
            written, k, at_start = written + length, stop + length, True
        elif at_start:                       # blanks before a field
            k, at_start = stop, False
            if quotes and text[k] == c'"':
                taken = copy_quoted(text, k, n, out + written)
            else:
                taken = 1
                out[written] = text[k]
            written, k = written + taken, k + taken
        elif in_runs and has_ascii_blank:          # between two fields
            out[written] = c" "
            written, k, at_start = written + 1, stop, True
        else:                                # within a field
            memcpy(out + written, text + k, stop - k)
            written += stop - k
            out[written] = text[stop]
            written, k = written + 1, stop + 1
    return written


def strip_blanks(
    const uint8_t[::1] text,       # IN  (n,)  UTF-8
    const uint8_t[::1] separator,  # IN  (length,), at least 1
    bint quotes,                   # IN  whether fields may be in quotes
    uint8_t[::1] out,              # OUT (n,)
):
    """Copy a text without the blanks around unquoted fields; return the length."""
    cdef Py_ssize_t n = text.shape[0], written
    if n == 0:
        return 0
    with nogil:
        written = copy_stripped(&text[0], n, &separator[0], separator.shape[0], quotes, &out[0])
    return written
