"""Tests of bytes of text files: their first bytes, not their names, decide compression, encoding and refusal."""

import bz2
import gzip
import io
import lzma
import zipfile

import pytest
import zstandard

from fastfedrec.datasets import load_adjacency, load_table, store_table

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
