"""Stochastic gradient descent of matrix factorisation over blocks of a rating list, in Numba.

For a rating r of user u and item i with weight w and prediction ``s = mean + b_u + c_i + p_u'q_i``, one step is

    g = w * d loss(s, r) / ds
    b_u <- (1 - a h) b_u - a g            p_u <- (1 - a l) p_u - a g q_i
    c_i <- (1 - a h) c_i - a g            q_i <- (1 - a l) q_i - a g p_u     (p_u as it was)

with learning rate a and regularization l of factors and h of biases (Koren, Bell, Volinsky 2009, section "Learning
algorithms"; Gemulla et al. 2011 for the blocks).  Inputs are trusted.

Numba, because the loss may be the user's own function, and because both it and the number of factors are frozen at
compile time: rows are whole vectors of 64 bytes, and a tuple of one entry a vector carries their number as a type, so
that both loops over a row unroll into registers.  Plain loops over factors took 5 times as long at rank 20 and 1.7
times at rank 64: LLVM cannot tell the two rows apart, so it does not keep them in registers.  There is no parallel
loop here: the functions release the GIL, and the API layer calls them from threads of its own, on blocks that share no
row.  So no threading layer is loaded, which could not be entered from two threads or survive a fork.

Fast-math is only {contract, reassoc, nsz, arcp}: NaN must survive to be seen.
"""

import math
from typing import NamedTuple

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic, overload, register_jitable

VECTOR_BYTES = 64

_FAST = ("contract", "reassoc", "nsz", "arcp")


def compile_kernel(function, cache=True):
    """Compile for this host; without a cache on disk where no folder for it can be written."""
    options = {"fastmath": set(_FAST), "error_model": "numpy", "nogil": True}
    try:
        return njit(function, cache=cache, **options)
    except RuntimeError:  # Numba found no writable folder
        return njit(function, **options)


def record_type(real):
    """A rating as the passes below read it, in one piece: rows are unsigned, or Numba would count -1 from the end."""
    return np.dtype([("user", np.uint32), ("item", np.uint32), ("rating", real), ("weight", real)])


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

    return user_rows.dtype(user_rows, types.uintp, item_rows, types.uintp, vectors), codegen


@intrinsic
def _step_vectors(typing_context, user_rows, u, item_rows, i, keep, step, vectors):
    def codegen(context, builder, signature, args):
        vector = _vector_type(context, user_rows)
        p_at, p = _load_row(context, builder, user_rows, args[0], args[1], vectors.count)
        q_at, q = _load_row(context, builder, item_rows, args[2], args[3], vectors.count)
        keep_all, step_all = (_broadcast(builder, vector, scalar) for scalar in args[4:6])
        multiply_add = cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(vector, [vector] * 3),
            f"llvm.fmuladd.v{vector.count}f{user_rows.dtype.bitwidth}",
        )
        for pointer, old, other in zip(p_at + q_at, p + q, q + p, strict=True):
            kept = builder.fmul(keep_all, old, flags=_FAST)  # does not wait for the slope
            builder.store(builder.call(multiply_add, [step_all, other, kept]), pointer, align=VECTOR_BYTES)
        return context.get_dummy_value()

    real = user_rows.dtype
    return types.void(user_rows, types.uintp, item_rows, types.uintp, real, real, vectors), codegen


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


@register_jitable
def _predict_pair(user, item, user_rows, item_rows, user_biases, item_biases, mean, vectors):
    factors = dot_rows(user_rows, user, item_rows, item, vectors)
    return (mean + user_biases[user] + item_biases[item] if user_biases.size else mean) + factors


def _train(
    records,  # IN (n_ratings,) of `record_type`, block after block
    starts,  # IN (n_blocks**2 + 1,) uint64: where the block of users j and items k begins, at j * n_blocks + k
    user_rows,  # IN/OUT (n_user_rows, n_lanes)
    item_rows,  # IN/OUT (n_item_rows, n_lanes)
    user_biases,  # IN/OUT (n_user_rows,), or (0,) in a model without biases
    item_biases,  # IN/OUT (n_item_rows,), or (0,)
    losses,  # OUT (n_blocks, n_blocks) weighted sums of the loss before each step
    vectors,  # a tuple of as many entries as a row has vectors
    loss,  # an instance of one of the types above, or a compiled function
    mean,
    learning_rate,
    regularization,
    bias_regularization,
    phase,
    task,
    n_tasks,
):
    """One task of one phase of an epoch: its own blocks of users against the blocks of items no other task has.

    Stratum s pairs users' block j with items' block j ^ s.  `n_tasks` is a power of two, so in the strata of a phase
    the high bits of s are fixed, and with them the range of items' blocks that a task meets.

    A rating is predicted before the step of the one before it where the two share no row: the same numbers, but the
    processor need not wait for the end of one sum to begin the next.
    """
    real = user_rows.dtype.type
    start, rate = real(mean), real(learning_rate)
    keep = real(1 - learning_rate * regularization)
    bias_keep = real(1 - learning_rate * bias_regularization)
    model = user_rows, item_rows, user_biases, item_biases, start, vectors
    n_blocks = losses.shape[0]
    share = n_blocks // n_tasks
    for stratum in range(phase * share, (phase + 1) * share):
        for user_block in range(task * share, (task + 1) * share):
            item_block = user_block ^ stratum
            block = user_block * n_blocks + item_block
            first, end = starts[block], starts[block + 1]
            total = 0.0
            if first < end:
                u, i = records[first]["user"], records[first]["item"]
                prediction = _predict_pair(u, i, *model)
            for k in range(first, end):
                after = min(k + np.uint64(1), end - np.uint64(1))
                next_u, next_i = records[after]["user"], records[after]["item"]
                apart = (next_u != u) & (next_i != i)
                if apart:
                    next_prediction = _predict_pair(next_u, next_i, *model)
                weight = records[k]["weight"]
                value, slope = loss_and_slope(loss, float(prediction), float(records[k]["rating"]))
                total += value * weight
                slope = real(slope)
                if user_biases.size:
                    user_biases[u] = bias_keep * user_biases[u] - rate * weight * slope
                    item_biases[i] = bias_keep * item_biases[i] - rate * weight * slope
                step_rows(user_rows, u, item_rows, i, keep, -rate * weight * slope, vectors)
                if not apart:
                    next_prediction = _predict_pair(next_u, next_i, *model)
                u, i, prediction = next_u, next_i, next_prediction
            losses[user_block, item_block] = total


def _sum_losses(
    records,  # IN (n_ratings,) of `record_type`
    user_rows,  # IN (n_user_rows, n_lanes)
    item_rows,  # IN (n_item_rows, n_lanes)
    user_biases,  # IN (n_user_rows,), or (0,)
    item_biases,  # IN (n_item_rows,), or (0,)
    losses,  # OUT (n_chunks,) weighted sums over equal runs of ratings
    vectors,
    loss,
    mean,
    task,
    n_tasks,
):
    """The loss of a model that stands still; tasks take every `n_tasks`-th chunk."""
    model = user_rows, item_rows, user_biases, item_biases, user_rows.dtype.type(mean), vectors
    n_ratings, n_chunks = len(records), len(losses)
    for chunk in range(task, n_chunks, n_tasks):
        total = 0.0
        for k in range(chunk * n_ratings // n_chunks, (chunk + 1) * n_ratings // n_chunks):
            rating = records[k]
            prediction = _predict_pair(rating["user"], rating["item"], *model)
            value, _ = loss_and_slope(loss, float(prediction), float(rating["rating"]))
            total += value * rating["weight"]
        losses[chunk] = total


train, sum_losses = compile_kernel(_train), compile_kernel(_sum_losses)
# The user's own function is a type of its own that no cache on disk recognises in the next process.
train_own, sum_losses_own = compile_kernel(_train, cache=False), compile_kernel(_sum_losses, cache=False)


# ---- ratings into blocks: a counting sort, of which each task does one run of the ratings -------------------------


@compile_kernel
def count_ids(
    ids,  # IN (n_ratings,) int64
    n_ids,
):
    """How many ratings each id has; NumPy's does not release the GIL."""
    counts = np.zeros(n_ids, dtype=np.int64)
    for k in range(len(ids)):
        counts[np.uint64(ids[k])] += 1
    return counts


@compile_kernel
def count_blocks(
    users,  # IN (n_ratings,) int64
    items,  # IN (n_ratings,) int64
    user_block,  # IN (n_users,) int64 block, times n_blocks
    item_block,  # IN (n_items,) int64 block
    counts,  # IN/OUT (n_tasks, n_blocks**2) int64, zeros: ratings of each task in each block
    task,
):
    """Count one task's ratings by blocks."""
    n_ratings, n_tasks = len(users), len(counts)
    mine = counts[task]
    for k in range(task * n_ratings // n_tasks, (task + 1) * n_ratings // n_tasks):
        mine[user_block[np.uint64(users[k])] + item_block[np.uint64(items[k])]] += 1


@compile_kernel
def place_ratings(
    users,  # IN (n_ratings,) int64
    items,  # IN (n_ratings,) int64
    ratings,  # IN (n_ratings,)
    weights,  # IN (n_ratings,), or (0,) where all are 1
    user_row,  # IN (n_users,) int64
    item_row,  # IN (n_items,) int64
    user_block,  # IN (n_users,) int64 block, times n_blocks
    item_block,  # IN (n_items,) int64 block
    slots,  # IN/OUT (n_tasks, n_blocks**2) uint64 where a task's next rating of a block goes
    records,  # OUT (n_ratings,) of `record_type`
    task,
):
    """Put one task's ratings into their blocks, in the order they come."""
    n_ratings, n_tasks = len(users), len(slots)
    mine = slots[task]
    for k in range(task * n_ratings // n_tasks, (task + 1) * n_ratings // n_tasks):
        u, i = np.uint64(users[k]), np.uint64(items[k])
        block = np.uint64(user_block[u] + item_block[i])
        slot = mine[block]
        mine[block] = slot + np.uint64(1)
        record = records[slot]
        record["user"], record["item"], record["rating"] = user_row[u], item_row[i], ratings[k]
        record["weight"] = weights[k] if weights.size else 1.0


@compile_kernel
def shuffle_blocks(
    words,  # IN (n_ratings,) uint64, uniform
    starts,  # IN (n_blocks**2 + 1,) uint64
    records,  # IN/OUT (n_ratings,) of `record_type`
    task,
    n_tasks,
):
    """Put the ratings of one task's share of the blocks in random order, each block by itself (Fisher-Yates)."""
    n_blocks = len(starts) - 1
    for block in range(task * n_blocks // n_tasks, (task + 1) * n_blocks // n_tasks):
        first = starts[block]
        for slot in range(first, starts[block + 1]):
            place = (words[slot] >> np.uint64(32)) * np.uint64(slot - first + np.uint64(1)) >> np.uint64(32)
            one, other = records[slot], records[first + place]
            one["user"], other["user"] = other["user"], one["user"]
            one["item"], other["item"] = other["item"], one["item"]
            one["rating"], other["rating"] = other["rating"], one["rating"]
            one["weight"], other["weight"] = other["weight"], one["weight"]


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
