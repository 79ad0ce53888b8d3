"""Tests of bytes of text files: their first bytes, not their names, decide compression, encoding and refusal."""

import bz2
import gzip
import io
import lzma
import tempfile
import zipfile

import pytest
import zstandard

from fastfedrec.core import npz
from fastfedrec.datasets import _streams, load_adjacency, load_item_features, load_table, store_table
from fastfedrec.datasets.files import Files

TABLE = "user,item\nb\u00e9,2\na,1\n"


def write(folder, data, name="plays"):
    path = folder / name
    path.write_bytes(data)
    return path


def zipped(text):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("plays.csv", text)
    return packed.getvalue()


# ---- oracle ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["utf-8-sig", "latin-1", "utf-16", "utf-32", "utf-16-be", "utf-32-be"])
@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstandard.compress])
@pytest.mark.parametrize("name", ["plays", "plays.csv", "plays.zip"])
def test_the_content_decides_how_a_file_is_read(tmp_path, encoding, pack, name):
    mark = "\ufeff" if encoding.endswith("be") else ""
    data = load_table(write(tmp_path, pack((mark + TABLE).encode(encoding)), name))
    assert (data.user_ids.tolist(), data.item_ids.tolist()) == (["a", "b\u00e9"], [1, 2])
    lists = (mark + "b\u00e9 2\na 1\n").encode(encoding)
    assert load_adjacency(write(tmp_path, pack(lists), name)).user_ids.tolist() == ["a", "b\u00e9"]


@pytest.mark.parametrize("line", ["sep=;", '"sep=;"', "SEP=;"])
@pytest.mark.parametrize("header", [True, False])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_the_separator_that_a_spreadsheet_states_is_no_row(tmp_path, line, header, end):
    rows = end.join([line, *["user;item"] * header, "a,b;7", ""])
    path, columns = write(tmp_path, rows.encode()), {} if header else {"user": 0, "item": 1}
    data = load_table(path, header=header, **columns)
    assert (data.user_ids.tolist(), data.item_ids.tolist()) == (["a,b"], [7])
    assert store_table(path, tmp_path / "stored", header=header, **columns).user_ids.tolist() == ["a,b"]


# ---- untrusted sizes ------------------------------------------------------------------------------------------------

ROWS = "user,item\n" + "a,b\n" * 5_000
LISTS = "0 4\n" * 5_000
LOADERS = {
    "table": (load_table, ROWS),
    "stored table": (lambda path: store_table(path, tempfile.mkdtemp(dir=path.parent) + "/stored"), ROWS),
    "lists": (load_adjacency, LISTS),
    "item features": (load_item_features, "item,size\n" + "b,1\n" * 5_000),
}


@pytest.mark.filterwarnings("ignore::UserWarning")  # of repeated pairs
@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
@pytest.mark.parametrize("loader", LOADERS)
def test_a_compressed_file_may_not_expand_beyond_the_limit_for_its_size(tmp_path, monkeypatch, loader, pack):
    load, text = LOADERS[loader]
    path = write(tmp_path, pack(text.encode()), "plays.csv")
    monkeypatch.setattr(npz, "MIN_CONTENT_BYTES", 0)
    limit = npz.largest_content(path.stat().st_size)
    assert limit < len(text)
    with pytest.raises(
        ValueError, match=rf"plays\.csv unpacks to more than {limit:,} bytes, .*; unpack it first if you"
    ):
        load(path)
    # The controls: the same text with a higher limit, and unpacked, has the outcome of a file of this content.
    outcomes = []
    monkeypatch.setattr(npz, "MIN_CONTENT_BYTES", len(text))
    for content in (path.read_bytes(), text.encode()):
        try:
            outcomes.append(repr(load(write(tmp_path, content, "plays.csv"))))
        except ValueError as error:
            outcomes.append(str(error))
    assert outcomes[0] == outcomes[1]
    assert "unpack" not in outcomes[0]


def test_a_zip_may_not_expand_beyond_the_limit_for_its_size(tmp_path, monkeypatch):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("ml-100k/u.data", "1\t2\t3\t4\n" * 10_000)
    path = write(tmp_path, out.getvalue(), "ml-100k.zip")
    monkeypatch.setattr(npz, "MIN_CONTENT_BYTES", 0)
    with pytest.raises(
        ValueError, match=r"unpacks to 80,000 bytes, .* limit of [\d,]+ bytes for a zip of its size; unpack"
    ):
        Files(path, "zip of MovieLens")
    monkeypatch.undo()
    assert [str(member) for member in Files(path, "zip of MovieLens").members] == ["ml-100k/u.data"]


def expanded_at_once():
    """Return the largest number of bytes of one step of unpacking 128 MiB of zeros."""
    packer = zstandard.ZstdCompressor().compressobj()
    packed = b"".join(packer.compress(bytes(2**20)) for _ in range(128)) + packer.flush()
    with _streams._open_zst(io.BytesIO(packed)) as stream:
        return len(stream.read(1))


def test_zstandard_expands_in_small_steps(monkeypatch):
    assert expanded_at_once() <= 2**25
    monkeypatch.setattr(_streams, "_PACKED_BYTES", 1 << 16)
    assert expanded_at_once() > 2**25  # the control


# ---- bad inputs -----------------------------------------------------------------------------------------------------


def test_lines_below_a_stated_separator_are_counted(tmp_path):
    with pytest.raises(ValueError, match="line 4: expected 2 fields"):
        load_table(write(tmp_path, b"sep=;\nuser;item\na;b\nc\n"))


@pytest.mark.parametrize(
    ("pack", "message"),
    [
        (zipped, "plays is not text, but a zip; unpack it first"),
        (lambda text: bz2.compress(text.encode()), "plays is not text, but bzip2"),
        (lambda text: lzma.compress(text.encode()), "plays is not text, but xz"),
        (lambda text: gzip.compress(zipped(text)), "plays is not text, but a zip"),
        (lambda text: text.encode("utf-16-le"), "plays, line 1: text must not contain the byte 0; convert"),
    ],
)
def test_files_other_than_text_are_named(tmp_path, pack, message):
    path = write(tmp_path, pack(TABLE))
    for load in (load_table, load_adjacency):
        with pytest.raises(ValueError, match=message):
            load(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"user_id": "a", "business_id": "b", "stars": 5}\n', "line 1: the file is JSON; read it with pandas"),
        ('[{"user": "a", "item": "b"}]\n', "line 1: the file is JSON"),
        ("\nuser,item\na,b\n", "line 1: the line must not be blank; remove"),
        ("sep=;\n\nuser;item\na;b\n", "line 2: the line must not be blank; remove"),
        ("sep=;\n", "line 2: the file is empty"),
    ],
)
def test_lines_above_a_table_are_named(tmp_path, text, message):
    with pytest.raises(ValueError, match=f"plays, {message}"):
        load_table(write(tmp_path, text.encode()))


@pytest.mark.parametrize("ids", [("a", "c"), ("1", "3")])
def test_a_file_put_behind_another_gives_no_id_with_its_mark(tmp_path, ids):
    first, second = ids
    text = f"user,item\n{first},7\n\ufeff{second},7\n"
    with pytest.raises(ValueError, match=rf"plays, line 3: user must be an id, got '\\ufeff{second}'"):
        load_table(write(tmp_path, text.encode()))
    notes = f'user,item,note\n{first},7,"x\n\ufeffy"\n'  # in a column that is not read it is no matter
    assert load_table(write(tmp_path, notes.encode())).n_interactions == 1


@pytest.mark.parametrize("path", [None, 3, ""])
def test_paths(path):
    for load in (load_table, load_adjacency):
        with pytest.raises((TypeError, ValueError), match=r"path must be (a|the) path"):
            load(path)


def test_paths_may_be_bytes(tmp_path):
    assert load_table(bytes(write(tmp_path, TABLE.encode()))).n_interactions == 2


@pytest.mark.parametrize("columns", [{}, {"user": "who", "item": "what"}])
@pytest.mark.parametrize("header", ["a" * 10**6, ",".join(map(str, range(10**5)))])
def test_a_message_is_short_for_any_header(tmp_path, header, columns):
    with pytest.raises(KeyError) as caught:
        load_table(write(tmp_path, f"{header}\n1\n".encode()), **columns)
    assert len(str(caught.value)) < 1000 + len(str(tmp_path))
