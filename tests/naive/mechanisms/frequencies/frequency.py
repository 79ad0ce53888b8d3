"""GRR and OUE, one word at a time; frequencies by solving for what the reports' shares should be."""

from fractions import Fraction

TOTAL = 2**64


def grr(value, n_values, q_count, word):
    """The own value has every word that is left once each value has its q_count words."""
    surplus = TOTAL - n_values * q_count
    if word < surplus:
        return value
    return (word - surplus) // q_count


def oue(value, n_values, q_count, words):
    return [int(word < (TOTAL // 2 if j == value else q_count)) for j, word in zip(range(n_values), words, strict=True)]


def oue_probability(bits, value, q):
    """Of one report as a whole."""
    result = Fraction(1)
    for j, bit in enumerate(bits):
        p = Fraction(1, 2) if j == value else q
        result *= p if bit else 1 - p
    return result


def frequency_variance(values, target, p, q):
    """Of the estimated frequency of `target`, client by client: independent coins."""
    n = len(values)
    total = Fraction(0)
    for value in values:
        chance = p if value == target else q
        total += chance * (1 - chance)
    return total / (n * (p - q)) ** 2
