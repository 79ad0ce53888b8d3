"""Stochastic gradient descent of matrix factorisation over blocks of a rating list, in Numba.

For a rating r of user u and item i with weight w and prediction ``s = mean + b_u + c_i + p_u'q_i``, one step is

    g = w * d loss(s, r) / ds
    b_u <- (1 - a h) b_u - a g            p_u <- (1 - a l) p_u - a g q_i
    c_i <- (1 - a h) c_i - a g            q_i <- (1 - a l) q_i - a g p_u     (p_u as it was)

with learning rate a and regularization l of factors and h of biases (Koren, Bell, Volinsky 2009, section "Learning
algorithms"; Gemulla et al. 2011 for the blocks).  Inputs are trusted.

Numba, because the loss may be the user's own function, and because it, the number of factors and the place of the
biases are frozen at compile time: rows are whole vectors of 64 bytes, and a tuple of one entry a vector carries their
number as a type, so that both loops over a row unroll into registers.  Plain loops over factors took 5 times as long at
rank 20 and 1.7 times at rank 64: LLVM cannot tell the two rows apart, so it does not keep them in registers.  There is
no parallel loop here: the functions release the GIL, and the API layer calls them from threads of its own, on blocks
that share no row.  So no threading layer is loaded, which could not be entered from two threads or survive a fork.

Fast-math is only {contract, reassoc, nsz, arcp}: NaN must survive to be seen.
"""

import math
from typing import NamedTuple

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic, overload, register_jitable

from fastfedrec._kernels._tasks import tell, wait_for_all

VECTOR_BYTES = 64

_FAST = ("contract", "reassoc", "nsz", "arcp")


def compile_kernel(function, cache=True):
    """Compile for this host; without a cache on disk where no folder for it can be written."""
    options = {"fastmath": set(_FAST), "error_model": "numpy", "nogil": True}
    try:
        return njit(function, cache=cache, **options)
    except RuntimeError:  # Numba found no writable folder
        return njit(function, **options)


# ---- where the biases are: a type, so that a loop holds the instructions of one place only -----------------------


class NoBiases(NamedTuple):
    """Rows hold factors alone."""

    vectors: tuple  # as many entries as a row has vectors


class BiasesInRows(NamedTuple):
    """A user's row ends in (b_u, 1) and an item's in (1, c_i): p_u'q_i includes them, and one step moves all."""

    vectors: tuple


class BiasesBeside(NamedTuple):
    """Arrays of their own, for rows without two lanes to spare."""

    vectors: tuple


# ---- one pair of rows -------------------------------------------------------------------------------------------


def dot_rows(user_rows, u, item_rows, i, layout):
    """p_u'q_i; these bodies are what runs without a compiler."""
    return (user_rows[u] * item_rows[i]).sum()


def step_rows(user_rows, u, item_rows, i, keep, bias_keep, step, layout):
    """p_u <- keep p_u + step q_i and q_i <- keep q_i + step p_u, both from the old rows; biases by `bias_keep`."""
    p, q = user_rows[u].copy(), item_rows[i].copy()
    user_rows[u] = keep * p + step * q
    item_rows[i] = keep * q + step * p
    if isinstance(layout, BiasesInRows):
        user_rows[u, -2:] = bias_keep * p[-2] + step, 1
        item_rows[i, -2:] = 1, bias_keep * q[-1] + step


def bias_sum(user_biases, u, item_biases, i, layout):
    """b_u + c_i where the rows do not hold them."""
    return user_biases[u] + item_biases[i] if isinstance(layout, BiasesBeside) else 0


def step_biases(user_biases, u, item_biases, i, keep, step, layout):
    """b_u <- keep b_u + step and c_i <- keep c_i + step where the rows do not hold them."""
    if isinstance(layout, BiasesBeside):
        user_biases[u] = keep * user_biases[u] + step
        item_biases[i] = keep * item_biases[i] + step


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
def _dot_vectors(typing_context, user_rows, u, item_rows, i, layout):
    n_vectors = layout[0].count

    def codegen(context, builder, signature, args):
        vector = _vector_type(context, user_rows)
        _, p = _load_row(context, builder, user_rows, args[0], args[1], n_vectors)
        _, q = _load_row(context, builder, item_rows, args[2], args[3], n_vectors)
        total = builder.fmul(p[0], q[0], flags=_FAST)
        for x, y in zip(p[1:], q[1:], strict=True):
            total = builder.fadd(total, builder.fmul(x, y, flags=_FAST), flags=_FAST)
        reduce_add = cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(vector.element, [vector.element, vector]),
            f"llvm.vector.reduce.fadd.v{vector.count}f{user_rows.dtype.bitwidth}",
        )
        return builder.call(reduce_add, [vector.element(-0.0), total], fastmath=_FAST)

    return user_rows.dtype(user_rows, types.uintp, item_rows, types.uintp, layout), codegen


@intrinsic
def _step_vectors(typing_context, user_rows, u, item_rows, i, keep, bias_keep, step, layout):
    n_vectors, in_rows = layout[0].count, layout.instance_class is BiasesInRows

    def last_lanes(builder, scalars, whole, own, fixed):
        # What the last vector of a row is multiplied by, and the other's: its own bias, and the other's 1, which stays.
        keep_all, step_all = whole
        if not in_rows:
            return whole
        keep_last = builder.insert_element(keep_all, scalars[1], own)
        keep_last = builder.insert_element(keep_last, keep_all.type.element(1.0), fixed)
        return keep_last, builder.insert_element(step_all, step_all.type.element(0.0), fixed)

    def codegen(context, builder, signature, args):
        vector = _vector_type(context, user_rows)
        p_at, p = _load_row(context, builder, user_rows, args[0], args[1], n_vectors)
        q_at, q = _load_row(context, builder, item_rows, args[2], args[3], n_vectors)
        whole = _broadcast(builder, vector, args[4]), _broadcast(builder, vector, args[6])
        own, fixed = ir.IntType(32)(vector.count - 2), ir.IntType(32)(vector.count - 1)
        p_scales = [whole] * (n_vectors - 1) + [last_lanes(builder, args[4:6], whole, own, fixed)]
        q_scales = [whole] * (n_vectors - 1) + [last_lanes(builder, args[4:6], whole, fixed, own)]
        multiply_add = cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(vector, [vector] * 3),
            f"llvm.fmuladd.v{vector.count}f{user_rows.dtype.bitwidth}",
        )
        for pointer, old, other, scale in zip(p_at + q_at, p + q, q + p, p_scales + q_scales, strict=True):
            kept = builder.fmul(scale[0], old, flags=_FAST)  # does not wait for the slope
            builder.store(builder.call(multiply_add, [scale[1], other, kept]), pointer, align=VECTOR_BYTES)
        return context.get_dummy_value()

    real = user_rows.dtype
    return types.void(user_rows, types.uintp, item_rows, types.uintp, real, real, real, layout), codegen


@overload(dot_rows)
def _compile_dot_rows(user_rows, u, item_rows, i, layout):
    return lambda user_rows, u, item_rows, i, layout: _dot_vectors(user_rows, u, item_rows, i, layout)


@overload(step_rows)
def _compile_step_rows(user_rows, u, item_rows, i, keep, bias_keep, step, layout):
    return lambda user_rows, u, item_rows, i, keep, bias_keep, step, layout: _step_vectors(
        user_rows, u, item_rows, i, keep, bias_keep, step, layout
    )


@overload(bias_sum)
def _compile_bias_sum(user_biases, u, item_biases, i, layout):
    if layout.instance_class is BiasesBeside:
        return lambda user_biases, u, item_biases, i, layout: user_biases[u] + item_biases[i]
    return lambda user_biases, u, item_biases, i, layout: user_biases.dtype.type(0)


@overload(step_biases)
def _compile_step_biases(user_biases, u, item_biases, i, keep, step, layout):
    def step_both(user_biases, u, item_biases, i, keep, step, layout):
        user_biases[u] = keep * user_biases[u] + step
        item_biases[i] = keep * item_biases[i] + step

    if layout.instance_class is BiasesBeside:
        return step_both
    return lambda user_biases, u, item_biases, i, keep, step, layout: None


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
def _predict_pair(user, item, user_rows, item_rows, user_biases, item_biases, mean, layout):
    biases = bias_sum(user_biases, user, item_biases, item, layout)
    return mean + biases + dot_rows(user_rows, user, item_rows, item, layout)


@register_jitable
def train_phase(
    records,  # IN (n_ratings,) of `rating_blocks.record_type`, block after block
    starts,  # IN (n_blocks**2 + 1,) uint64: where the block of users j and items k begins, at j * n_blocks + k
    user_rows,  # IN/OUT (n_user_rows, n_lanes)
    item_rows,  # IN/OUT (n_item_rows, n_lanes)
    user_biases,  # IN/OUT (n_user_rows,), or (0,) unless `layout` is `BiasesBeside`
    item_biases,  # IN/OUT (n_item_rows,), or (0,)
    losses,  # OUT (n_blocks, n_blocks) weighted sums of the loss before each step
    layout,  # one of the three above
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
    model = user_rows, item_rows, user_biases, item_biases, start, layout
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
                step = -rate * weight * slope
                step_biases(user_biases, u, item_biases, i, bias_keep, step, layout)
                step_rows(user_rows, u, item_rows, i, keep, bias_keep, step, layout)
                if not apart:
                    next_prediction = _predict_pair(next_u, next_i, *model)
                u, i, prediction = next_u, next_i, next_prediction
            losses[user_block, item_block] = total


@register_jitable
def _copy_share(numbers, kept, limit, part, n_parts):
    share = len(numbers) // n_parts
    usable = True
    for k in range(part * share, (part + 1) * share):
        kept[k] = numbers[k]
        usable &= abs(numbers[k]) < limit  # false for NaN
    return usable


def _run_epoch(
    records,  # as above, up to `bias_regularization`
    starts,
    user_rows,
    item_rows,
    user_biases,
    item_biases,
    losses,
    layout,
    loss,
    mean,
    learning_rate,
    regularization,
    bias_regularization,
    kept_user_rows,  # OUT the four arrays as they are after the epoch
    kept_item_rows,
    kept_user_biases,
    kept_item_biases,
    limit,
    arrivals,  # IN/OUT (n_tasks, 8) int64: the phases each task has done, each on its own line of cache
    before,  # how many all of them had done when the epoch began
    task,
):
    """One task of an epoch, whose tasks must all be running; whether no number of its share exceeds `limit`.

    Tasks wait for each other between phases.  After the last, a task checks and copies what no other touches any more:
    its users, and the items it met last.
    """
    model = user_rows, item_rows, user_biases, item_biases
    rates = learning_rate, regularization, bias_regularization
    n_tasks = arrivals.shape[0]
    for phase in range(n_tasks):
        train_phase(records, starts, *model, losses, layout, loss, mean, *rates, phase, task, n_tasks)
        tell(arrivals, task, before + phase + 1)
        if phase + 1 < n_tasks:
            wait_for_all(arrivals, before + phase + 1)
    users, items = task, task ^ (n_tasks - 1)
    return (
        _copy_share(user_rows.ravel(), kept_user_rows.ravel(), limit, users, n_tasks)
        & _copy_share(item_rows.ravel(), kept_item_rows.ravel(), limit, items, n_tasks)
        & _copy_share(user_biases, kept_user_biases, limit, users, n_tasks)
        & _copy_share(item_biases, kept_item_biases, limit, items, n_tasks)
    )


def _sum_losses(
    records,  # IN (n_ratings,) of `rating_blocks.record_type`
    user_rows,  # IN (n_user_rows, n_lanes)
    item_rows,  # IN (n_item_rows, n_lanes)
    user_biases,  # IN (n_user_rows,), or (0,)
    item_biases,  # IN (n_item_rows,), or (0,)
    losses,  # OUT (n_chunks,) weighted sums over equal runs of ratings
    layout,
    loss,
    mean,
    task,
    n_tasks,
):
    """The loss of a model that stands still; tasks take every `n_tasks`-th chunk."""
    model = user_rows, item_rows, user_biases, item_biases, user_rows.dtype.type(mean), layout
    n_ratings, n_chunks = len(records), len(losses)
    for chunk in range(task, n_chunks, n_tasks):
        total = 0.0
        for k in range(chunk * n_ratings // n_chunks, (chunk + 1) * n_ratings // n_chunks):
            rating = records[k]
            prediction = _predict_pair(rating["user"], rating["item"], *model)
            value, _ = loss_and_slope(loss, float(prediction), float(rating["rating"]))
            total += value * rating["weight"]
        losses[chunk] = total


run_epoch, sum_losses = compile_kernel(_run_epoch), compile_kernel(_sum_losses)
# The user's own function is a type of its own that no cache on disk recognises in the next process.
run_epoch_own, sum_losses_own = compile_kernel(_run_epoch, cache=False), compile_kernel(_sum_losses, cache=False)


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
