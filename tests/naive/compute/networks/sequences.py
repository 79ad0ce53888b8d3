"""Readable twin of fastfedrec.compute.networks.sequences: one sequence after the other."""


def below(word, n):
    """Return an integer below n from the high half of a 64-bit word."""
    return (word >> 32) * n >> 32


def other(word, n, taken):
    """Return one of n integers other than `taken`."""
    drawn = below(word, n - 1)
    # Skip `taken`, so that all other values are equally likely.
    return drawn + 1 if drawn >= taken else drawn


def examples_of(history, n_items, words, length, n_negatives):
    """Return [(sequences, candidates)] of one user, with items in the order of time."""
    out, words = [], iter(words)
    for first in range(0, len(history), length):
        sequence = history[first : first + length]
        if len(sequence) < 2:
            continue
        size = max(len(sequence) // 4, 1)
        masked = below(next(words), len(sequence))
        begin = below(next(words), len(sequence) - size + 1)
        items = [other(next(words), n_items, sequence[masked]) for _ in range(n_negatives)]
        begins = [other(next(words), len(history) - size + 1, first + begin) for _ in range(n_negatives)]
        segments = [history[b : b + size] for b in begins]
        # The first negatives replace the true item and the true segment in the sequences.
        strange_item = [*sequence[:masked], items[0], *sequence[masked + 1 :]]
        strange_segment = [*sequence[:begin], *segments[0], *sequence[begin + size :]]
        true_segment = sequence[begin : begin + size]
        out.append(([strange_item, strange_segment, true_segment, *segments], [sequence[masked], *items]))
    return out
