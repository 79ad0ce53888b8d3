"""The Walsh-Hadamard transform by its definition."""


def entry(i, j):
    return -1 if (i & j).bit_count() % 2 else 1


def transform(values):
    return [sum(entry(i, j) * x for j, x in enumerate(values)) for i in range(len(values))]
