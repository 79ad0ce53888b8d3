"""Twin of `row_sums`, entry by entry."""

from itertools import pairwise


def sum_rows(indptr, indices, weights, matrix):
    out = []
    for start, stop in pairwise(indptr):
        row = [0.0] * len(matrix[0])
        for p in range(start, stop):
            for column, value in enumerate(matrix[indices[p]]):
                row[column] += weights[p] * value
        out.append(row)
    return out
