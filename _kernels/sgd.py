"""Stochastic gradient descent of matrix factorisation over blocks of a rating list, in Numba.

For a rating r of user u and item i with weight w and prediction ``s = mean + b_u + c_i + p_u'q_i``, one step is

    g = w * d loss(s, r) / ds
    b_u <- (1 - a h) b_u - a g            p_u <- (1 - a l) p_u - a g q_i
    c_i <- (1 - a h) c_i - a g            q_i <- (1 - a l) q_i - a g p_u     (p_u as it was)

with learning rate a and regularization l of factors and h of biases (Koren, Bell, Volinsky 2009, section "Learning
algorithms"; Gemulla et al. 2011 for the blocks).  Inputs are trusted.

Numba, because the loss may be the user's own function, and because both it and the number of factors are frozen at
compile time: rows are whole vectors of 64 bytes, and a tuple of one entry a vector carries their number as a type, so
that
both loops over a row unroll into registers.  Plain loops over factors took 5 times as long at rank 20 and 1.7 times at
rank 64: LLVM cannot tell the two rows apart, so it does not keep them in registers.  There is no parallel loop here:
the functions release the GIL, and the API layer calls them from threads of its own, on blocks that share no row.  So
no threading layer is loaded, which could not be entered from two threads or survive a fork.

Fast-math is only {contract, reassoc, nsz, arcp}: NaN must survive to be seen.
"""

import math
from typing import NamedTuple

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic, overload

VECTOR_BYTES = 64

_FAST = ("contract", "reassoc", "nsz", "arcp")


def compile_kernel(function, cache=True):
    """Compile for this host; without a cache on disk where no folder for it can be written."""
    options = {"fastmath": set(_FAST), "error_model": "numpy", "nogil": True}
    try:
        return njit(function, cache=cache, **options)
    except RuntimeError:  # Numba found no writable folder
        return njit(function, **options)


# ---- one pair of rows -------------------------------------------------------------------------------------------


def dot_rows(user_rows, u, item_rows, i, vectors):
    """p_u'q_i; this body is what runs without a compiler."""
    return (user_rows[u] * item_rows[i]).sum()


def step_rows(user_rows, u, item_rows, i, keep, step, vectors):
    """p_u <- keep p_u + step q_i and q_i <- keep q_i + step p_u, both from the old rows."""
    old = user_rows[u].copy()
    user_rows[u] = keep * old + step * item_rows[i]
    item_rows[i] = keep * item_rows[i] + step * old


def _vector_type(context, rows):
    dtype = context.get_value_type(rows.dtype)
    return ir.VectorType(dtype, VECTOR_BYTES * 8 // rows.dtype.bitwidth)


def _load_row(context, builder, rows, value, index, n_vectors):
    # Pointers to the row's vectors, and the vectors.
    vector = _vector_type(context, rows)
    data = context.make_array(rows)(context, builder, value).data
    first = builder.mul(index, index.type(vector.count * n_vectors))
    start = builder.bitcast(builder.gep(data, [first]), vector.as_pointer())
    pointers = [builder.gep(start, [ir.IntType(32)(k)]) for k in range(n_vectors)]
    return pointers, [builder.load(pointer, align=VECTOR_BYTES) for pointer in pointers]


def _broadcast(builder, vector, scalar):
    undefined = ir.Constant(vector, ir.Undefined)
    first = builder.insert_element(undefined, scalar, ir.IntType(32)(0))
    return builder.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(ir.IntType(32), vector.count), None))


@intrinsic
def _dot_vectors(typing_context, user_rows, u, item_rows, i, vectors):
    def codegen(context, builder, signature, args):
        vector = _vector_type(context, user_rows)
        _, p = _load_row(context, builder, user_rows, args[0], args[1], vectors.count)
        _, q = _load_row(context, builder, item_rows, args[2], args[3], vectors.count)
        total = builder.fmul(p[0], q[0], flags=_FAST)
        for x, y in zip(p[1:], q[1:], strict=True):
            total = builder.fadd(total, builder.fmul(x, y, flags=_FAST), flags=_FAST)
        reduce_add = cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(vector.element, [vector.element, vector]),
            f"llvm.vector.reduce.fadd.v{vector.count}f{user_rows.dtype.bitwidth}",
        )
        return builder.call(reduce_add, [vector.element(-0.0), total], fastmath=_FAST)

    return user_rows.dtype(user_rows, types.intp, item_rows, types.intp, vectors), codegen


@intrinsic
def _step_vectors(typing_context, user_rows, u, item_rows, i, keep, step, vectors):
    def codegen(context, builder, signature, args):
        vector = _vector_type(context, user_rows)
        p_at, p = _load_row(context, builder, user_rows, args[0], args[1], vectors.count)
        q_at, q = _load_row(context, builder, item_rows, args[2], args[3], vectors.count)
        keep_all, step_all = (_broadcast(builder, vector, scalar) for scalar in args[4:6])
        for pointer, old, other in zip(p_at + q_at, p + q, q + p, strict=True):
            kept = builder.fmul(keep_all, old, flags=_FAST)
            moved = builder.fmul(step_all, other, flags=_FAST)
            builder.store(builder.fadd(kept, moved, flags=_FAST), pointer, align=VECTOR_BYTES)
        return context.get_dummy_value()

    real = user_rows.dtype
    return types.void(user_rows, types.intp, item_rows, types.intp, real, real, vectors), codegen


@overload(dot_rows)
def _compile_dot_rows(user_rows, u, item_rows, i, vectors):
    return lambda user_rows, u, item_rows, i, vectors: _dot_vectors(user_rows, u, item_rows, i, vectors)


@overload(step_rows)
def _compile_step_rows(user_rows, u, item_rows, i, keep, step, vectors):
    return lambda user_rows, u, item_rows, i, keep, step, vectors: _step_vectors(
        user_rows, u, item_rows, i, keep, step, vectors
    )


# ---- losses: of a prediction and a rating, in double, with the derivative by the prediction --------------------------

# Each is named by a type, not by a number or the function itself: so it is compiled into the loop (a branch there costs
# a tenth of the time), and the cache on disk recognises it in the next process.


class Squared(NamedTuple):
    """Half the squared error."""


class Absolute(NamedTuple):
    """The absolute error."""


class Huber(NamedTuple):
    """Half the squared error up to an error of 1, linear beyond."""


class Logistic(NamedTuple):
    """Minus the log-likelihood of a rating in [0, 1] whose log-odds are predicted."""


@compile_kernel
def _squared(prediction, rating):
    error = prediction - rating
    return error * error / 2, error


@compile_kernel
def _absolute(prediction, rating):
    error = prediction - rating
    return abs(error), float((error > 0) - (error < 0))


@compile_kernel
def _huber(prediction, rating):
    error = prediction - rating
    slope = min(max(error, -1.0), 1.0)
    return slope * (error - slope / 2), slope


@compile_kernel
def _logistic(prediction, rating):
    small = math.exp(-abs(prediction))
    probability = (1.0 if prediction >= 0 else small) / (1 + small)
    return max(prediction, 0.0) + math.log1p(small) - rating * prediction, probability - rating


_FORMULAS = {Squared: _squared, Absolute: _absolute, Huber: _huber, Logistic: _logistic}


def loss_and_slope(loss, prediction, rating):
    """The loss and its derivative; `loss` is one of the types above, or the user's own compiled function."""
    return _FORMULAS.get(type(loss), loss)(prediction, rating)


@overload(loss_and_slope)
def _compile_loss_and_slope(loss, prediction, rating):
    if not isinstance(loss, types.BaseNamedTuple):
        return lambda loss, prediction, rating: loss(prediction, rating)
    formula = _FORMULAS[loss.instance_class]
    return lambda loss, prediction, rating: formula(prediction, rating)


# ---- passes over the ratings ------------------------------------------------------------------------------------


def _train(
    users,  # IN (n_ratings,) int32 rows, block after block
    items,  # IN (n_ratings,) int32
    ratings,  # IN (n_ratings,)
    weights,  # IN (n_ratings,), or (0,) where all are 1
    starts,  # IN (n_blocks**2 + 1,) where the block of users j and items k begins: at j * n_blocks + k
    user_rows,  # IN/OUT (n_user_rows, n_lanes)
    item_rows,  # IN/OUT (n_item_rows, n_lanes)
    user_biases,  # IN/OUT (n_user_rows,)
    item_biases,  # IN/OUT (n_item_rows,)
    losses,  # OUT (n_blocks, n_blocks) weighted sums of the loss before each step
    vectors,  # a tuple of as many entries as a row has vectors
    loss,  # an instance of one of the types above, or a compiled function
    mean,
    learning_rate,
    bias_learning_rate,
    regularization,
    bias_regularization,
    phase,
    task,
    n_tasks,
):
    """One task of one phase of an epoch: its own blocks of users against the blocks of items no other task has.

    Stratum s pairs users' block j with items' block j ^ s.  `n_tasks` is a power of two, so in the strata of a phase
    the high bits of s are fixed, and with them the range of items' blocks that a task meets.
    """
    real = user_rows.dtype.type
    start, rate, bias_rate = real(mean), real(learning_rate), real(bias_learning_rate)
    keep = real(1 - learning_rate * regularization)
    bias_keep = real(1 - bias_learning_rate * bias_regularization)
    n_blocks = losses.shape[0]
    share = n_blocks // n_tasks
    for stratum in range(phase * share, (phase + 1) * share):
        for user_block in range(task * share, (task + 1) * share):
            item_block = user_block ^ stratum
            block = user_block * n_blocks + item_block
            total = 0.0
            for k in range(starts[block], starts[block + 1]):
                u, i = users[k], items[k]
                prediction = start + user_biases[u] + item_biases[i] + dot_rows(user_rows, u, item_rows, i, vectors)
                value, slope = loss_and_slope(loss, float(prediction), float(ratings[k]))
                if weights.size:
                    value *= weights[k]
                    slope *= weights[k]
                total += value
                user_biases[u] = bias_keep * user_biases[u] - bias_rate * real(slope)
                item_biases[i] = bias_keep * item_biases[i] - bias_rate * real(slope)
                step_rows(user_rows, u, item_rows, i, keep, -rate * real(slope), vectors)
            losses[user_block, item_block] = total


def _sum_losses(
    users,  # IN (n_ratings,) int32 rows
    items,  # IN (n_ratings,) int32
    ratings,  # IN (n_ratings,)
    weights,  # IN (n_ratings,), or (0,) where all are 1
    user_rows,  # IN (n_user_rows, n_lanes)
    item_rows,  # IN (n_item_rows, n_lanes)
    user_biases,  # IN (n_user_rows,)
    item_biases,  # IN (n_item_rows,)
    losses,  # OUT (n_chunks,) weighted sums over equal runs of ratings
    vectors,
    loss,
    mean,
    task,
    n_tasks,
):
    """The loss of a model that stands still; tasks take every `n_tasks`-th chunk."""
    start = user_rows.dtype.type(mean)
    n_ratings, n_chunks = len(users), len(losses)
    for chunk in range(task, n_chunks, n_tasks):
        total = 0.0
        for k in range(chunk * n_ratings // n_chunks, (chunk + 1) * n_ratings // n_chunks):
            u, i = users[k], items[k]
            prediction = start + user_biases[u] + item_biases[i] + dot_rows(user_rows, u, item_rows, i, vectors)
            value, _ = loss_and_slope(loss, float(prediction), float(ratings[k]))
            total += value * weights[k] if weights.size else value
        losses[chunk] = total


train, sum_losses = compile_kernel(_train), compile_kernel(_sum_losses)
# The user's own function is a type of its own that no cache on disk recognises in the next process.
train_own, sum_losses_own = compile_kernel(_train, cache=False), compile_kernel(_sum_losses, cache=False)


@compile_kernel
def arrange(
    users,  # IN (n_ratings,) int64
    items,  # IN (n_ratings,) int64
    ratings,  # IN (n_ratings,)
    weights,  # IN (n_ratings,) or (0,)
    user_row,  # IN (n_users,) int64
    item_row,  # IN (n_items,) int64
    words,  # IN (n_ratings,) uint64, uniform
    starts,  # OUT (n_blocks**2 + 1,) int64, zeros
    out_users,  # OUT (n_ratings,) int32
    out_items,  # OUT (n_ratings,) int32
    out_ratings,  # OUT (n_ratings,)
    out_weights,  # OUT (n_ratings,) or (0,)
    n_blocks,
    user_block_rows,
    item_block_rows,
):
    """Put ratings into their blocks (a counting sort), then in random order within each (Fisher-Yates)."""
    n_ratings = len(users)
    user_block, item_block = user_row // user_block_rows * n_blocks, item_row // item_block_rows
    for k in range(n_ratings):
        starts[user_block[users[k]] + item_block[items[k]] + 1] += 1
    for block in range(n_blocks**2):
        starts[block + 1] += starts[block]
    filled = starts.copy()
    for k in range(n_ratings):
        u, i = users[k], items[k]
        block = user_block[u] + item_block[i]
        slot = filled[block]
        filled[block] += 1
        out_users[slot], out_items[slot], out_ratings[slot] = user_row[u], item_row[i], ratings[k]
        if weights.size:
            out_weights[slot] = weights[k]
    for block in range(n_blocks**2):
        first = starts[block]
        for slot in range(first, starts[block + 1]):
            other = first + (np.int64(words[slot] >> np.uint64(32)) * (slot - first + 1) >> 32)
            out_users[slot], out_users[other] = out_users[other], out_users[slot]
            out_items[slot], out_items[other] = out_items[other], out_items[slot]
            out_ratings[slot], out_ratings[other] = out_ratings[other], out_ratings[slot]
            if weights.size:
                out_weights[slot], out_weights[other] = out_weights[other], out_weights[slot]


@compile_kernel
def predict(
    users,  # IN (n_pairs,) int64
    items,  # IN (n_pairs,) int64
    user_factors,  # IN (n_users, n_factors)
    item_factors,  # IN (n_items, n_factors)
    user_biases,  # IN (n_users,)
    item_biases,  # IN (n_items,)
    out,  # OUT (n_pairs,)
    mean,
):
    """The model's predictions of pairs."""
    for k in range(len(users)):
        u, i = users[k], items[k]
        total = out.dtype.type(mean) + user_biases[u] + item_biases[i]
        for f in range(user_factors.shape[1]):
            total += user_factors[u, f] * item_factors[i, f]
        out[k] = total
