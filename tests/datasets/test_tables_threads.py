"""Tables on several threads: wherever a text is cut, columns, names and errors are those of one piece."""

import math
from io import BytesIO

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fastfedrec._kernels.datasets import tables as kernel
from fastfedrec.datasets import columns as _columns
from fastfedrec.datasets.columns import ColumnReader, Field, FieldError

KINDS = [
    (kernel.TEXT, kernel.NATURAL, kernel.TEXT | kernel.OPTIONAL),
    (kernel.INTEGER | kernel.OPTIONAL, kernel.SKIP, kernel.DECIMAL),
    (kernel.TEXT, kernel.TEXT),
    (kernel.NATURAL,),
]
# From its third line on it can be read as well, with names that the text has not.
QUOTED = 'a,1\n"b\nghost,2\nd",3\nc,4\n'
PAIRS = (kernel.TEXT, kernel.NATURAL)


def line_ends(text):
    return [place + 1 for place, byte in enumerate(text.encode()) if byte == ord("\n")]


def parse(text, kinds, cuts=(), *, separator=",", headings=False, quotes=True, heading=-1, known=(), n_threads=1):
    """All that the kernel gives for a text that is cut after so many bytes, the names `known` before."""
    lines = np.frombuffer(text.encode(), dtype=np.uint8)
    places = [0, *sorted(cuts), len(lines)]
    cuts = np.array([(place, text.encode().count(b"\n", 0, place)) for place in places])
    is_text = [kind & ~kernel.OPTIONAL == kernel.TEXT for kind in kinds]
    names = [kernel.Names() for _ in range(sum(is_text))]
    for name in known:
        parse_into(f"{name}\n", names)
    columns = np.full((len(kinds) + headings, cuts[-1, 1]), -7)
    heading = np.full(int(headings), heading)
    n, *stopped = kernel.parse(
        lines, cuts, np.frombuffer(separator.encode(), dtype=np.uint8), np.array(kinds, dtype=np.int32), columns,
        heading, names, -math.inf, math.inf, 0.0, quotes, n_threads,
    )  # fmt: skip
    kept = [place for place in range(len(columns)) if place == len(kinds) or kinds[place] != kernel.SKIP]
    return columns[kept, :n].tolist(), stopped, heading.tolist(), [name.to_list() for name in names]


def parse_into(text, names):
    lines, nothing = np.frombuffer(text.encode(), dtype=np.uint8), np.empty(0, dtype=np.int64)
    cuts, kinds = np.array([(0, 0), (len(lines), 1)]), np.array([kernel.TEXT], dtype=np.int32)
    for name in names:
        columns = np.empty((1, 1), dtype=np.int64)
        kernel.parse(lines, cuts, lines[-1:], kinds, columns, nothing, [name], 0.0, 0.0, 0.0, False, 1)


def read(text, kinds, n_threads, *, block, **options):
    """The columns, or what was raised, of a reader that has so many threads and cuts wherever it can."""
    reader = ColumnReader([Field(f"c{k}", kind, "right") for k, kind in enumerate(kinds)], ",", **options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_columns, "resolve_n_threads", lambda n: n_threads)
        patch.setattr(_columns, "_PIECE_BYTES", 1)
        patch.setattr(_columns, "_BLOCK_BYTES", block)
        try:
            reader.read(BytesIO(text.encode()), "text")
        except FieldError as error:
            return str(error), error.index, error.text
        except ValueError as error:
            return str(error)
    columns = reader.columns()
    return [[column.ids, column.numbers.tolist()] if hasattr(column, "ids") else column.tolist() for column in columns]


# ---- invariants -----------------------------------------------------------------------------------------------------

plain = st.one_of(st.sampled_from(["1", "2", "30", "4.5", "0.1234567890123456789", ""]), st.text("ab:;é", max_size=3))
quoted = st.text('a1,"\n\r', max_size=6).map(lambda field: '"' + field.replace('"', '""') + '"')
records = st.lists(st.one_of(plain, quoted), min_size=1, max_size=3).map(",".join)
right = st.tuples(st.sampled_from(["a", "b", '"a"', '"c\nd,1,a"', '"\n"']), st.integers(0, 9)).map(
    "{0[0]},{0[1]},b".format
)
lines = st.one_of(
    right, right, right, records, st.sampled_from(["7:", "12:", "12:a", "", '"']), st.text('a1,":\r', max_size=5)
)
texts = st.tuples(st.lists(lines, min_size=1, max_size=12), st.sampled_from(["\n", "\r\n"])).map(
    lambda drawn: "".join(line + drawn[1] for line in drawn[0])
)


@given(texts, st.sampled_from(KINDS), st.booleans(), st.booleans(), st.data())
def test_any_cuts_give_what_one_piece_gives(text, kinds, headings, quotes, data):
    cuts = data.draw(st.lists(st.sampled_from(line_ends(text)), max_size=6))
    options = {
        "headings": headings,
        "quotes": quotes,
        "heading": data.draw(st.sampled_from([-1, 3])),
        "known": data.draw(st.lists(st.sampled_from(["b", "a", "x"]), max_size=2)),
    }
    one = parse(text, kinds, **options)
    assert parse(text, kinds, cuts, n_threads=data.draw(st.integers(1, 3)), **options) == one


@given(texts, st.sampled_from(KINDS), st.booleans(), st.integers(1, 60), st.integers(2, 5))
@example(QUOTED, PAIRS, False, 60, 2)
@example("7:\n1\n2\n3\n12:\n4\n5\nx\n", (kernel.NATURAL,), True, 60, 4)
def test_any_threads_read_what_one_reads(text, kinds, headings, block, n_threads):
    one = read(text, kinds, 1, block=block, quotes=True, headings=headings)
    assert read(text, kinds, n_threads, block=block, quotes=True, headings=headings) == one


def test_a_cut_within_a_quoted_field():
    cut = line_ends(QUOTED)[1]
    columns, stopped, _, names = parse(QUOTED[cut:], PAIRS)
    assert columns == [[0, 1, 2], [2, 3, 4]]  # so nothing but the piece before tells
    assert stopped[2] == kernel.DONE
    assert names == [[b"ghost", b'd"', b"c"]]
    columns, stopped, _, names = parse(QUOTED, PAIRS, [cut], n_threads=2)
    assert columns == [[0, 1, 2], [1, 3, 4]]
    assert stopped == [len(QUOTED), 5, kernel.DONE, -1, 0, 0]
    assert names == [[b"a", b"b\nghost,2\nd", b"c"]]


def test_a_quoted_field_over_several_pieces_and_an_error_below():
    text = 'a,1\n"b\nghost,2\ng,2\nd",3\nc,4\nc,x\n'
    columns, stopped, _, names = parse(text, PAIRS, line_ends(text), n_threads=3)
    assert columns == [[0, 1, 2], [1, 3, 4]]
    assert stopped == [text.index("c,x"), 6, kernel.BAD_FIELD, 1, text.index("x"), text.index("x") + 1]
    assert names == [[b"a", b"b\nghost,2\ng,2\nd", b"c"]]


def test_the_first_error_is_told_and_what_is_below_is_dropped():
    text = "a,1\nb,2\nc\nghost,3\nd,x\n"
    columns, stopped, _, names = parse(text, PAIRS, line_ends(text), n_threads=5)
    assert columns == [[0, 1], [1, 2]]
    assert stopped[:4] == [text.index("c"), 2, kernel.WRONG_COUNT, 1]
    assert names == [[b"a", b"b", b"c"]]


def test_names_are_numbered_as_they_appear():
    text = "b,1\na,1\nc,1\na,1\nd,1\nx,1\nb,1\n"
    columns, _, _, names = parse(text, PAIRS, line_ends(text)[1:6:2], known=["x", "c"], n_threads=4)
    assert names == [[b"x", b"c", b"b", b"a", b"d"]]
    assert columns[0] == [2, 3, 1, 3, 4, 0, 2]


def test_empty_text_has_no_number_in_any_piece():
    columns, _, _, names = parse("a\n\nb\n\na\n\n", (kernel.TEXT | kernel.OPTIONAL,), [3, 6], n_threads=3)
    nothing = np.iinfo(np.int64).min
    assert columns == [[0, nothing, 1, nothing, 0, nothing]]
    assert names == [[b"a", b"b"]]


def test_a_heading_above_several_pieces():
    text = "7:\n1\n2\n3\n8:\n9:\n4\n5\n"
    columns, stopped, heading, _ = parse(text, (kernel.NATURAL,), line_ends(text), headings=True, n_threads=3)
    assert columns == [[1, 2, 3, 4, 5], [7, 7, 7, 9, 9]]
    assert (stopped[1:3], heading) == ([8, kernel.DONE], [9])
    columns, *_ = parse(text[3:], (kernel.NATURAL,), line_ends(text[3:]), headings=True, heading=6, n_threads=3)
    assert columns == [[1, 2, 3, 4, 5], [6, 6, 6, 9, 9]]  # of the text before
    _, stopped, *_ = parse(text[3:], (kernel.NATURAL,), line_ends(text[3:]), headings=True, n_threads=3)
    assert stopped[:3] == [0, 0, kernel.NO_HEADING]


@given(st.lists(st.text("a,", max_size=30), min_size=1, max_size=40), st.integers(1, 9))
def test_pieces_are_whole_lines_of_about_the_same_size(lines, n_pieces):
    text = "".join(f"{line}\n" for line in lines).encode()
    cuts = np.full((n_pieces + 1, 2), -1)
    kernel.cut_lines(np.frombuffer(text, dtype=np.uint8), cuts)
    assert cuts[0].tolist() == [0, 0]
    assert cuts[-1].tolist() == [len(text), len(lines)]
    longest = max(map(len, lines)) + 1
    for k, (place, n_lines) in enumerate(cuts[1:-1].tolist(), 1):
        assert text[place - 1 : place] == b"\n"
        assert 0 < place - len(text) * k // n_pieces <= longest
        assert n_lines == text.count(b"\n", 0, place)


def test_lines_are_counted_in_a_piece_of_any_length():
    for n in (1, 254, 255, 256, 510, 511, 70_000):
        for text in (b"\n" * n, b"a" * n + b"\n"):
            cuts = np.empty((2, 2), dtype=np.int64)
            kernel.cut_lines(np.frombuffer(text, dtype=np.uint8), cuts)
            assert cuts.tolist() == [[0, 0], [len(text), text.count(b"\n")]]


@pytest.mark.parametrize(
    ("n_threads", "n_bytes", "n_pieces"), [(1, 1 << 20, 1), (3, 1 << 20, 3), (3, 1 << 17, 2), (3, 9, 1)]
)
def test_there_is_a_piece_for_each_thread_that_has_enough_to_do(monkeypatch, n_threads, n_bytes, n_pieces):
    seen = []

    def parse(text, cuts, *rest):
        seen.append((len(cuts) - 1, rest[-1]))
        return kernel_parse(text, cuts, *rest)

    kernel_parse = kernel.parse
    monkeypatch.setattr(kernel, "parse", parse)
    monkeypatch.setattr(_columns, "resolve_n_threads", {0: n_threads}.get)  # all that the process may use
    ColumnReader([Field("c", kernel.NATURAL, "right")], ",").read(BytesIO(b"12345678\n" * (n_bytes // 9 + 1)), "text")
    assert seen == [(n_pieces, n_pieces)]


# ---- threads --------------------------------------------------------------------------------------------------------


def test_many_lines_of_every_kind_do_not_depend_on_threads():
    days = [f"20{k % 90 + 10}-01-0{k % 9 + 1}T10:00" for k in range(60_000)]
    # Decimals of more digits than fit in 53 bits; below the least double a thread of OpenMP's asks Python.
    decimals = [f"{k}.{k**5}" if k % 100 else f"{k + 1}e-400" for k in range(len(days))]
    lines = zip(decimals, days, strict=True)
    text = "".join(
        f'u{k * 7919 % 9973},{decimal},{k % 5 or ""},{day},"a ""{k % 7}"\n' for k, (decimal, day) in enumerate(lines)
    )
    kinds = (kernel.TEXT, kernel.DECIMAL, kernel.NATURAL | kernel.OPTIONAL, kernel.ISO, kernel.TEXT)
    one = parse(text, kinds)
    assert one[1][:3] == [len(text), len(days), kernel.DONE]
    ends = line_ends(text)
    for n_threads in (2, 4):
        cuts = [ends[len(ends) * k // n_threads] for k in range(1, n_threads)]
        assert parse(text, kinds, cuts, n_threads=n_threads) == one
    assert np.array(one[0][1]).view(np.float64).tolist() == list(map(float, decimals))
