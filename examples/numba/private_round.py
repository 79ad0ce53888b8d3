"""A round of FMF-LDP in one function that Numba compiles: each user's least squares, gradient and private reports."""

import numba
import numpy as np

from fastfedrec import Key, als, datasets
from fastfedrec import numba as private
from fastfedrec.mechanisms import BinaryResponse

BLOCK = 32  # users whose least squares are solved at once


@numba.njit(nogil=True, cache=True)
def sum_reports(indptr, items, item_factors, gram, weight, subkey, round_number, n_reports, span):
    """Return the sums of the users' answers of +-1 about random coordinates of their gradients."""
    (n_items, n_factors), n_users = item_factors.shape, len(indptr) - 1
    sums, confidences = np.zeros(n_items * n_factors, np.int64), np.zeros(n_items)
    coordinates, gradients = np.empty(n_reports, np.int64), np.empty(n_reports)
    words, answers = np.empty(n_reports, np.uint64), np.empty(n_reports, np.int8)
    users, stream = np.empty((BLOCK, n_factors), item_factors.dtype), private.make_stream()
    handle = private.als_open(item_factors, gram, weight, False)
    scratch = private.als_scratch(handle)
    for first in range(0, n_users, BLOCK):
        last = min(first + BLOCK, n_users)
        private.als_solve_users(handle, indptr, items, None, first, last, scratch, users)
        for user in range(first, last):
            x = users[user - first]
            private.open_stream(stream, subkey, round_number, user)
            for item in items[indptr[user] : indptr[user + 1]]:
                confidences[item] = 1 + weight
            for report in range(n_reports):
                coordinates[report] = coordinate = np.int64(private.below(stream, n_items * n_factors))
                words[report] = private.next_word(stream)
                item = coordinate // n_factors
                error = -1.0 if confidences[item] else 0.0
                for f in range(n_factors):
                    error += x[f] * item_factors[item, f]
                gradients[report] = 2 * max(confidences[item], 1.0) * error * x[coordinate - item * n_factors]
            private.answer_values(gradients, words, span, answers)
            for report in range(n_reports):
                sums[coordinates[report]] += answers[report]
            for item in items[indptr[user] : indptr[user + 1]]:
                confidences[item] = 0
    private.als_close(handle)
    return sums


def main():
    """Simulate one round."""
    data = datasets.generate_implicit(20_000, 1_000, key=Key.from_seed(1))
    factors, weight, channel = np.random.default_rng(0).normal(0, 0.1, (data.n_items, 5)), 2.0, BinaryResponse(2.5)
    gram = als.regularized_gram(factors, 0.1, weight)
    subkey = private.subkey(Key.from_seed(2), "my_round.reports")  # with real data: Key.from_entropy()
    sums = sum_reports(data.indptr, data.indices, factors, gram, weight, subkey, 0, 100, channel.span)
    gradient = channel.decoder * sums.reshape(factors.shape) / (100 * data.n_users) * sums.size
    print(f"{100 * data.n_users:,} reports; largest estimate of the mean gradient: {abs(gradient).max():.2f}")


if __name__ == "__main__":
    main()
