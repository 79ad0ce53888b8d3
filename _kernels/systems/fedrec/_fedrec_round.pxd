"""One user's round of FedRec (model.pyx defines it): train, then send integers.

Inline functions only: a compiled module cannot be cimported under the `_kernels` mapping (see setup.py).
"""
from libc.math cimport isfinite, llrint, sqrt
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport calloc
from libc.string cimport memcpy, memset

from _kernels.core._chacha20 cimport Stream, stream_below, stream_open, stream_read
from _kernels.datasets._normal cimport stream_normal
from _kernels.systems.fedrec._fedrec_fill cimport RATED, VIRTUAL, WITHHELD

cdef extern from "_kernels/systems/fedrec/_fedrec.h" namespace "fastfedrec" nogil:
    cdef cppclass FedRecPlan:
        const double* factors
        Py_ssize_t n_factors
        Py_ssize_t width
        double learning_rate
        double regularization
        double limit

    enum:
        FEDREC_LANES
        FEDREC_ROWS

    void fedrec_step(
        const FedRecPlan& plan, const double* rated, const double* ratings, Py_ssize_t n, double* gradient, double* x,
    ) noexcept
    void fedrec_errors(
        const FedRecPlan& plan, const double** xs, const int32_t* items, const double* ratings, Py_ssize_t n,
        double* errors,
    ) noexcept
    void fedrec_words(
        const FedRecPlan& plan, const double* x, double scale, bint toward_zero, const int32_t* items,
        const double* errors, Py_ssize_t n, uint64_t* words,
    ) noexcept
    void fedrec_add(
        const FedRecPlan& plan, const int32_t* items, const uint64_t* words, const uint64_t* selected,
        const uint64_t* masks, Py_ssize_t n, uint64_t* sums,
    ) noexcept

cdef enum:
    PLAIN = 0                 # values of `sharing`: all vectors go to the server
    PUBLISHED = 1             # the virtual part goes to a denoiser as well
    ADDITIVE = 2              # shares go to the server and to a denoiser
    BLOCK = 32                # vectors that are computed and then added up at a time
    ALIGNMENT = 64

cdef struct Round:
    # Inputs that all users share.
    FedRecPlan plan
    Py_ssize_t n_items
    double scale
    double clip_norm               # of scale * g over all items; 0 for none
    int n_local                    # steps of the local copy; 0: virtual ratings are the user's mean
    int sharing
    const uint32_t* subkey
    uint32_t round_number
    const uint32_t* langevin       # three subkeys, or NULL
    double noise                   # standard deviation, in steps


cdef struct User:
    const int32_t* items
    const uint8_t* kinds
    Py_ssize_t n
    Py_ssize_t n_rated
    uint64_t identity
    bint is_denoiser
    uint64_t* to_server            # OUT (n, n_factors + 1) or NULL
    uint64_t* to_denoiser          # OUT likewise


cdef struct Scratch:
    # The memory of one thread; rows have a distance of `width` and begin at a vector boundary.
    void* memory
    uint64_t* server               # (n_items, width), sums
    uint64_t* denoisers            # (n_items, width), sums
    double* factors                # (n_items, width), for the first thread only
    double* rated                  # (longest, width), factors of the rated items
    double* x                      # (width,), the user's factors
    double* old                    # (width,), before the round
    double* copy                   # (width,), the local copy that predicts virtual ratings
    double* gradient               # (width,)
    uint64_t* words                # (BLOCK, width)
    uint64_t* masks                # (BLOCK, width)
    double* ratings                # (longest,), of rated items
    double* targets                # (longest,), targets of predictions
    double* errors                 # (longest,)
    const double** xs              # (longest,), factors that predict: x or the local copy's


cdef inline bint allocate(
    Scratch* s, Py_ssize_t n_items, Py_ssize_t width, Py_ssize_t longest, bint has_factors
) noexcept nogil:
    """Allocate the memory of one thread, all zeros; return False without memory."""
    cdef Py_ssize_t n_sums = n_items * width, n_factors = n_sums * has_factors
    cdef Py_ssize_t size = 2 * n_sums + n_factors + (longest + 4 + 2 * BLOCK) * width + 4 * longest
    cdef double* start
    s.memory = calloc(size * sizeof(double) + ALIGNMENT, 1)
    if s.memory == NULL:
        return False
    start = <double*>((<uintptr_t>s.memory + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT)
    s.server, s.denoisers = <uint64_t*>start, <uint64_t*>(start + n_sums)
    s.factors = start + 2 * n_sums
    s.rated = s.factors + n_factors
    s.x = s.rated + longest * width
    s.old, s.copy, s.gradient = s.x + width, s.x + 2 * width, s.x + 3 * width
    s.words = <uint64_t*>(s.x + 4 * width)
    s.masks = s.words + BLOCK * width
    s.ratings = <double*>(s.masks + BLOCK * width)
    s.targets, s.errors = s.ratings + longest, s.ratings + 2 * longest
    s.xs = <const double**>(s.ratings + 3 * longest)
    return True


cdef inline void train(const Round* plan, const User* user, Scratch* s) noexcept nogil:
    """Update the factors of the user, and write the error of every reported item by the old factors."""
    cdef Py_ssize_t width = plan.plan.width, n = user.n_rated, at = 0, j, f
    cdef double mean = 0.0
    cdef int _step_number
    memcpy(s.x, s.old, width * sizeof(double))
    memcpy(s.copy, s.old, width * sizeof(double))  # without training ratings it predicts a rating of 0
    if n:
        # x <- x - rate (mean of e v + reg x) (Liang et al. 2021, equation 7).
        fedrec_step(plan.plan, s.rated, s.ratings, n, s.gradient, s.x)
        if plan.n_local:
            # In the second case of equation 1, virtual ratings are predictions of a copy with further training.
            memcpy(s.copy, s.x, width * sizeof(double))   # the step above is the first local step
            for _step_number in range(1, plan.n_local):
                fedrec_step(plan.plan, s.rated, s.ratings, n, s.gradient, s.copy)
            for f in range(width):
                s.copy[f] = s.old[f] - s.copy[f]          # so that x'v - (copy)'v is one product
        else:
            # In the first case of equation 1, they are the mean of the user; n > 0.
            for j in range(n):
                mean += s.ratings[j]
            mean /= n
    for j in range(user.n):
        s.xs[j] = s.old
        s.targets[j] = mean
        if user.kinds[j] != VIRTUAL:
            s.targets[j] = s.ratings[at]
            at += 1
        elif plan.n_local:
            s.xs[j] = s.copy
            s.targets[j] = 0.0
    fedrec_errors(plan.plan, s.xs, user.items, s.targets, user.n, s.errors)
    if plan.langevin != NULL:
        draw_errors(plan, user, s)


cdef inline void draw_errors(const Round* plan, const User* user, Scratch* s) noexcept nogil:
    """Set the error of each virtual item to a random error of the user (SDCF), or to 0 if it has none."""
    cdef Py_ssize_t n = 0, j
    cdef Stream stream
    for j in range(user.n):
        if user.kinds[j] != VIRTUAL:
            s.targets[n] = s.errors[j]
            n += 1
    stream_open(&stream, plan.langevin + 16, plan.round_number, user.identity)
    for j in range(user.n):
        if user.kinds[j] == VIRTUAL:
            s.errors[j] = s.targets[stream_below(&stream, n)] if n else 0.0


cdef inline double shrinkage_of(const Round* plan, const User* user, const Scratch* s) noexcept nogil:
    """Return the factor that clips the gradients of a user: their norm over all counted items is then in the bound."""
    cdef Py_ssize_t d = plan.plan.n_factors, j, f
    cdef double total = 0.0, g, slack = <double>(user.n * d + 8) * 2.220446049250313e-16  # for that number of roundings
    cdef const double* v
    # |scale g|^2 over all g that count: equation 3 at each item.
    for j in range(user.n):
        # Items that a denoiser subtracts do not count.
        if user.kinds[j] == RATED or (user.kinds[j] == VIRTUAL and plan.sharing == PLAIN):
            v = plan.plan.factors + user.items[j] * plan.plan.width
            for f in range(d):
                g = plan.scale * (s.errors[j] * s.old[f] + plan.plan.regularization * v[f])
                total += g * g
    if not total < 1e300:  # with NaN or overflow, the user sends zeros
        return 0.0
    return min(1.0, plan.clip_norm / max(sqrt(total), 1e-300)) * (1.0 - slack)  # no division by 0


cdef inline void add_noise(
    const Round* plan, const uint8_t* kinds, Py_ssize_t n, Stream* streams, uint64_t* words
) noexcept nogil:
    """Add noise in whole steps to the message, and clip it at the limit again; no claim of privacy depends on it."""
    cdef Py_ssize_t j, f
    cdef double x, limit = plan.plan.limit
    for j in range(n):
        if kinds[j] != WITHHELD:
            for f in range(plan.plan.n_factors):
                # Both are integers of at most 2^50 in magnitude, so the sum is exact.
                x = plan.noise * stream_normal(&streams[kinds[j] == VIRTUAL])
                x = <double><int64_t>words[f] + <double>llrint(max(-limit, min(limit, x)))
                words[f] = <uint64_t>(<int64_t>max(-limit, min(limit, x)))
        words += plan.plan.width


cdef inline void send(const Round* plan, const User* user, Scratch* s) noexcept nogil:
    """Add the integers of a user to the sums of the server and the denoisers, according to `sharing`."""
    cdef Py_ssize_t d = plan.plan.n_factors, width = plan.plan.width, first = 0, n, j, f
    cdef double scale = plan.scale, size = 0.0
    cdef uint64_t[BLOCK] to_server
    cdef uint64_t[BLOCK] to_denoiser
    cdef const uint64_t* masks = NULL
    cdef Stream stream
    cdef Stream[2] noises  # one for each kind: the noise of rated items does not depend on other reported items
    for f in range(d):
        size += s.old[f] * s.old[f]
    if plan.clip_norm > 0.0:
        scale *= shrinkage_of(plan, user, s)
    if not isfinite(size):
        scale = 0.0
    if plan.sharing == ADDITIVE:
        stream_open(&stream, plan.subkey, plan.round_number, user.identity)
        masks = s.masks
    if plan.langevin != NULL:
        stream_open(&noises[0], plan.langevin, plan.round_number, user.identity)
        stream_open(&noises[1], plan.langevin + 8, plan.round_number, user.identity)
    while first < user.n:
        n = min(<Py_ssize_t>BLOCK, user.n - first)
        fedrec_words(
            plan.plan, s.old, scale, plan.clip_norm > 0.0, user.items + first, s.errors + first, n, s.words
        )  # clipped numbers are truncated, so that the norm does not grow
        if plan.noise > 0.0:
            add_noise(plan, user.kinds + first, n, noises, s.words)
        for j in range(n):
            address(plan, user, user.kinds[first + j], &to_server[j], &to_denoiser[j])
        if plan.sharing == ADDITIVE:
            # Each word of the message has a mask; for a withheld item, no mask is sent.
            for j in range(n):
                if user.kinds[first + j] != WITHHELD:
                    stream_read(&stream, s.masks + j * width, d + 1)
                else:
                    memset(s.masks + j * width, 0, (d + 1) * sizeof(uint64_t))
        elif plan.sharing == PUBLISHED and user.is_denoiser:
            for j in range(n * width):
                s.words[j] = <uint64_t>0 - s.words[j]  # it subtracts its vectors from its sum (equation 9)
        fedrec_add(plan.plan, user.items + first, s.words, to_server, masks, n, s.server)
        if plan.sharing != PLAIN:
            fedrec_add(plan.plan, user.items + first, s.words, to_denoiser, masks, n, s.denoisers)
        if user.to_server != NULL:
            record(plan, s, to_server, n, user.to_server + first * (d + 1))
            record(plan, s, to_denoiser, n, user.to_denoiser + first * (d + 1))
        first += BLOCK


cdef inline void address(
    const Round* plan, const User* user, uint8_t kind, uint64_t* to_server, uint64_t* to_denoiser
) noexcept nogil:
    """Select the recipients of a vector by words of ones or zeros. With ADDITIVE, each also receives a mask."""
    cdef uint64_t all_ones = <uint64_t>0 - <uint64_t>1
    to_server[0] = to_denoiser[0] = 0
    if kind != WITHHELD:
        if not (plan.sharing == PUBLISHED and user.is_denoiser):
            to_server[0] = all_ones
            if kind == VIRTUAL:
                to_denoiser[0] = all_ones
        elif kind == RATED:
            to_denoiser[0] = all_ones


cdef inline void record(
    const Round* plan, const Scratch* s, const uint64_t* selected, Py_ssize_t n, uint64_t* messages
) noexcept nogil:
    """Record the words that `fedrec_add` has just added."""
    cdef Py_ssize_t d = plan.plan.n_factors, width = plan.plan.width, j, f
    for j in range(n):
        for f in range(d + 1):
            messages[j * (d + 1) + f] = s.words[j * width + f] & selected[j]
            if plan.sharing == ADDITIVE:
                messages[j * (d + 1) + f] += s.masks[j * width + f]
