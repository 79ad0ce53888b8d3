"""Dense layers for the Numba kernels of the recurrent unit, on a tile of vector registers.

The numbers of vectors in a tile, and of lanes in a vector, are the lengths of tuples, so that they are part of the
compiled type: LLVM keeps the tile in registers, and a cache on disk cannot confuse widths.  Inputs are trusted; no code
here checks bounds.

A batch has one example a column.  Forward and backward products both broadcast single weights to vectors of examples
and read W as stored, so no transposed copy of W is needed; only the much smaller dy is transposed, for the step of W.
"""

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic, overload

# NaN must remain, so that it is detected: `nnan` is absent.
FAST = ("contract", "reassoc", "nsz", "arcp")

# Only compiled code calls these functions: no entry from Python and no cache halve the time of compilation.
compile_part = njit(fastmath=set(FAST), error_model="numpy", nogil=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)


def compile_kernel(function, cache=True):
    """Compile for this host, without a cache on disk if no folder for it is writable."""
    options = {"fastmath": set(FAST), "error_model": "numpy", "nogil": True}
    try:
        return njit(function, cache=cache, **options)
    except RuntimeError:  # Numba found no writable folder
        return njit(function, **options)


def tile(a, a_at, a_row, a_step, b, b_at, b_step, c, c_at, c_row, n, rows, vectors, lanes):
    """Add sum_k a[i, k] b[k, j] to c[i, j] for each entry i of `rows` and column j of `vectors`; without compiler."""
    a, b, c = a.reshape(-1), b.reshape(-1), c.reshape(-1)
    for i in range(len(rows)):
        for j in range(len(vectors) * len(lanes)):
            for k in range(n):
                c[c_at + i * c_row + j] += a[a_at + i * a_row + k * a_step] * b[b_at + k * b_step + j]


def transpose_tile(a, a_at, a_row, c, c_at, c_row, lanes):
    """Compute c[j, i] = a[i, j] for a square of vectors; this body runs without a compiler."""
    a, c = a.reshape(-1), c.reshape(-1)
    for i in range(len(lanes)):
        for j in range(len(lanes)):
            c[c_at + j * c_row + i] = a[a_at + i * a_row + j]


def take_next(counter):
    """Return the number in `counter`, and increment it for the next thread."""
    counter[0] += 1
    return counter[0] - 1


def _pointer(context, builder, array, value, index):
    return builder.gep(context.make_array(array)(context, builder, value).data, [index])


def _vector_at(builder, pointer, row, k, vector):
    # Returns the address of vector k of the row that begins `row` entries after `pointer`.
    entry = builder.gep(pointer, [builder.add(row, row.type(k * vector.count))])
    return builder.bitcast(entry, vector.as_pointer())


def _interleave(builder, low, high, n, upper):
    # Returns entries 0, n, 1, n + 1, ... of two vectors of n, or those from the middle on.
    first = n // 2 * upper
    mask = [entry for k in range(first, first + n // 2) for entry in (k, n + k)]
    return builder.shuffle_vector(low, high, ir.Constant(ir.VectorType(ir.IntType(32), n), mask))


@intrinsic
def _tile(typing_context, a, a_at, a_row, a_step, b, b_at, b_step, c, c_at, c_row, n, rows, vectors, lanes):
    def codegen(context, builder, signature, args):
        builder.function.attributes.add("noinline")  # one copy of the enclosing function and of the tile suffices
        vector = ir.VectorType(context.get_value_type(a.dtype), lanes.count)
        align = vector.element.get_abi_size(context.target_data)
        pointer_a, pointer_b, pointer_c = (
            _pointer(context, builder, array, args[k], args[k + 1]) for array, k in ((a, 0), (b, 4), (c, 7))
        )
        targets = [
            [
                _vector_at(builder, pointer_c, builder.mul(args[9], args[9].type(i)), v, vector)
                for v in range(vectors.count)
            ]
            for i in range(rows.count)
        ]
        sums = [[cgutils.alloca_once_value(builder, builder.load(p, align=align)) for p in row] for row in targets]
        offsets = [builder.mul(args[2], args[2].type(i)) for i in range(rows.count)]
        undefined = ir.Constant(vector, ir.Undefined)
        zeros = ir.Constant(ir.VectorType(ir.IntType(32), vector.count), None)
        with cgutils.for_range(builder, args[10]) as loop:
            b_row = builder.mul(loop.index, args[6])
            factors = [
                builder.load(_vector_at(builder, pointer_b, b_row, v, vector), align=align)
                for v in range(vectors.count)
            ]
            column = builder.gep(pointer_a, [builder.mul(loop.index, args[3])])
            for offset, row in zip(offsets, sums, strict=True):
                weight = builder.load(builder.gep(column, [offset]))
                first = builder.insert_element(undefined, weight, ir.IntType(32)(0))
                weights = builder.shuffle_vector(first, undefined, zeros)
                for total, factor in zip(row, factors, strict=True):
                    product = builder.fmul(weights, factor, flags=FAST)
                    builder.store(builder.fadd(builder.load(total), product, flags=FAST), total)
        for row, totals in zip(targets, sums, strict=True):
            for pointer, total in zip(row, totals, strict=True):
                builder.store(builder.load(total), pointer, align=align)
        return context.get_dummy_value()

    size = types.intp
    factors = a, size, size, size, b, size, size
    return types.void(*factors, c, size, size, size, rows, vectors, lanes), codegen


@intrinsic
def _transpose_tile(typing_context, a, a_at, a_row, c, c_at, c_row, lanes):
    def codegen(context, builder, signature, args):
        builder.function.attributes.add("noinline")  # one copy of the enclosing function and of the tile suffices
        vector = ir.VectorType(context.get_value_type(a.dtype), lanes.count)
        align = vector.element.get_abi_size(context.target_data)
        n = lanes.count
        source, target = (_pointer(context, builder, a, args[k], args[k + 1]) for k in (0, 3))
        rows = [
            builder.load(_vector_at(builder, source, builder.mul(args[2], args[2].type(i)), 0, vector), align=align)
            for i in range(n)
        ]
        for _ in range(n.bit_length() - 1):
            pairs = zip(rows[: n // 2], rows[n // 2 :], strict=True)
            rows = [_interleave(builder, low, high, n, upper) for low, high in pairs for upper in (0, 1)]
        for j, column in enumerate(rows):
            pointer = _vector_at(builder, target, builder.mul(args[5], args[5].type(j)), 0, vector)
            builder.store(column, pointer, align=align)
        return context.get_dummy_value()

    size = types.intp
    return types.void(a, size, size, c, size, size, lanes), codegen


@intrinsic
def _take_next(typing_context, counter):
    def codegen(context, builder, signature, args):
        pointer = context.make_array(counter)(context, builder, args[0]).data
        return builder.atomic_rmw("add", pointer, pointer.type.pointee(1), "monotonic")

    return types.int64(counter), codegen


@overload(tile)
def _compile_tile(a, a_at, a_row, a_step, b, b_at, b_step, c, c_at, c_row, n, rows, vectors, lanes):
    return lambda a, a_at, a_row, a_step, b, b_at, b_step, c, c_at, c_row, n, rows, vectors, lanes: _tile(
        a, a_at, a_row, a_step, b, b_at, b_step, c, c_at, c_row, n, rows, vectors, lanes
    )


@overload(transpose_tile)
def _compile_transpose_tile(a, a_at, a_row, c, c_at, c_row, lanes):
    return lambda a, a_at, a_row, c, c_at, c_row, lanes: _transpose_tile(a, a_at, a_row, c, c_at, c_row, lanes)


@overload(take_next)
def _compile_take_next(counter):
    return lambda counter: _take_next(counter)


# ---- filling and copying: as loops, because an assignment to a slice brings the text of its error message along, which
# takes longer to compile than everything here


@compile_part
def fill(out, value):
    """Set out[i] = value."""
    for i in range(len(out)):
        out[i] = value


@compile_part
def copy(x, out):
    """Set out[i] = x[i]."""
    for i in range(len(out)):
        out[i] = x[i]


# ---- products ---------------------------------------------------------------------------------------------------


@compile_part
def add_product(a, a_row, a_step, b, c, n_columns, lanes, rows):
    """Compute c[i, j] += sum_k a[i, k] b[k, j] for the first columns; a[i, k] is i a_row + k a_step numbers after a."""
    width = len(lanes)
    a, n, b_step, c_row = a.reshape(-1), b.shape[0], b.shape[1], c.shape[1]
    for i in range(0, c.shape[0], len(rows)):
        j = 0
        while j + 2 * width <= n_columns:
            tile(a, i * a_row, a_row, a_step, b, j, b_step, c, i * c_row + j, c_row, n, rows, (0, 0), lanes)
            j += 2 * width
        if j < n_columns:
            tile(a, i * a_row, a_row, a_step, b, j, b_step, c, i * c_row + j, c_row, n, rows, (0,), lanes)


@compile_part
def transpose(a, c, n_rows, n_columns, lanes):
    """Set c[j, i] = a[i, j] for the first rows and columns of a."""
    a_row, c_row = a.shape[1], c.shape[1]
    for i in range(0, n_rows, len(lanes)):
        for j in range(0, n_columns, len(lanes)):
            transpose_tile(a, i * a_row + j, a_row, c, j * c_row + i, c_row, lanes)


@compile_part
def forward(w, bias, x, y, n_columns, lanes, rows):
    """Apply a rectified layer: y = relu(W'x + bias) for the first columns of x and y, one example each."""
    for o in range(len(y)):
        fill(y[o, :n_columns], bias[o])
    add_product(w, 1, w.shape[1], x, y, n_columns, lanes, rows)
    for o in range(len(y)):
        for b in range(n_columns):  # NaN stays
            y[o, b] = y.dtype.type(0) if y[o, b] < 0 else y[o, b]


@compile_part
def backward(w, bias, x, y, dx, dy, by_example, sums, n, lanes, rows):
    """Set dy to 0 where y is 0; compute dx = W dy, W += x dy', bias += the sum of dy, which stays in `sums`."""
    n_columns, n_out = -(-n // len(lanes)) * len(lanes), len(y)
    for o in range(n_out):
        for b in range(n_columns):
            dy[o, b] = dy[o, b] if y[o, b] > 0 else dy.dtype.type(0)
    fill(dx.reshape(-1), 0)
    add_product(w, n_out, 1, dy, dx, n_columns, lanes, rows)
    dy_rows = by_example[: n_columns * n_out].reshape(n_columns, n_out)
    transpose(dy, dy_rows, n_out, n_columns, lanes)
    add_product(x, x.shape[1], 1, dy_rows[:n], w, n_out, lanes, rows)
    fill(sums[:n_out], 0)
    for b in range(n):
        for o in range(n_out):
            sums[o] += dy_rows[b, o]
    for o in range(n_out):
        bias[o] += sums[o]


@compile_part
def shuffle(order, words, draws):
    """Shuffle (Fisher and Yates) with half a word a draw; return the index of the next half."""
    for k in range(len(order) - 1, 0, -1):
        half = words[draws >> 1] >> np.uint64(32 * (draws & 1)) & np.uint64(0xFFFFFFFF)
        draws += 1
        other = np.int64(half) * (k + 1) >> 32
        order[k], order[other] = order[other], order[k]
    return draws


@compile_part
def aligned_zeros(like, n):
    """Return zeros that begin on a cache line, because half of all loads would otherwise touch two lines."""
    memory = np.zeros(n + 64 // like.itemsize, dtype=like.dtype)
    first = -memory.ctypes.data % 64 // like.itemsize
    return memory[first : first + n]
