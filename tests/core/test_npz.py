"""Archives of arrays: read as NumPy reads them, and never more of them than a file of its size may hold."""

import io
import struct
import tracemalloc
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from fastfedrec.core.npz import MIN_CONTENT_BYTES, Archive, largest_content, write_archive


def opened(path, content):
    path.write_bytes(content)
    return open(path, "rb")


def member(text, body=b"", version=b"\x01\x00"):
    header = text.encode()
    return b"\x93NUMPY" + version + len(header).to_bytes(2, "little") + header + body


def header_of(descr="'<i4'", shape="(2,)", fortran="False"):
    return f"{{'descr': {descr}, 'fortran_order': {fortran}, 'shape': {shape}, }}\n"


def archive_of(members, compression=zipfile.ZIP_DEFLATED):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return out.getvalue()


# ---- oracle: NumPy --------------------------------------------------------------------------------------------------

ARRAYS = npst.arrays(
    dtype=st.one_of(
        npst.integer_dtypes(endianness="?"), npst.floating_dtypes(endianness="?"), npst.boolean_dtypes(),
        npst.unicode_string_dtypes(endianness="?"), npst.datetime64_dtypes(endianness="?"),
    ),
    shape=npst.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
)  # fmt: skip


@given(array=ARRAYS, fortran=st.booleans(), ours=st.booleans())
def test_arrays_come_back_as_numpy_has_them(array, fortran, ours, tmp_path_factory):
    array = np.asfortranarray(array) if fortran and array.ndim else array
    path = tmp_path_factory.getbasetemp() / "arrays.npz"
    with open(path, "wb") as file:
        write_archive(file, {"a.b": array}) if ours else np.savez(file, **{"a.b": array})
    with open(path, "rb") as file:
        read = Archive(file).read("a.b")
    assert read.dtype == array.dtype.newbyteorder("=")
    assert read.dtype.isnative
    assert read.flags.c_contiguous
    np.testing.assert_array_equal(read, array)
    with np.load(path, allow_pickle=False) as file:
        np.testing.assert_array_equal(file["a.b"], array)


def test_what_is_written_is_never_above_what_is_read(tmp_path):
    zeros = np.zeros(MIN_CONTENT_BYTES // 8 + 10**6)  # a thousandth of itself when it is packed
    with open(tmp_path / "zeros", "wb") as file:
        write_archive(file, {"zeros": zeros})
    with open(tmp_path / "zeros", "rb") as file:
        assert Archive(file).read("zeros").shape == zeros.shape
    few = np.zeros(10**6)
    with open(tmp_path / "few", "wb") as file:
        write_archive(file, {"few": few})
    assert (tmp_path / "few").stat().st_size < 10**5


# ---- what is refused ------------------------------------------------------------------------------------------------


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("a.npy", "w") as stream:
        stream.write(member(header_of("'<f8'", f"({1470 * 2**17},)")))
        for _ in range(1470):
            stream.write(bytes(2**20))
    assert len(out.getvalue()) < 1.6e6
    tracemalloc.start()
    with opened(tmp_path / "bomb", out.getvalue()) as file, pytest.raises(ValueError, match="would unpack to 15414"):
        Archive(file)
    assert tracemalloc.get_traced_memory()[1] < 10**7
    tracemalloc.stop()
    # The directory states a smaller size than the member has.
    size = struct.pack("<L", 1470 * 2**20 + len(member(header_of("'<f8'", f"({1470 * 2**17},)"))))
    lying = out.getvalue().replace(size, struct.pack("<L", 256))
    with opened(tmp_path / "lying", lying) as file, pytest.raises(ValueError, match="a cannot be read"):
        Archive(file).read("a")


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([("a.npy", member(header_of(), b"12345678")), ("a.npy", member(header_of(), b"12345678"))], "'a.npy' twice"),
        ([("a.txt", b"hello")], "'a.txt' is no array"),
        ([("../../a.txt", b"hello")], "is no array"),
    ],
)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_directories_that_are_refused(members, message, tmp_path):
    with opened(tmp_path / "x", archive_of(members)) as file, pytest.raises(ValueError, match=message):
        Archive(file)


@pytest.mark.parametrize("compression", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_other_ways_of_packing_are_refused(compression, tmp_path):
    content = archive_of([("a.npy", member(header_of(), b"12345678"))], compression)
    with opened(tmp_path / "x", content) as file, pytest.raises(ValueError, match="packed in a way"):
        Archive(file)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (member(header_of(), b"1234567"), "does not have .* bytes"),
        (member(header_of(), b"123456789"), "does not have .* bytes"),
        (member(header_of(shape="(10**30,)"), b"12345678"), "cannot be read"),
        (member(header_of(shape="(1000000000000000000000000000000,)"), b"12345678"), "does not have .* bytes"),
        (member(header_of(shape="(-2,)"), b"12345678"), "shape is"),
        (member(header_of(shape="(2, 0, 1000000000000)"), b"12345678"), "does not have .* bytes"),
        (member(header_of("'<U0'", "(1000000000000,)")), "does not have .* bytes"),
        (member(header_of("'|O'"), b"1234567812345678"), "cannot be read"),
        (member(header_of("[('a', '<i4'), ('b', '|O')]", "(1,)"), b"123456781234"), "cannot be read"),
        (member(header_of("[('a', '<i4')]"), b"12345678"), "only numbers, strings and dates"),
        (member(header_of("'|V4'"), b"12345678"), "only numbers, strings and dates"),
        (member(header_of("'<c16'", "(1,)"), b"1234567812345678"), "only numbers, strings and dates"),
        (member("__import__('os').system('true')", b"12345678"), "cannot be read"),
        (member("(" * 5000, b"12345678"), "cannot be read"),
        (member(header_of(), b"12345678", b"\x03\x00"), "does not begin as an array does"),
        (b"\x80\x04\x95", "does not begin as an array does"),
        (b"", "does not begin as an array does"),
        (member(header_of("'|b1'"), b"\x00\x07"), "neither true nor false"),
        (member(header_of("'<U1'"), b"\xff\xff\xff\xff" * 2), "not Unicode characters"),
    ],
)  # fmt: skip
def test_members_that_are_refused(content, message, tmp_path):
    with opened(tmp_path / "x", archive_of([("a.npy", content)])) as file:
        archive = Archive(file)
        with pytest.raises(ValueError, match=message) as raised:
            archive.read("a")
    assert "allow_pickle" not in str(raised.value)


def test_bytes_that_were_changed_are_noticed(tmp_path):
    content = archive_of([("a.npy", member(header_of(), b"12345678"))], zipfile.ZIP_STORED)
    with opened(tmp_path / "x", content.replace(b"12345678", b"12345679")) as file:
        archive = Archive(file)
        with pytest.raises(ValueError, match="Bad CRC"):
            archive.read("a")


def test_many_members_are_refused(tmp_path):
    content = archive_of([(f"{n}.npy", b"") for n in range(10_001)], zipfile.ZIP_STORED)
    with opened(tmp_path / "x", content) as file, pytest.raises(ValueError, match="10001 members"):
        Archive(file)


def test_the_limit_is_stated():
    assert largest_content(1_500_000) == 2**26 + 150_000_000
