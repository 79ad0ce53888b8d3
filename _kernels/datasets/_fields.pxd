"""One field of text as a 64-bit word: whole numbers, decimals and dates.

Inline functions only: a compiled module cannot be cimported under the `_kernels` mapping (see setup.py).
"""
from libc.stdint cimport INT64_MAX, int64_t, uint64_t

cdef extern from *:
    """
    static const double fastfedrec_powers[23] = {
        1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19,
        1e20, 1e21, 1e22,
    };
    """
    const double* POWERS "fastfedrec_powers"

cdef extern from *:
    """
    #include <charconv>
    // Correctly rounded; false where the number is out of range, and in a standard library that cannot do it.
    static inline bool fastfedrec_read_double(const char* start, const char* stop, double* out) {
    #if defined(__cpp_lib_to_chars)
        return std::from_chars(start, stop, *out).ec == std::errc();
    #else
        return false;
    #endif
    }
    """
    bint read_double "fastfedrec_read_double"(const char*, const char*, double*) noexcept nogil


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
    elif not read_double(start + (start[0] == c'+'), stop, out):
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
