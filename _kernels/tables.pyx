"""Lines of separated fields as columns of 64-bit words: the one parser behind every reader of text.

Arguments are trusted, the text is not: each line is either understood in full or reported.

A line ends in a line feed, perhaps after a carriage return.  Where quotes are on, a field that begins with one runs to
the closing quote, line ends included, and holds a quote as two.  Whole numbers have no leading zeros and no "+": what
is written in two ways is two ids.  Decimals are correctly rounded.
"""
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.math cimport floor, isfinite
from libc.stdint cimport INT64_MIN, int32_t, int64_t, uint8_t
from libc.string cimport memchr
from libcpp.deque cimport deque
from libcpp.string cimport string

from _kernels._fields cimport is_digit, parse_decimal, parse_integer, parse_iso

cdef extern from *:
    """
    #include <cstdint>
    #include <deque>
    #include <string>
    #include <string_view>
    #include <unordered_map>
    // Distinct strings, numbered as they appear; a deque never moves what it holds, so the views stay valid.
    struct fastfedrec_names {
        std::deque<std::string> all;
        std::unordered_map<std::string_view, int64_t> numbers;
        int64_t number(const char* text, size_t n) {
            auto found = numbers.find(std::string_view(text, n));
            if (found != numbers.end()) return found->second;
            all.emplace_back(text, n);
            return numbers.emplace(all.back(), (int64_t)all.size() - 1).first->second;
        }
    };
    """
    cdef cppclass CNames "fastfedrec_names":
        deque[string] all
        int64_t number(const char*, size_t) except + nogil

# What a field holds; OPTIONAL is added where it may be empty, which gives INT64_MIN.
cpdef enum:
    SKIP = 0
    NATURAL = 1               # a whole number of at most 63 bits, at least 0
    INTEGER = 2               # the same with a sign
    DECIMAL = 3               # the bits of a double between `low` and `high`, a multiple of `step` where that is not 0
    ISO = 4                   # a date or date and time of ISO 8601, as seconds since 1970 (UTC where no zone is given)
    TEXT = 5                  # a number per distinct string, from its `Names`
    OPTIONAL = 8

# What ended a parse.
cpdef enum:
    DONE = 0
    WRONG_COUNT = 1           # of fields; detail: how many there are
    BAD_FIELD = 2             # detail: which
    OPEN_QUOTE = 3            # the record goes on beyond the text
    NO_HEADING = 4            # a record before the first heading


cdef class Names:
    """The distinct strings of a text column, over any number of calls of `parse`."""

    cdef CNames names

    def to_list(self):
        """Every string as bytes, in the order of their numbers."""
        cdef size_t k
        return [self.names.all[k].data()[: self.names.all[k].size()] for k in range(self.names.all.size())]


cdef struct Rule:
    int kind
    double low, high, step
    CNames* names


# ---- one field -------------------------------------------------------------------------------------------------------


cdef inline bint parse_field(const char* p, const char* stop, const Rule* rule, int64_t* out) except -1 nogil:
    """Write one word; False where the field is not what it should be."""
    cdef double value = 0.0
    cdef int kind = rule.kind & ~OPTIONAL
    if kind == SKIP:
        return True
    if p == stop:
        out[0] = INT64_MIN
        return rule.kind & OPTIONAL != 0
    if kind == TEXT:
        out[0] = rule.names.number(p, stop - p)
        return True
    if kind == ISO:
        return parse_iso(p, stop, out)
    if kind != DECIMAL:
        return parse_integer(p, stop, kind == INTEGER, out)
    if not parse_decimal(p, stop, &value) or not (rule.low <= value <= rule.high) or not isfinite(value):
        return False
    if rule.step > 0 and value / rule.step != floor(value / rule.step):
        return False
    (<double*>out)[0] = value + 0.0  # no negative zeros
    return True


# ---- all lines -------------------------------------------------------------------------------------------------------


cdef inline const char* heading_end(const char* p, int64_t* heading) noexcept nogil:
    """Beyond the line, if all of it is "number:"; NULL if not."""
    cdef const char* start = p
    while is_digit(p[0]):
        p += 1
    if p[0] != c':' or not parse_integer(start, p, False, heading):
        return NULL
    p += 1 + (p[1] == c'\r')
    return p + 1 if p[0] == c'\n' else NULL


cdef inline bint starts_with(const char* p, const char* separator, Py_ssize_t n) noexcept nogil:
    # In a loop of its own: a line end is in no separator, so this never reads beyond the text.
    cdef Py_ssize_t k
    for k in range(n):
        if p[k] != separator[k]:
            return False
    return True


def parse(
    const uint8_t[::1] text,        # IN  (n_bytes,), whole lines
    const uint8_t[::1] separator,   # IN  (n,)
    const int32_t[::1] kinds,       # IN  (n_fields,), of a line
    int64_t[:, ::1] columns,        # OUT (n_fields or with headings 1 more, n_lines), skipped fields' rows unused
    int64_t[::1] heading,           # INOUT (1,), the last "number:" line, -1 for none; or (0,) where there are no such
    names,                          # INOUT a `Names` for each text field, in order
    double low,
    double high,
    double step,
    bint quotes,
):
    """Parse until the end or the first line that is wrong.

    Returns the number of records, the offset and line at which it stopped, what stopped it, the detail, and the begin
    and end of the field concerned.
    """
    cdef const char* begin = <const char*>&text[0]
    cdef const char* end = begin + text.shape[0]
    cdef const char* sep = <const char*>&separator[0]
    cdef const char* p = begin
    cdef const char* record
    cdef const char* start
    cdef const char* stop
    cdef const char* after
    cdef const char* bad_start = begin
    cdef const char* bad_stop = begin
    cdef Py_ssize_t n_sep = separator.shape[0], n_fields = kinds.shape[0], n_rows = 0, n_lines = 0
    cdef Py_ssize_t extra_lines, field, bad = -1
    cdef int problem = DONE
    cdef bint last
    cdef string unquoted
    cdef Rule* rules = <Rule*>PyMem_Malloc(n_fields * sizeof(Rule))
    if not rules:
        raise MemoryError()
    try:
        given = iter(names)
        for field in range(n_fields):
            rules[field] = Rule(kinds[field], low, high, step, NULL)
            if kinds[field] & ~OPTIONAL == TEXT:
                rules[field].names = &(<Names?>next(given)).names
        with nogil:
            while p < end:
                record = p
                if heading.shape[0]:
                    after = heading_end(p, &heading[0])
                    if after:
                        p = after
                        n_lines += 1
                        continue
                field, bad, extra_lines, last = 0, -1, 0, False
                while not last:
                    if quotes and p[0] == c'"':
                        start = p
                        unquoted.clear()
                        while p[0] == c'"':  # the opening quote, and the second of each two
                            after = <const char*>memchr(p + 1, c'"', end - p - 1)
                            if not after:
                                break
                            if p != start:
                                unquoted.push_back(c'"')
                            while p + 1 < after:
                                p += 1
                                extra_lines += p[0] == c'\n'
                                unquoted.push_back(p[0])
                            p = after + 1
                        if p[0] == c'"':
                            problem = OPEN_QUOTE
                            break
                        p += p[0] == c'\r' and p[1] == c'\n'
                        after = p
                        while p[0] != c'\n' and not starts_with(p, sep, n_sep):
                            p += 1
                        last = p[0] == c'\n'
                        if field < n_fields and bad < 0 and (p != after or not parse_field(
                            unquoted.data(), unquoted.data() + unquoted.size(), &rules[field], &columns[field, n_rows]
                        )):
                            bad, bad_start, bad_stop = field, start, p
                    else:
                        start = p
                        while p[0] != c'\n' and not starts_with(p, sep, n_sep):
                            p += 1
                        last = p[0] == c'\n'
                        stop = p - (last and p > start and (p - 1)[0] == c'\r')
                        if field < n_fields and bad < 0 and not parse_field(
                            start, stop, &rules[field], &columns[field, n_rows]
                        ):
                            bad, bad_start, bad_stop = field, start, stop
                    p += 1 if last else n_sep
                    field += 1
                if problem == DONE:
                    if field != n_fields:
                        problem, bad = WRONG_COUNT, field
                    elif bad >= 0:
                        problem = BAD_FIELD
                    elif heading.shape[0] and heading[0] < 0:
                        problem = NO_HEADING
                if problem != DONE:
                    p = record
                    break
                if heading.shape[0]:
                    columns[n_fields, n_rows] = heading[0]
                n_rows += 1
                n_lines += 1 + extra_lines
        return n_rows, p - begin, n_lines, problem, bad, bad_start - begin, bad_stop - begin
    finally:
        PyMem_Free(rules)
