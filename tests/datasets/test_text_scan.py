"""Tests of the scan of a text's lines and of the removal of blanks, against Python."""

import re

from hypothesis import example, given
from hypothesis import strategies as st

from fastfedrec._kernels.datasets import _text
from fastfedrec.datasets import _polars
from fastfedrec.datasets._fields import BLANKS

# ---- oracle ---------------------------------------------------------------------------------------------------------


def scan(text, separator):
    """Return the kernel's scan of lines, computed in Python."""
    between = re.escape(separator.decode())
    # Doubtful fields have a sign +, -0, leading zeros, or blanks.
    doubtful = rb"[+]|-0|(?:\A|[\n" + between.encode() + rb"])0[0-9]|" + (rb" " if separator == b"\t" else rb"[ \t]")
    # A carriage return without a line feed ends no line.
    n_alone = text.count(b"\r") - text.count(b"\r\n")
    return text.count(b"\n"), text.count(separator), text.isascii(), n_alone > 0, bool(re.search(doubtful, text))


@given(
    st.lists(st.sampled_from([b"0", b"7", b"10", b"-", b"+", b".", b" ", b"\t", b",", b"\n", b"\r\n", b"\r", b"\xc3"])),
    st.sampled_from([b",", b"\t"]),
    st.sampled_from([0, 225, 1000]),
)
@example([b"0"], b",", 0)
def test_a_look_at_lines_equals_pythons(parts, separator, n_before):
    text = b"1" * n_before + b"".join(parts) + b"\n"
    assert _text.scan(text, ord(separator)) == scan(text, separator)


def stripped(line, separator):
    """A line without quotes, written with its fields alone."""
    run = f"[{BLANKS}]*[ \t][{BLANKS}]*"
    parts = re.split(run, line.strip(BLANKS)) if separator == " " else line.split(separator)
    return separator.join(part.strip(BLANKS) for part in parts)


@given(
    st.lists(st.lists(st.sampled_from(["a", "7", " ", "  ", "\t", "\xa0", "\u2009", "\u3000", "é", ",", ":", "|"]))),
    st.sampled_from([",", "\t", "::", " ", " | ", "| ", "\xa0"]),
    st.sampled_from(["\n", "\r\n"]),
)
def test_blanks_around_fields_are_removed_as_python_strips_them(lines, separator, end):
    lines = ["".join(line) for line in lines]
    text = "".join(line + end for line in lines)
    expected = _polars.strip_blanks(text.encode(), separator.encode(), False).decode()
    assert expected == "".join(stripped(line, separator) + end for line in lines)
    assert _polars.strip_blanks(expected.encode(), separator.encode(), False).decode() == expected
    for position in range(len(text)):  # cut anywhere, as blocks of a file are
        first = _polars.strip_blanks(text[:position].encode(), separator.encode(), False)
        assert _polars.strip_blanks(first + text[position:].encode(), separator.encode(), False).decode() == expected
