// See _model.h; compiled once for each level.
#include "_kernels/systems/ncf/_model.h"

#include "_kernels/compute/networks/_layers.h"

namespace fastfedrec {
namespace FASTFEDREC_LEVEL {

// Constants of Adam (Kingma and Ba).
static const double BETA1 = 0.9, BETA2 = 0.999, EPSILON = 1e-8;
// Number of steps without a gradient after which the mean changes no parameter: each change is (.9 / root of .999)
// times the previous one, so the omitted steps sum to 2e-8 of the first.
enum { MAX_MISSED_STEPS = 192 };

FASTFEDREC_INLINE float root(float x) { return __builtin_sqrtf(x); }
FASTFEDREC_INLINE double root(double x) { return __builtin_sqrt(x); }

template <class T>
static void roots(const T* __restrict x, ptrdiff_t n, T* __restrict out) {
    for (ptrdiff_t j = 0; j < n; ++j) out[j] = root(x[j]);
}

// ---- steps ---------------------------------------------------------------------------------------------------------

template <class T>
FASTFEDREC_INLINE ptrdiff_t rate_of(const NcfState<T>& state, int64_t step) {
    return step < state.n_rates ? step : state.n_rates - 1;
}

// Takes a step of n numbers, which are whole vectors. All uses of g^2 precede the roots of `squares` in `scratch`.
template <class T>
static void take_step(const NcfState<T>& state, int64_t step, ptrdiff_t n, const T* gradient, T* x, T* means,
                      T* squares, T* scratch) {
    typedef NativeVector<T> V;
    constexpr int lanes = Native<T>::LANES;
    const ptrdiff_t t = rate_of(state, step);
    const V rate = spread<V>(state.rates[t]);
    if (!state.adam) {
        for (ptrdiff_t j = 0; j < n; j += lanes) store(x + j, load<V>(x + j) - rate * load<V>(gradient + j));
        return;
    }
    // m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2
    for (ptrdiff_t j = 0; j < n; j += lanes) {
        const V g = load<V>(gradient + j);
        store(means + j, multiply_add(spread<V>(T(BETA1)), load<V>(means + j), spread<V>(T(1 - BETA1)) * g));
        store(squares + j, multiply_add(spread<V>(T(BETA2)), load<V>(squares + j), spread<V>(T(1 - BETA2)) * g * g));
    }
    roots(squares, n, scratch);
    // x -= rate m / (1 - b1^t) / (root of v / (1 - b2^t) + least)
    const V scale = spread<V>(state.roots[t]), epsilon = spread<V>(T(EPSILON));
    for (ptrdiff_t j = 0; j < n; j += lanes)
        store(x + j, load<V>(x + j) - rate * load<V>(means + j) / multiply_add(load<V>(scratch + j), scale, epsilon));
}

template <class T>
static void catch_up(const NcfShape& shape, const NcfState<T>& state, ptrdiff_t row, int64_t step, T* scratch) {
    typedef NativeVector<T> V;
    constexpr int lanes = Native<T>::LANES;
    const int64_t from = state.last[row], n_steps = step - from;
    state.last[row] = step;
    if (!state.adam || from == 0 || n_steps <= 0) return;  // before the first step, all means are zero
    const ptrdiff_t width = ncf_width(shape), n_applied = n_steps < MAX_MISSED_STEPS ? n_steps : MAX_MISSED_STEPS;
    T *x = state.table + row * width, *means = state.table_means + row * width;
    T* squares = state.table_squares + row * width;
    roots(squares, width, scratch);
    const V first = spread<V>(T(BETA1)), second = spread<V>(T(__builtin_sqrt(BETA2))), epsilon = spread<V>(T(EPSILON));
    const V square_decay = spread<V>(T(__builtin_exp(n_steps * __builtin_log(BETA2))));
    for (ptrdiff_t j = 0; j < width; j += lanes) {
        V value = load<V>(x + j), mean = load<V>(means + j), square = load<V>(scratch + j);
        for (int64_t t = from + 1; t <= from + n_applied; ++t) {
            mean *= first, square *= second;
            const ptrdiff_t k = rate_of(state, t);
            value -= spread<V>(state.rates[k]) * mean / multiply_add(square, spread<V>(state.roots[k]), epsilon);
        }
        store(x + j, value);
        store(means + j, n_steps > MAX_MISSED_STEPS ? V{} : mean);
        store(squares + j, load<V>(squares + j) * square_decay);
    }
}

// ---- a batch -------------------------------------------------------------------------------------------------------

// Scratch of the layers: inputs of all layers, one example a column, and their gradients.
template <class T>
struct Columns {
    const NcfShape& shape;
    ptrdiff_t stride, total;
    T *inputs, *gradients, *by_example, *sums, *output;

    Columns(const NcfShape& shape, ptrdiff_t stride, T* memory) : shape(shape), stride(stride), total(0) {
        for (ptrdiff_t k = 0; k <= shape.n_layers; ++k) total += shape.widths[k];
        inputs = memory, gradients = inputs + total * stride;
        by_example = gradients + total * stride, output = by_example + ncf_widest(shape) * stride;
        sums = output + stride;
    }

    ptrdiff_t before(ptrdiff_t k) const {
        ptrdiff_t n = 0;
        for (ptrdiff_t j = 0; j < k; ++j) n += shape.widths[j];
        return n * stride;
    }
    T* inputs_of(ptrdiff_t k) const { return inputs + before(k); }
    T* gradients_of(ptrdiff_t k) const { return gradients + before(k); }
};

template <class T>
FASTFEDREC_INLINE Layer<T> layer_of(const NcfShape& shape, T* dense, ptrdiff_t k) {
    for (ptrdiff_t j = 0; j < k; ++j) dense += (shape.widths[j] + 1) * shape.widths[j + 1];
    return {dense, dense + shape.widths[k] * shape.widths[k + 1], (ptrdiff_t)shape.widths[k],
            (ptrdiff_t)shape.widths[k + 1]};
}

// The output has weights of the product, weights of the last layer, and a bias.
template <class T>
FASTFEDREC_INLINE T* output_of(const NcfShape& shape, T* dense) {
    return dense + ncf_n_dense(shape) - NCF_COLUMNS - shape.product - shape.widths[shape.n_layers];
}

// Adds w'x of the last layer, column by column.
template <class T>
static void add_last(const NcfShape& shape, const T* weights, const Columns<T>& columns, ptrdiff_t n_columns) {
    typedef NativeVector<T> V;
    const ptrdiff_t n_in = shape.widths[shape.n_layers];
    const T* x = columns.inputs_of(shape.n_layers);
    for (ptrdiff_t j = 0; j < n_columns; j += Native<T>::LANES) {
        V sum = load<V>(columns.output + j);
        for (ptrdiff_t i = 0; i < n_in; ++i)
            sum = multiply_add(spread<V>(weights[i]), load<V>(x + i * columns.stride + j), sum);
        store(columns.output + j, sum);
    }
}

// Computes from the gradients of the output the gradients of its weights, of the outputs of the last layer, and of all
// layers, from the last to the first.
template <class T>
static void run_back(const NcfShape& shape, T* dense, T* gradient, const Columns<T>& columns, ptrdiff_t n) {
    typedef NativeVector<T> V;
    constexpr int lanes = Native<T>::LANES;
    const ptrdiff_t n_in = shape.widths[shape.n_layers], stride = columns.stride, n_columns = whole_vectors<T>(n);
    const T *x = columns.inputs_of(shape.n_layers), *weights = output_of(shape, dense) + shape.product;
    T *dx = columns.gradients_of(shape.n_layers), *d_weights = output_of(shape, gradient) + shape.product;
    for (ptrdiff_t i = 0; i < n_in; i += lanes) {
        V sums[lanes];
        for (int k = 0; k < lanes; ++k) {
            const V weight = spread<V>(weights[i + k]);
            sums[k] = V{};
            for (ptrdiff_t j = 0; j < n_columns; j += lanes) {
                const V dz = load<V>(columns.output + j);
                store(dx + (i + k) * stride + j, weight * dz);
                sums[k] = multiply_add(load<V>(x + (i + k) * stride + j), dz, sums[k]);
            }
        }
        const V totals = lane_sums<lanes>(sums);
        store(d_weights + i, totals);
    }
    for (ptrdiff_t k = shape.n_layers - 1; k >= 0; --k)
        backward(layer_of(shape, dense, k), layer_of(shape, gradient, k), columns.inputs_of(k),
                 columns.inputs_of(k + 1), columns.gradients_of(k), columns.gradients_of(k + 1), columns.by_example,
                 columns.sums, stride, n);
}

// Returns the sum of h_k p_k q_k.
template <class T>
FASTFEDREC_INLINE T weighted_product(const T* h, const T* p, const T* q, ptrdiff_t n) {
    typedef NativeVector<T> V;
    V sum = V{};
    for (ptrdiff_t k = 0; k < n; k += Native<T>::LANES)
        sum = multiply_add(load<V>(h + k) * load<V>(p + k), load<V>(q + k), sum);
    T total = 0;
    for (int k = 0; k < Native<T>::LANES; ++k) total += sum[k];
    return total;
}

template <class T>
FASTFEDREC_INLINE void add_numbers(const T* from, ptrdiff_t n, T* to) {
    typedef NativeVector<T> V;
    for (ptrdiff_t k = 0; k < n; k += Native<T>::LANES) store(to + k, load<V>(to + k) + load<V>(from + k));
}

FASTFEDREC_INLINE ptrdiff_t user_of(uint64_t example) { return example >> 32; }
FASTFEDREC_INLINE ptrdiff_t item_of(uint64_t example) { return (example & 0xffffffff) >> 1; }
FASTFEDREC_INLINE double label_of(uint64_t example) { return example & 1; }

template <class T>
static double train_batch(const NcfShape& shape, const NcfState<T>& state, const uint64_t* batch, ptrdiff_t n,
                          const Columns<T>& columns, int64_t step, T* row_gradients, T* gradient, T* scratch,
                          int32_t* rows) {
    typedef NativeVector<T> V;
    constexpr int lanes = Native<T>::LANES;
    const ptrdiff_t product = shape.product, tower = shape.tower, width = ncf_width(shape);
    const ptrdiff_t n_columns = whole_vectors<T>(n), n_dense = ncf_n_dense(shape);
    T *h = output_of(shape, state.dense), *d_h = output_of(shape, gradient);
    T* output = columns.output;

    // Each row of the batch is listed once, after all its earlier steps, and gets a gradient.
    ptrdiff_t n_rows = 0;
    for (ptrdiff_t j = 0; j < n; ++j)
        for (int side = 0; side < 2; ++side) {
            const ptrdiff_t row = side ? shape.n_users + item_of(batch[j]) : user_of(batch[j]);
            if (state.last[row] == step) continue;
            catch_up(shape, state, row, step - 1, scratch);
            state.last[row] = step;
            state.slots[row] = (int32_t)n_rows;
            rows[n_rows++] = (int32_t)row;
        }
    __builtin_memset(row_gradients, 0, n_rows * width * sizeof(T));
    __builtin_memset(gradient, 0, n_dense * sizeof(T));

    // z = h'[p * q; the last layer] + b
    const T bias = h[product + shape.widths[shape.n_layers]];
    for (ptrdiff_t j = 0; j < n; ++j) {
        const T* p = state.table + user_of(batch[j]) * width;
        const T* q = state.table + (shape.n_users + item_of(batch[j])) * width;
        output[j] = bias + weighted_product(h, p, q, product);
        copy_numbers(p + product, tower, columns.by_example + j * 2 * tower);
        copy_numbers(q + product, tower, columns.by_example + j * 2 * tower + tower);
    }
    for (ptrdiff_t j = n; j < n_columns; ++j) output[j] = 0;
    if (tower) {
        // Columns up to whole vectors are zeros, because numbers of an earlier batch there may be infinite.
        __builtin_memset(columns.by_example + n * 2 * tower, 0, (n_columns - n) * 2 * tower * sizeof(T));
        transpose_block(columns.by_example, 2 * tower, n_columns, 2 * tower, columns.inputs, columns.stride);
        for (ptrdiff_t k = 0; k < shape.n_layers; ++k)
            forward(layer_of(shape, state.dense, k), columns.inputs_of(k), columns.inputs_of(k + 1), columns.stride,
                    n_columns);
        add_last(shape, h + product, columns, n_columns);
    }

    // The loss is the mean of log(1 + e^z) - y z, and its derivative is (sigmoid(z) - y) / n.
    double loss = 0;
    T* d_bias = d_h + product + shape.widths[shape.n_layers];
    for (ptrdiff_t j = 0; j < n; ++j) {
        const double z = output[j], small = __builtin_exp(-__builtin_fabs(z)), label = label_of(batch[j]);
        loss += (z > 0 ? z : 0) - label * z + __builtin_log1p(small);
        output[j] = (T)(((z >= 0 ? 1 : small) / (1 + small) - label) / n);
        *d_bias += output[j];
    }
    for (ptrdiff_t j = n; j < n_columns; ++j) output[j] = 0;  // columns after the last example add 0

    if (tower) {
        run_back(shape, state.dense, gradient, columns, n);
        transpose_block(columns.gradients, columns.stride, 2 * tower, n_columns, columns.by_example, 2 * tower);
    }
    for (ptrdiff_t j = 0; j < n; ++j) {
        const ptrdiff_t user = user_of(batch[j]), item = shape.n_users + item_of(batch[j]);
        const T *p = state.table + user * width, *q = state.table + item * width;
        T *dp = row_gradients + state.slots[user] * width, *dq = row_gradients + state.slots[item] * width;
        const V dz = spread<V>(output[j]);
        for (ptrdiff_t k = 0; k < product; k += lanes) {
            const V left = load<V>(p + k), right = load<V>(q + k), dh = dz * load<V>(h + k);
            store(dp + k, multiply_add(dh, right, load<V>(dp + k)));
            store(dq + k, multiply_add(dh, left, load<V>(dq + k)));
            store(d_h + k, multiply_add(dz * left, right, load<V>(d_h + k)));
        }
        add_numbers(columns.by_example + j * 2 * tower, tower, dp + product);
        add_numbers(columns.by_example + j * 2 * tower + tower, tower, dq + product);
        if (state.regularization != 0) {
            const V shrink = spread<V>((T)(state.regularization / n));
            for (ptrdiff_t k = 0; k < width; k += lanes) {
                store(dp + k, multiply_add(shrink, load<V>(p + k), load<V>(dp + k)));
                store(dq + k, multiply_add(shrink, load<V>(q + k), load<V>(dq + k)));
            }
        }
    }
    if (state.regularization != 0) {
        const V shrink = spread<V>(state.regularization);
        for (ptrdiff_t k = 0; k < n_dense; k += lanes)
            store(gradient + k, multiply_add(shrink, load<V>(state.dense + k), load<V>(gradient + k)));
    }
    for (ptrdiff_t k = 0; k < n_rows; ++k) {
        const ptrdiff_t at = rows[k] * width;
        take_step(state, step, width, row_gradients + k * width, state.table + at, state.table_means + at,
                  state.table_squares + at, scratch);
    }
    take_step(state, step, n_dense, gradient, state.dense, state.dense_means, state.dense_squares, scratch);
    return loss;
}

template <class T>
static double train(const NcfShape& shape, const NcfState<T>& state, const uint64_t* examples, ptrdiff_t n,
                    ptrdiff_t batch_size, int64_t step, T* memory, int32_t* rows) {
    const ptrdiff_t n_columns = ncf_columns(batch_size), n_dense = ncf_n_dense(shape);
    const Columns<T> columns(shape, n_columns, memory);
    T* row_gradients = memory + ncf_layers_scratch_size(shape, n_columns);
    T* gradient = row_gradients + 2 * n_columns * ncf_width(shape);
    double loss = 0;
    for (ptrdiff_t at = 0; at < n; at += batch_size)
        loss += train_batch(shape, state, examples + at, n - at < batch_size ? n - at : batch_size, columns, ++step,
                            row_gradients, gradient, gradient + n_dense, rows);
    return loss;
}

// ---- scores --------------------------------------------------------------------------------------------------------

// The first layer is W'[p; q] + b: the contribution of q is the same for every user.
template <class T>
static Layer<T> part_of_first(const NcfShape& shape, T* dense, ptrdiff_t side) {
    const Layer<T> first = layer_of(shape, dense, 0);
    return {first.weights + side * shape.tower * first.n_out, first.bias, shape.tower, first.n_out};
}

template <class T>
static void run_items(const NcfShape& shape, const T* table, T* dense, ptrdiff_t first, ptrdiff_t n, T* out,
                      T* memory) {
    const Columns<T> columns(shape, NCF_BLOCK, memory);
    const ptrdiff_t width = ncf_width(shape), tower = shape.tower;
    const Layer<T> part = part_of_first(shape, dense, 1);
    __builtin_memset(columns.by_example, 0, NCF_BLOCK * tower * sizeof(T));
    for (ptrdiff_t j = 0; j < n; ++j)
        copy_numbers(table + (shape.n_users + first + j) * width + shape.product, tower,
                     columns.by_example + j * tower);
    transpose_block(columns.by_example, tower, NCF_BLOCK, tower, columns.inputs, NCF_BLOCK);
    multiply<COLUMNS_OF, true>(part.weights, part.n_out, columns.inputs, NCF_BLOCK, tower, out, NCF_BLOCK, part.n_out,
                               NCF_BLOCK);
}

template <class T>
static void score(const NcfShape& shape, const T* table, T* dense, const T* from_items, ptrdiff_t n_items, int64_t user,
                  double* out, T* memory) {
    typedef NativeVector<T> V;
    const Columns<T> columns(shape, NCF_BLOCK, memory);
    const ptrdiff_t width = ncf_width(shape), product = shape.product, tower = shape.tower;
    const T *p = table + user * width, *h = output_of(shape, dense);
    const T bias = h[product + shape.widths[shape.n_layers]];
    T* from_user = memory + ncf_layers_scratch_size(shape, NCF_BLOCK);
    if (tower) forward_one(part_of_first(shape, dense, 0), p + product, from_user);
    for (ptrdiff_t at = 0; at < n_items; at += NCF_BLOCK) {
        const ptrdiff_t n = n_items - at < NCF_BLOCK ? n_items - at : NCF_BLOCK;
        for (ptrdiff_t j = 0; j < n; ++j)
            columns.output[j] = bias + weighted_product(h, p, table + (shape.n_users + at + j) * width, product);
        for (ptrdiff_t j = n; j < NCF_BLOCK; ++j) columns.output[j] = 0;
        if (tower) {
            // Apply relu to the sum of the contributions of the user and the items to the first layer, then the layers
            // above it.
            const ptrdiff_t n_out = shape.widths[1];
            T* y = columns.inputs_of(1);
            for (ptrdiff_t o = 0; o < n_out; ++o) {
                for (ptrdiff_t j = 0; j < NCF_BLOCK; j += Native<T>::LANES)
                    store(y + o * NCF_BLOCK + j,
                          load<V>(from_items + at * n_out + o * NCF_BLOCK + j) + spread<V>(from_user[o]));
                rectify(y + o * NCF_BLOCK, NCF_BLOCK);
            }
            for (ptrdiff_t k = 1; k < shape.n_layers; ++k)
                forward(layer_of(shape, dense, k), columns.inputs_of(k), columns.inputs_of(k + 1), NCF_BLOCK,
                        (ptrdiff_t)NCF_BLOCK);
            add_last(shape, h + product, columns, NCF_BLOCK);
        }
        for (ptrdiff_t j = 0; j < n; ++j) out[at + j] = columns.output[j];
    }
}

#define FASTFEDREC_DEFINE(T) \
    double ncf_train(const NcfShape& shape, const NcfState<T>& state, const uint64_t* examples, ptrdiff_t n, \
                     ptrdiff_t batch_size, int64_t step, T* memory, int32_t* rows) { \
        return train(shape, state, examples, n, batch_size, step, memory, rows); \
    } \
    void ncf_catch_up(const NcfShape& shape, const NcfState<T>& state, ptrdiff_t row, int64_t step, T* memory) { \
        catch_up(shape, state, row, step, memory); \
    } \
    void ncf_items(const NcfShape& shape, const T* table, const T* dense, ptrdiff_t first, ptrdiff_t n, T* out, \
                   T* memory) { \
        run_items(shape, table, const_cast<T*>(dense), first, n, out, memory); \
    } \
    void ncf_score(const NcfShape& shape, const T* table, const T* dense, const T* from_items, ptrdiff_t n_items, \
                   int64_t user, double* out, T* memory) { \
        score(shape, table, const_cast<T*>(dense), from_items, n_items, user, out, memory); \
    }
FASTFEDREC_DEFINE(float)
FASTFEDREC_DEFINE(double)
#undef FASTFEDREC_DEFINE

}  // namespace FASTFEDREC_LEVEL
}  // namespace fastfedrec
