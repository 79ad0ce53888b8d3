"""Readable twin of fastfedrec.systems.gram.shuffled_gram: cells of fake messages by Python's integers."""

from naive.core.randomness import words


def cells(secret, purpose, round_number, users, numbers, n_cells):
    """Return the cell of each message, from the first words of each user's stream."""
    return [
        word * n_cells >> 64
        for user, n in zip(users, numbers, strict=True)
        for word in words(secret, purpose, round_number, user, n)
    ]
