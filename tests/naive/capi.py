"""Readable twin of the C API's draws from given words; its other functions have twins of their own."""


def below(word, bound):
    return word * bound >> 64


def clipped_span(value, span):
    """Return the number of words beyond half of all that are answered by +1, for a finite value."""
    return max(-span, min(span, int(value * span)))


def answer(value, word, span):
    return 1 if word < 2**63 + clipped_span(value, span) else -1


def table_draw(thresholds, word, next_word):
    """Return the number of 128-bit thresholds at or below the 128 bits of two words, minus half of all."""
    return sum(threshold <= word << 64 | next_word for threshold in thresholds) - len(thresholds) // 2
