"""GRR and OUE, one word at a time; frequencies by solving for the expected shares of reports."""

from fractions import Fraction

TOTAL = 2**64


def grr(value, n_values, q_count, word):
    """Return a report; the true value has all words that remain after each value's q_count words."""
    # The surplus of words belongs to the true value alone.
    surplus = TOTAL - n_values * q_count
    if word < surplus:
        return value
    return (word - surplus) // q_count


def oue(value, n_values, q_count, words):
    return [int(word < (TOTAL // 2 if j == value else q_count)) for j, word in zip(range(n_values), words, strict=True)]


def oue_probability(bits, value, q):
    """Return the probability of one whole report."""
    result = Fraction(1)
    for j, bit in enumerate(bits):
        p = Fraction(1, 2) if j == value else q
        # The bits of a report are independent.
        result *= p if bit else 1 - p
    return result


def frequency_variance(values, target, p, q):
    """Return the variance of the estimated frequency of `target`: a sum of clients' independent coins."""
    n = len(values)
    total = Fraction(0)
    for value in values:
        chance = p if value == target else q
        total += chance * (1 - chance)
    return total / (n * (p - q)) ** 2
