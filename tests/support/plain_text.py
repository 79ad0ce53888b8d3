"""Faults of texts that users read: words of .ci/plain_words.py, fragments, and long sentences."""

import re

from support.maintainers import load_program

PLAIN_WORDS = load_program(".ci/plain_words")
MAX_WORDS = 30
# A sentence needs one of these; extend the list for a new sentence, and not for a fragment.
VERBS = re.compile(
    r"\b(is|are|was|were|has|have|had|hold|holds|cannot|can|may|must|need|needs|bound|bounds|fails|failed|see|sees|knows|"
    r"guarantees?|compares|identifies|covers?|add|adds|ran|runs|gives?|reveals?|removes?|chose|spent|assumes|received|"
    r"takes|train|protects|states|includes|counts|costs|ignores|follow|applies|ended|finds|sends?|came|stays|"
    r"reported|learns?|learned|reach|reached|exceeds|does|do|trains|releases|Approve|Query|Pass|decides|identifies|"
    r"contain|receives|trusts|use|answered|hides|records|simulates|served|observed|makes|computes|names?|repeats?|took|works)\b"
)


def sentences_of(text):
    """Return the sentences of a text."""
    return [part for part in re.split(r"(?<=[.!?])\s+", " ".join(text.split())) if part]


def faults_of(text):
    """Return the faults of each sentence of a text."""
    faults = []
    for sentence in sentences_of(text):
        words = [name for name, pattern in PLAIN_WORDS.PATTERNS.items() if pattern.search(sentence)]
        shape = {
            "a fragment": PLAIN_WORDS.FRAGMENT.match(sentence) or not VERBS.search(sentence),
            "no capital letter": not re.match(r"[A-Z0-9\"'(]", sentence),
            "no full stop": not sentence.endswith((".", "!", "?")),
            "too long": len(re.findall(r"[A-Za-z']+", sentence)) > MAX_WORDS,
        }
        faults += [f"{fault}: {sentence}" for fault in [*words, *(name for name, is_so in shape.items() if is_so)]]
    return faults
