"""Lines of separated fields as columns of 64-bit words: the one parser behind every reader of text.

Arguments are trusted, the text is not: each line is either understood in full or reported.

A line ends in a line feed, perhaps after a carriage return.  Where quotes are on, a field that begins with one runs to
the closing quote, line ends included, and holds a quote as two.  Whole numbers have no leading zeros and no "+": what
is written in two ways is two ids.  Decimals are correctly rounded.
"""
from cython.parallel cimport prange
from libc.math cimport floor, isfinite
from libc.stdint cimport INT64_MIN, int32_t, int64_t, uint8_t
from libc.string cimport memchr, memmove
from libcpp.deque cimport deque
from libcpp.string cimport string
from libcpp.vector cimport vector

from _kernels.datasets._fields cimport is_digit, parse_decimal, parse_integer, parse_iso

cdef extern from *:
    """
    #include <cstdint>
    #include <deque>
    #include <string>
    #include <string_view>
    #include <unordered_map>
    #include <vector>
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
        // The numbers here of all that are in another.
        std::vector<int64_t> take(const fastfedrec_names& other) {
            std::vector<int64_t> taken;
            for (const std::string& text : other.all) taken.push_back(number(text.data(), text.size()));
            return taken;
        }
    };
    """
    cdef cppclass CNames "fastfedrec_names":
        deque[string] all
        int64_t number(const char*, size_t) except + nogil
        vector[int64_t] take(const CNames&) except + nogil

# What a field holds; OPTIONAL is added where it may be empty, which gives INT64_MIN.
cpdef enum:
    SKIP = 0
    NATURAL = 1               # a whole number of at most 63 bits, at least 0
    INTEGER = 2               # the same with a sign
    DECIMAL = 3               # the bits of a double between `low` and `high`, a multiple of `step` where that is not 0
    ISO = 4                   # a date or date and time of ISO 8601, as seconds since 1970 (UTC where no zone is given)
    TEXT = 5                  # a number per distinct string, from its `Names`
    OPTIONAL = 8

cdef enum:
    UNKNOWN = -2              # the heading above a piece, as long as that is parsed by itself

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


cdef inline Py_ssize_t count_lines(const char* p, const char* end) noexcept nogil:
    cdef Py_ssize_t total = 0, k
    cdef uint8_t some
    while p < end:
        some = 0  # of so few bits that a vector holds many; it counts to 255
        for k in range(min(end - p, 255)):
            some += p[k] == c'\n'
        total += some
        p += 255
    return total


def cut_lines(
    const uint8_t[::1] text,        # IN  (n_bytes,), whole lines, at least one
    int64_t[:, ::1] cuts,           # OUT (n_pieces + 1, 2), the bytes and the lines before each piece, then in all
):
    """Cut into pieces of whole lines and about the same size."""
    cdef const char* begin = <const char*>&text[0]
    cdef Py_ssize_t n_bytes = text.shape[0], n_pieces = cuts.shape[0] - 1, k, aim
    cuts[0, 0], cuts[0, 1], cuts[n_pieces, 0] = 0, 0, n_bytes
    for k in range(1, n_pieces):
        aim = n_bytes * k // n_pieces
        cuts[k, 0] = <const char*>memchr(begin + aim, c'\n', n_bytes - aim) + 1 - begin
    for k in range(n_pieces):  # a fiftieth of the time of a parse: on threads of their own this gains nothing
        cuts[k + 1, 1] = cuts[k, 1] + count_lines(begin + cuts[k, 0], begin + cuts[k + 1, 0])


cdef struct Piece:                  # of the text: whole lines
    const char* begin
    const char* end
    const Rule* rules
    Py_ssize_t first_row
    int64_t heading                 # INOUT the last one, -1 for none, UNKNOWN where that is up to the pieces before
    Py_ssize_t n_rows, n_lines      # OUT, as the rest
    const char* stopped
    int problem
    Py_ssize_t detail
    const char* bad_start
    const char* bad_stop


cdef int parse_piece(
    Piece* piece,
    int64_t[:, ::1] columns,
    const char* separator,
    Py_ssize_t n_separator,
    Py_ssize_t n_fields,
    bint headings,
    bint quotes,
) except -1 nogil:
    """Parse until the end or the first line that is wrong, as if a record began where the piece does."""
    cdef const char* p = piece.begin
    cdef const char* end = piece.end
    cdef const char* record
    cdef const char* start
    cdef const char* stop
    cdef const char* after
    cdef Py_ssize_t row = piece.first_row, extra_lines, field, bad = -1
    cdef bint last
    cdef string unquoted
    piece.n_lines, piece.problem = 0, DONE
    while p < end:
        record = p
        if headings:
            after = heading_end(p, &piece.heading)
            if after:
                p = after
                piece.n_lines += 1
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
                    piece.problem = OPEN_QUOTE
                    break
                p += p[0] == c'\r' and p[1] == c'\n'
                after = p
                while p[0] != c'\n' and not starts_with(p, separator, n_separator):
                    p += 1
                last = p[0] == c'\n'
                if field < n_fields and bad < 0 and (p != after or not parse_field(
                    unquoted.data(), unquoted.data() + unquoted.size(), &piece.rules[field], &columns[field, row]
                )):
                    bad, piece.bad_start, piece.bad_stop = field, start, p
            else:
                start = p
                while p[0] != c'\n' and not starts_with(p, separator, n_separator):
                    p += 1
                last = p[0] == c'\n'
                stop = p - (last and p > start and (p - 1)[0] == c'\r')
                if field < n_fields and bad < 0 and not parse_field(
                    start, stop, &piece.rules[field], &columns[field, row]
                ):
                    bad, piece.bad_start, piece.bad_stop = field, start, stop
            p += 1 if last else n_separator
            field += 1
        if piece.problem == DONE:
            if field != n_fields:
                piece.problem, bad = WRONG_COUNT, field
            elif bad >= 0:
                piece.problem = BAD_FIELD
            elif headings and piece.heading == -1:
                piece.problem = NO_HEADING
        if piece.problem != DONE:
            p = record
            break
        if headings:
            columns[n_fields, row] = piece.heading
        row += 1
        piece.n_lines += 1 + extra_lines
    piece.n_rows, piece.stopped, piece.detail = row - piece.first_row, p, bad
    return 0


cdef void finish_piece(
    const Piece* piece,
    int64_t[:, ::1] columns,
    const vector[int64_t]* numbers,
    Py_ssize_t n_fields,
    bint headings,
    int64_t heading,
) noexcept nogil:
    """Put in what the pieces before know: the numbers of names, and the heading of the rows above its own first."""
    cdef Py_ssize_t end = piece.first_row + piece.n_rows, row, field
    for field in range(n_fields):
        if piece.rules[field].kind & ~OPTIONAL == TEXT:
            for row in range(piece.first_row, end):
                if columns[field, row] >= 0:  # below is what was empty
                    columns[field, row] = numbers[field][columns[field, row]]
    row = piece.first_row
    while headings and row < end and columns[n_fields, row] == UNKNOWN:
        columns[n_fields, row] = heading
        row += 1


def parse(
    const uint8_t[::1] text,        # IN  (n_bytes,), whole lines
    const int64_t[:, ::1] cuts,     # IN  (n_pieces + 1, 2), as `cut_lines` gives them
    const uint8_t[::1] separator,   # IN  (n,)
    const int32_t[::1] kinds,       # IN  (n_fields,), of a line
    int64_t[:, ::1] columns,        # OUT (n_fields or with headings 1 more, n_lines), skipped fields' rows unused
    int64_t[::1] heading,           # INOUT (1,), the last "number:" line, -1 for none; or (0,) where there are no such
    names,                          # INOUT a `Names` for each text field, in order
    double low,
    double high,
    double step,
    bint quotes,
    int n_threads,
):
    """Parse until the end or the first line that is wrong; wherever the text is cut, the results are the same.

    Returns the number of records, the offset and line at which it stopped, what stopped it, the detail, and the begin
    and end of the field concerned.

    Each piece is parsed as if a record began with it.  For the first that is so, and for another one exactly where the
    one before came to its end: then that one's last record ends there.
    """
    cdef const char* begin = <const char*>&text[0]
    cdef const char* sep = <const char*>&separator[0]
    cdef Py_ssize_t n_pieces = cuts.shape[0] - 1, n_fields = kinds.shape[0], n_sep = separator.shape[0]
    cdef Py_ssize_t n_right = 1, n_rows = 0, n_lines = 0, k, field
    cdef bint headings = heading.shape[0], has_texts = len(names) > 0
    cdef Piece* piece
    cdef Piece rest
    cdef vector[Piece] pieces = vector[Piece](n_pieces)
    cdef vector[Rule] rules = vector[Rule](n_pieces * n_fields)
    cdef vector[CNames] own_names = vector[CNames](n_pieces * n_fields)  # those of the first piece are in `names`
    cdef vector[vector[int64_t]] numbers = vector[vector[int64_t]](n_pieces * n_fields)  # in `names`, of each own name
    given = iter(names)
    for k in range(n_pieces):
        for field in range(n_fields):
            rules[k * n_fields + field] = Rule(kinds[field], low, high, step, &own_names[k * n_fields + field])
            if k == 0 and kinds[field] & ~OPTIONAL == TEXT:
                rules[field].names = &(<Names?>next(given)).names
        pieces[k].begin, pieces[k].end, pieces[k].first_row = begin + cuts[k, 0], begin + cuts[k + 1, 0], cuts[k, 1]
        pieces[k].rules, pieces[k].heading = &rules[k * n_fields], UNKNOWN
        pieces[k].bad_start = pieces[k].bad_stop = begin
    if headings:
        pieces[0].heading = heading[0]
    with nogil:
        for k in prange(n_pieces, schedule="static", num_threads=n_threads):
            parse_piece(&pieces[k], columns, sep, n_sep, n_fields, headings, quotes)
        while n_right < n_pieces and pieces[n_right - 1].problem == DONE:
            for field in range(n_fields if has_texts else 0):
                numbers[n_right * n_fields + field] = rules[field].names.take(own_names[n_right * n_fields + field])
            if pieces[n_right].heading == UNKNOWN:
                pieces[n_right].heading = pieces[n_right - 1].heading
            n_right += 1
        for k in prange(1, n_right if has_texts or headings else 1, schedule="static", num_threads=n_threads):
            finish_piece(&pieces[k], columns, &numbers[k * n_fields], n_fields, headings, pieces[k - 1].heading)
        for k in range(n_right):
            for field in range(columns.shape[0]):
                if n_rows < pieces[k].first_row < columns.shape[1]:  # there was a record of several lines, or a heading
                    memmove(&columns[field, n_rows], &columns[field, pieces[k].first_row], 8 * pieces[k].n_rows)
            n_rows += pieces[k].n_rows
            n_lines += pieces[k].n_lines
        piece = &pieces[n_right - 1]
        if piece.problem == OPEN_QUOTE and n_right < n_pieces:  # the record goes on in the next piece, if not farther
            rest = piece[0]
            rest.begin, rest.end = piece.stopped, pieces[n_pieces - 1].end
            rest.rules, rest.first_row = &rules[0], n_rows
            parse_piece(&rest, columns, sep, n_sep, n_fields, headings, quotes)
            n_rows += rest.n_rows
            n_lines += rest.n_lines
            piece = &rest
    if headings:
        heading[0] = piece.heading
    return (
        n_rows, piece.stopped - begin, n_lines, piece.problem, piece.detail,
        piece.bad_start - begin, piece.bad_stop - begin,
    )
