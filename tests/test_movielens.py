import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from naive import movielens as naive

from fastfedrec.datasets import load_movielens
from fastfedrec.datasets.movielens import _is_well_formed
from fastfedrec.interactions import MISSING_TIMESTAMP


def flags(*positions):
    return "|".join("1" if i in positions else "0" for i in range(19))


FILES_100K = {
    "u.data": "7\t3\t5\t881250949\n2\t1\t1\t0\n7\t1\t3\t891717742\n",
    "u.user": "1|24|M|technician|85711\n2|53|F|other|94043\n7|23|M|writer|V3N4P\n",
    "u.item": (
        f"1|Misérables, Les (1995)|01-Jan-1995||http://x/1|{flags(8, 12)}\n"
        f"2|Nobody rated this (1990)|01-Jan-1990||http://x/2|{flags(1)}\n"
        f"3|unknown||||{flags(0)}\n"
    ),
}
FILES_1M = {
    "ratings.dat": "2::30::4::978300760\n1::30::2::0\n1::5::5::978302109\n",
    "users.dat": "1::F::1::10::48067\n2::M::56::16::70072-1234\n3::M::25::15::55117\n",
    "movies.dat": "5::Élisa: a film (1995)::Drama\n30::Heat (1995)::Action|Crime|Thriller\n31::Unrated (2000)::War\n",
}
BOTH = pytest.mark.parametrize("files", [FILES_100K, FILES_1M], ids=["100k", "1m"])


def write_folder(folder, files, **changes):
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in (files | changes).items():
        if text is not None:
            (folder / name).write_bytes(text.encode("latin-1"))
    return folder


def write_zip(path, files, top="", compression=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, text in files.items():
            archive.writestr(top + name, text.encode("latin-1"))
    return path


def assert_same(a, b):
    assert (a.user_ids == b.user_ids).all()
    assert (a.item_ids == b.item_ids).all()
    assert (a.to_scipy() != b.to_scipy()).nnz == 0
    assert (a.timestamps == b.timestamps).all()
    for one, other in ((a.user_features, b.user_features), (a.item_features, b.item_features)):
        assert {k: v.tolist() for k, v in one.items()} == {k: v.tolist() for k, v in other.items()}


# ---- oracle ---------------------------------------------------------------------------------------------------------


@BOTH
def test_equals_the_line_by_line_twin(tmp_path, files):
    ratings, separator = ("u.data", "\t") if "u.data" in files else ("ratings.dat", "::")
    data = load_movielens(write_folder(tmp_path, files))
    expected = naive.read_ratings(files[ratings], separator)
    got = {}
    for row, user in enumerate(data.user_ids):
        for j in range(data.indptr[row], data.indptr[row + 1]):
            time = data.timestamps[j]
            got[user, data.item_ids[data.indices[j]]] = (data.values[j], 0 if time == MISSING_TIMESTAMP else time)
    assert got == expected
    assert data.values.dtype == np.float32
    assert (data.timestamps == MISSING_TIMESTAMP).sum() == 1


def test_features_of_100k(tmp_path):
    data = load_movielens(write_folder(tmp_path, FILES_100K))
    assert data.user_ids.tolist() == [2, 7]
    assert data.item_ids.tolist() == [1, 3]
    assert {k: v.tolist() for k, v in data.user_features.items()} == {
        "age": [53, 23],
        "gender": ["F", "M"],
        "occupation": ["other", "writer"],
        "zip_code": ["94043", "V3N4P"],
    }
    assert {k: v.tolist() for k, v in data.item_features.items()} == {
        "title": ["Misérables, Les (1995)", "unknown"],
        "release_date": ["01-Jan-1995", ""],
        "genres": [("Drama", "Musical"), ("unknown",)],
    }


def test_features_of_1m(tmp_path):
    data = load_movielens(write_folder(tmp_path, FILES_1M))
    assert data.user_ids.tolist() == [1, 2]
    assert data.item_ids.tolist() == [5, 30]
    assert {k: v.tolist() for k, v in data.user_features.items()} == {
        "age": [1, 56],
        "gender": ["F", "M"],
        "occupation": [10, 16],
        "zip_code": ["48067", "70072-1234"],
    }
    assert {k: v.tolist() for k, v in data.item_features.items()} == {
        "title": ["Élisa: a film (1995)", "Heat (1995)"],
        "genres": [("Drama",), ("Action", "Crime", "Thriller")],
    }


# ---- invariants -----------------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("form", ["parent", "zip", "zip with a top folder", "stored zip", "windows line ends"])
def test_every_form_reads_the_same(tmp_path, files, form):
    reference = load_movielens(write_folder(tmp_path / "outer" / "ml", files))
    if form == "parent":
        path = tmp_path / "outer"
    elif form == "windows line ends":
        path = write_folder(tmp_path / "crlf", {name: text.replace("\n", "\r\n") for name, text in files.items()})
    else:
        stored = zipfile.ZIP_STORED if form == "stored zip" else zipfile.ZIP_DEFLATED
        path = write_zip(tmp_path / "ml.zip", files, "ml-x/" if "top" in form else "", stored)
    assert_same(load_movielens(str(path)), reference)


@BOTH
def test_a_missing_last_line_end_loses_nothing(tmp_path, files):
    reference = load_movielens(write_folder(tmp_path / "a", files))
    cut = {name: text[:-1] for name, text in files.items()}
    assert_same(load_movielens(write_folder(tmp_path / "b", cut)), reference)


@given(st.text(alphabet="0159:\t\n -", max_size=60), st.sampled_from(["\t", "::"]))
def test_the_bulk_check_accepts_exactly_what_the_line_scan_would(text, separator):
    lines = (text + "\n").split("\n")[:-1]
    fields = [line.split(separator) for line in lines]
    wanted = all(len(f) == 4 and all(x.isascii() and x.isdigit() and len(x) <= 18 for x in f) for f in fields)
    assert _is_well_formed((text + "\n").encode(), separator.encode()) == wanted


@pytest.mark.parametrize(
    ("name", "n_users", "n_items", "histogram"),
    [
        ("ml-100k.zip", 943, 1682, [6110, 11370, 27145, 34174, 21201]),
        ("ml-1m.zip", 6040, 3706, [56174, 107557, 261197, 348971, 226310]),
    ],
)
def test_counts_of_the_real_data(data_path, name, n_users, n_items, histogram):
    data = load_movielens(data_path(name))
    assert data.shape == (n_users, n_items)
    assert np.bincount(data.values.astype(int), minlength=6)[1:].tolist() == histogram
    assert data.interactions_per_user().min() == 20
    assert set(data.user_features["gender"]) == {"F", "M"}
    assert data.item_features["title"][0] == "Toy Story (1995)"
    assert set(data.item_features["genres"][0]) == {"Animation", "Children's", "Comedy"}
    if n_users == 6040:
        assert (data.timestamps != MISSING_TIMESTAMP).sum() == 399_984


# ---- bad inputs -----------------------------------------------------------------------------------------------------


def test_path_that_does_not_exist(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nothing.zip' does not exist; pass the MovieLens zip"):
        load_movielens(tmp_path / "nothing.zip")


def test_unknown_layout(tmp_path):
    (tmp_path / "ratings.csv").write_text("userId,movieId\n")
    with pytest.raises(ValueError, match=r"must hold one of u\.data or ratings\.dat, got neither"):
        load_movielens(tmp_path)


def test_two_data_sets_in_one_folder(tmp_path):
    write_folder(tmp_path / "a", FILES_100K)
    write_folder(tmp_path / "b", FILES_1M)
    with pytest.raises(ValueError, match=r"got 2 of them: a/u\.data, b/ratings\.dat; pass one folder"):
        load_movielens(tmp_path)


@pytest.mark.parametrize("member", ["u.user", "u.item", "users.dat", "movies.dat"])
@pytest.mark.parametrize("zipped", [False, True])
def test_missing_member(tmp_path, member, zipped):
    files = {k: v for k, v in (FILES_100K if member in FILES_100K else FILES_1M).items() if k != member}
    path = write_zip(tmp_path / "x.zip", files) if zipped else write_folder(tmp_path / "x", files)
    with pytest.raises(FileNotFoundError, match=rf"{member} is missing"):
        load_movielens(path)


def test_file_that_is_no_zip(tmp_path):
    (tmp_path / "x.zip").write_bytes(b"not a zip")
    with pytest.raises(ValueError, match=r"x\.zip' is no readable zip .*download it again"):
        load_movielens(tmp_path / "x.zip")


def test_truncated_zip(tmp_path):
    path = write_zip(tmp_path / "x.zip", FILES_1M)
    path.write_bytes(path.read_bytes()[:-60])
    with pytest.raises(ValueError, match="no readable zip"):
        load_movielens(path)


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_damaged_zip(tmp_path, compression):
    path = write_zip(tmp_path / "x.zip", FILES_1M, compression=compression)
    data = bytearray(path.read_bytes())
    start = data.find(b"ratings.dat") + len("ratings.dat")
    data[start + 2 : start + 8] = b"\xff" * 6
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"x\.zip: ratings\.dat cannot be unpacked .*download the zip again"):
        load_movielens(path)


RATING_ERRORS = [
    ("1::5::5", "line 2: expected 4 fields .*got 3: '1::5::5'"),
    ("1::5::5::0::0", "line 2: expected 4 fields .*got 5"),
    ("1\t5\t5\t0", "line 2: expected 4 fields .*got 1"),
    ("", "line 2: expected 4 fields .*got 1"),
    ("one::5::5::0", "line 2: user must be a whole number, got 'one'"),
    ("1::::5::0", "line 2: item must be a whole number, got ''"),
    ("1::-5::5::0", "line 2: item must be a whole number, got '-5'"),
    ("1::5::5::12345678901234567890", "line 2: timestamp must be a whole number, got '12345678901234567890'"),
    ("1::5::0::0", "line 2: rating must be an integer from 1 to 5, got '0'"),
    ("1::5::6::0", "line 2: rating must be an integer from 1 to 5, got '6'"),
    ("1::5::4.5::0", "line 2: rating must be an integer from 1 to 5, got '4.5'"),
    ("1::5::nan::0", "line 2: rating must be an integer from 1 to 5, got 'nan'"),
    ("2::30::1::9", r"line 2: user 2 rates item 30 a second time \(first in line 1\)"),
    ("9::30::1::9", r"line 2: user 9 has no row in users\.dat"),
    ("1::9::1::9", r"line 2: item 9 has no row in movies\.dat"),
]


@pytest.mark.parametrize(("line", "message"), RATING_ERRORS)
@pytest.mark.parametrize("zipped", [False, True])
def test_malformed_ratings(tmp_path, line, message, zipped):
    files = FILES_1M | {"ratings.dat": f"2::30::4::978300760\n{line}\n1::5::5::978302109\n"}
    path = write_zip(tmp_path / "x.zip", files) if zipped else write_folder(tmp_path / "x", files)
    with pytest.raises(ValueError, match=rf"ratings\.dat, {message}"):
        load_movielens(path)


def test_malformed_ratings_of_100k(tmp_path):
    with pytest.raises(ValueError, match=r"u\.data, line 1: expected 4 fields .*'\\t', got 1"):
        load_movielens(write_folder(tmp_path, FILES_100K, **{"u.data": "1::5::5::0\n"}))


def test_empty_ratings(tmp_path):
    with pytest.raises(ValueError, match=r"ratings\.dat, line 1: the file is empty"):
        load_movielens(write_folder(tmp_path, FILES_1M, **{"ratings.dat": ""}))


@pytest.mark.parametrize(
    ("files", "member", "line", "message"),
    [
        (FILES_1M, "users.dat", "4::M::25::15", "line 4: expected 5 fields separated by '::', got 4"),
        (FILES_1M, "users.dat", "x::M::25::15::1", "line 4: user id must be a whole number, got 'x'"),
        (FILES_1M, "users.dat", "4::M::old::15::1", "line 4: age must be a whole number, got 'old'"),
        (FILES_1M, "users.dat", "4::M::25::writer::1", "line 4: occupation must be a whole number, got 'writer'"),
        (FILES_1M, "users.dat", "2::M::25::15::1", "line 4: user 2 has a second row"),
        (FILES_1M, "movies.dat", "30::Again (1999)::War", "line 4: item 30 has a second row"),
        (FILES_1M, "movies.dat", "9|Bar (1999)|War", "line 4: expected 3 fields separated by '::', got 1"),
        (FILES_100K, "u.user", "8|x|M|writer|1", "line 4: age must be a whole number, got 'x'"),
        (FILES_100K, "u.item", "8|Short|||", "line 4: expected 24 fields separated by '|', got 5"),
        (FILES_100K, "u.item", f"8|Two||||2{flags()[1:]}", "line 4: every genre flag must be 0 or 1"),
    ],
)
def test_malformed_features(tmp_path, files, member, line, message):
    path = write_folder(tmp_path, files, **{member: files[member] + line + "\n"})
    with pytest.raises(ValueError, match=rf"{member}, {message.replace('|', '[|]')}"):
        load_movielens(path)
