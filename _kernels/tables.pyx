"""Lines of separated fields as columns of 64-bit words: the one parser behind every reader of text.

Arguments are trusted, the text is not: each line is either understood in full or reported.

A line ends in a line feed, perhaps after a carriage return.  Where quotes are on, a field that begins with one runs to
the closing quote, line ends included, and holds a quote as two.  Whole numbers have no leading zeros and no "+": what
is written in two ways is two ids.  Decimals are correctly rounded.
"""
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.math cimport floor, isfinite
from libc.stdint cimport INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memchr
from libcpp.deque cimport deque
from libcpp.string cimport string

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

cdef double[23] POWERS = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20,
    1e21, 1e22,
]


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


cdef inline bint is_digit(char c) noexcept nogil:
    return c'0' <= c <= c'9'


cdef inline bint parse_integer(const char* p, const char* stop, bint signed_, int64_t* out) noexcept nogil:
    cdef bint negative = signed_ and p < stop and p[0] == c'-'
    cdef uint64_t value = 0
    p += negative
    if not 1 <= stop - p <= 19 or (p[0] == c'0' and (negative or stop - p > 1)):
        return False
    while p < stop:
        if not is_digit(p[0]):
            return False
        value = 10 * value + <uint64_t>(p[0] - c'0')
        p += 1
    if value > <uint64_t>INT64_MAX:
        return False
    out[0] = -<int64_t>value if negative else <int64_t>value
    return True


cdef inline bint parse_decimal(const char* p, const char* stop, double* out) except -1 nogil:
    """[-+] digits [. digits] [e [-+] digits], with at least one digit before the e."""
    cdef const char* start = p
    cdef bint negative = p < stop and p[0] == c'-', exponent_negative
    cdef uint64_t mantissa = 0
    cdef int n_digits = 0, scale = 0, exponent = 0
    cdef bint point = False, exact = True
    p += p < stop and (p[0] == c'-' or p[0] == c'+')
    while p < stop and (is_digit(p[0]) or (p[0] == c'.' and not point)):
        if p[0] == c'.':
            point = True
        else:
            n_digits += 1
            exact = exact and mantissa < <uint64_t>1 << 49  # ten times that and a digit still fit in 53 bits
            mantissa = 10 * mantissa + <uint64_t>(p[0] - c'0')
            scale -= point
        p += 1
    if not n_digits:
        return False
    if p < stop and (p[0] == c'e' or p[0] == c'E'):
        p += 1
        exponent_negative = p < stop and p[0] == c'-'
        p += p < stop and (p[0] == c'-' or p[0] == c'+')
        if p == stop:
            return False
        while p < stop and is_digit(p[0]):
            exponent = min(10 * exponent + (p[0] - c'0'), 100000)
            p += 1
        scale += -exponent if exponent_negative else exponent
    if p != stop:
        return False
    if exact and -22 <= scale <= 22:  # both factors are exact, so one rounding is the right one
        out[0] = <double>mantissa / POWERS[-scale] if scale < 0 else <double>mantissa * POWERS[scale]
        out[0] = -out[0] if negative else out[0]
    else:
        with gil:
            out[0] = float(start[: stop - start])
    return True


cdef inline int two_digits(const char* p, const char* stop) noexcept nogil:
    """-1 where there are none."""
    if stop - p < 2 or not is_digit(p[0]) or not is_digit(p[1]):
        return -1
    return 10 * (p[0] - c'0') + (p[1] - c'0')


cdef inline bint parse_date(const char* p, const char* stop, int64_t* days) noexcept nogil:
    """YYYY-MM-DD as days since 1970 in the Gregorian calendar."""
    cdef int century = two_digits(p, stop), year, month, day, length
    if stop - p < 10 or p[4] != c'-' or p[7] != c'-':
        return False
    year, month, day = two_digits(p + 2, stop), two_digits(p + 5, stop), two_digits(p + 8, stop)
    if century < 0 or year < 0 or not 1 <= month <= 12 or day < 1:
        return False
    year += 100 * century
    length = 31 - (month in (4, 6, 9, 11))
    if month == 2:
        length = 28 + (year % 4 == 0 and (year % 100 != 0 or year % 400 == 0))
    if year == 0 or day > length:
        return False
    # Years from March, so that the leap day comes last; day 0 is 1 March of year 0.
    year -= month <= 2
    month += 9 if month <= 2 else -3
    days[0] = 365 * <int64_t>year + year // 4 - year // 100 + year // 400 + (153 * month + 2) // 5 + day - 1 - 719468
    return True


cdef inline bint parse_iso(const char* p, const char* stop, int64_t* out) noexcept nogil:
    """A date, then perhaps [T or space] HH:MM[:SS[.fraction]], then perhaps Z, +HH, +HHMM or +HH:MM."""
    cdef int64_t days = 0, seconds, offset
    cdef int part, sign
    if not parse_date(p, stop, &days):
        return False
    seconds = 86400 * days
    p += 10
    if p < stop:
        if (p[0] != c'T' and p[0] != c' ') or stop - p < 6 or p[3] != c':':
            return False
        if not 0 <= two_digits(p + 1, stop) <= 23 or not 0 <= two_digits(p + 4, stop) <= 59:
            return False
        seconds += 3600 * two_digits(p + 1, stop) + 60 * two_digits(p + 4, stop)
        p += 6
        if p < stop and p[0] == c':':
            part = two_digits(p + 1, stop)
            if not 0 <= part <= 59:
                return False
            seconds += part
            p += 3
            if p < stop and p[0] == c'.':
                p += 1
                if p == stop or not is_digit(p[0]):
                    return False
                while p < stop and is_digit(p[0]):  # cut, as in Unix time
                    p += 1
        if p < stop and p[0] == c'Z':
            p += 1
        elif p < stop and (p[0] == c'+' or p[0] == c'-'):
            sign = 1 if p[0] == c'+' else -1
            part = two_digits(p + 1, stop)
            if not 0 <= part <= 23:
                return False
            offset = 3600 * part
            p += 3
            if p < stop:
                p += p[0] == c':'
                part = two_digits(p, stop)
                if not 0 <= part <= 59:
                    return False
                offset += 60 * part
                p += 2
            seconds -= sign * offset
    out[0] = seconds
    return p == stop


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
