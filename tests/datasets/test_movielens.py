import itertools
import re
import zipfile

import numpy as np
import pytest
from naive.datasets import movielens as naive
from support.interaction_case import assert_same, table_of

from fastfedrec import Interactions
from fastfedrec.cli.main import main
from fastfedrec.data.interactions import MISSING_TIMESTAMP
from fastfedrec.data.item_features import ItemFeatures
from fastfedrec.datasets import load_movielens, load_movielens_items, movielens, zip_regions


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
FILES_10M = {
    "ratings.dat": "2::30::4.5::978300760\n1::30::0.5::0\n1::5::5::978302109\n",
    "movies.dat": "5::Misérables, Les (1995)::Drama|War\n30::Pull My Daisy (1958)::(no genres listed)\n",
    "tags.dat": "2::30::so good::1215184630\n",
}
FILES_CSV = {
    "ratings.csv": "userId,movieId,rating,timestamp\n1,30,0.5,0\n1,5,5.0,978302109\n2,30,4.5,978300760\n",
    "movies.csv": (
        'movieId,title,genres\n5,"Misérables, Les (1995)",Drama|War\n6,Unrated (2000),War\n'
        '30,"""Daisy"" (1958)",(no genres listed)\n'
    ),
    "tags.csv": "userId,movieId,tag,timestamp\n1,30,beat,1215184630\n",
    "links.csv": "movieId,imdbId,tmdbId\n5,0113189,710\n30,0052100,\n",
    "genome-tags.csv": "tagId,tag\n1,007\n",
    "genome-scores.csv": "movieId,tagId,relevance\n5,1,0.029\n",
}
LAYOUTS = {"100k": FILES_100K, "1m": FILES_1M, "10m": FILES_10M, "csv": FILES_CSV}
ALL = pytest.mark.parametrize("layout", LAYOUTS)


def encoding(files):
    return "latin-1" if files.keys() & {"u.data", "users.dat"} else "utf-8"


def write_folder(folder, files, **changes):
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in (files | changes).items():
        if text is not None:
            (folder / name).write_bytes(text.encode(encoding(files)))
    return folder


def write_zip(path, files, top="", compression=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, text in files.items():
            archive.writestr(top + name, text.encode(encoding(files)))
    return path


@pytest.fixture(params=["folder", "zip"])
def put(request, tmp_path):
    """Writes the files of a data set to a folder, or into a zip."""
    if request.param == "zip":
        return lambda files: write_zip(tmp_path / "x.zip", files)
    return lambda files: write_folder(tmp_path / "x", files)


# ---- oracle ---------------------------------------------------------------------------------------------------------


@ALL
def test_equals_the_line_by_line_twin(tmp_path, layout):
    files = LAYOUTS[layout]
    data = load_movielens(write_folder(tmp_path, files))
    name, separator = {"100k": ("u.data", "\t"), "csv": ("ratings.csv", ",")}.get(layout, ("ratings.dat", "::"))
    expected = naive.read_ratings(files[name], separator, has_header=layout == "csv")
    got = {}
    for row, user in enumerate(data.user_ids):
        for j in range(data.indptr[row], data.indptr[row + 1]):
            time = data.timestamps[j]
            got[user, data.item_ids[data.indices[j]]] = (data.values[j], 0 if time == MISSING_TIMESTAMP else time)
    assert got == expected
    assert data.values.dtype == np.float32
    assert data.user_ids.dtype == data.item_ids.dtype == np.int64
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


@pytest.mark.parametrize(("layout", "title"), [("10m", "Pull My Daisy (1958)"), ("csv", '"Daisy" (1958)')])
def test_features_of_the_later_sets(tmp_path, layout, title):
    data = load_movielens(write_folder(tmp_path, LAYOUTS[layout]))
    assert data.user_features == {}
    assert data.item_ids.tolist() == [5, 30]
    assert {k: v.tolist() for k, v in data.item_features.items()} == {
        "title": ["Misérables, Les (1995)", title],
        "genres": [("Drama", "War"), ()],
    }


# ---- invariants -----------------------------------------------------------------------------------------------------


@ALL
@pytest.mark.parametrize(
    "form", ["parent", "zip", "zip with a top folder", "stored zip", "windows line ends", "byte order mark"]
)
def test_every_form_reads_the_same(tmp_path, layout, form):
    files = LAYOUTS[layout]
    reference = load_movielens(write_folder(tmp_path / "outer" / "ml", files))
    if form == "parent":
        path = tmp_path / "outer"
    elif form == "windows line ends":
        path = write_folder(tmp_path / "crlf", {name: text.replace("\n", "\r\n") for name, text in files.items()})
    elif form == "byte order mark":
        path = write_folder(tmp_path / "mark", files)
        for file in path.iterdir():
            if encoding(files) == "utf-8":
                file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    else:
        stored = zipfile.ZIP_STORED if form == "stored zip" else zipfile.ZIP_DEFLATED
        path = write_zip(tmp_path / "ml.zip", files, "ml-x/" if "top" in form else "", stored)
    assert_same(load_movielens(str(path)), reference)


@ALL
def test_a_missing_last_line_end_loses_no_rating(tmp_path, layout):
    reference = load_movielens(write_folder(tmp_path / "a", LAYOUTS[layout]))
    cut = {name: text[:-1] for name, text in LAYOUTS[layout].items()}
    assert_same(load_movielens(write_folder(tmp_path / "b", cut)), reference)


def test_10m_and_csv_of_the_same_ratings_are_the_same(tmp_path):
    one = load_movielens(write_folder(tmp_path / "a", FILES_10M))
    other = load_movielens(write_folder(tmp_path / "b", FILES_CSV))
    assert (one.to_scipy() != other.to_scipy()).nnz == 0
    assert (one.timestamps == other.timestamps).all()


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


@ALL
def test_data_of_movies_as_item_features(tmp_path, layout):
    folder = write_folder(tmp_path, LAYOUTS[layout])
    movies, data = load_movielens_items(folder), load_movielens(folder, item_ids="published")
    assert list(movies) == ["item", "genres", "year"]
    assert movies["item"].tolist() == data.item_ids.tolist()
    assert movies["genres"].tolist() == data.item_features["genres"].tolist()
    years = [re.search(r"\((\d{4})\)$", title) for title in data.item_features["title"].tolist()]
    assert movies["year"].tolist() == [None if year is None else int(year[1]) for year in years]
    assert any(years)


@pytest.mark.parametrize(
    ("title", "date", "year"),
    [
        ("Heat (1995)", "", 1995),
        ("Heat (1995) ", "", 1995),
        ("Rome (2005-2007)", "", 2005),
        ("Rome (2005\u2013 )", "", 2005),
        ("Rome (2005-)", "01-Jan-1999", 2005),
        ("2001: A Space Odyssey (1968)", "", 1968),
        ("Heat (1995) (uncut)", "", None),
        ("unknown", "", None),
        ("unknown", "14-Feb-1997", 1997),
        ("Babylon 5", "", None),
    ],
)
def test_the_year_of_a_title(title, date, year):
    assert movielens.release_year(title, date) == year


def test_data_of_real_movies_are_taken_as_item_features(data_path):
    movies = load_movielens_items(data_path("ml-1m.zip"))
    features = ItemFeatures.of("item_features", movies)
    assert [block.shape for block in features.blocks] == [(3883, 18), (3883, 8)]
    assert set(itertools.chain.from_iterable(movies["genres"])) <= set(movielens._GENRES_100K)
    assert (min(movies["year"]), max(movies["year"])) == (1919, 2000)


@pytest.mark.ignores_values
def test_the_publishers_list(tmp_path):
    """The list has every movie of the file in its order, which differs from the order of ids."""
    header, *rows = FILES_CSV["movies.csv"].splitlines(keepends=True)
    path = write_folder(tmp_path, FILES_CSV, **{"movies.csv": "".join([header, *rows[::-1]])})
    data = load_movielens(path, item_ids="published")
    assert (data.item_ids.tolist(), data.catalogue) == ([30, 6, 5], "public")
    assert data.item_features["title"].tolist() == ['"Daisy" (1958)', "Unrated (2000)", "Misérables, Les (1995)"]
    assert table_of(data) == {1: {30: 0.5, 5: 5.0}, 2: {30: 4.5}}
    assert load_movielens(path).catalogue == "data"
    chosen = load_movielens(path, item_ids=[5, 6], unlisted="drop")
    assert (table_of(chosen), chosen.item_features["genres"].tolist()) == ({1: {5: 5.0}}, [("Drama", "War"), ("War",)])
    for wrong, message in (
        ([5, 6], r"items\[0\] must be in item_ids, got 30"),
        ([5, 30, 40], r"item_ids must .* got 40, which has no row in .*movies.csv; remove it"),
        ("all", "item_ids must be one of 'published', got 'all'"),
    ):
        with pytest.raises(ValueError, match=message):
            load_movielens(path, item_ids=wrong)
    assert main(["fit", "popularity", "--data", str(path), "--catalogue", "published"]) == 0


# ---- bad inputs -----------------------------------------------------------------------------------------------------


def test_path_that_does_not_exist(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nothing.zip' does not exist; pass the MovieLens zip"):
        load_movielens(tmp_path / "nothing.zip")


def test_unknown_layout(tmp_path):
    (tmp_path / "rating.csv").write_text("userId,movieId\n")
    with pytest.raises(ValueError, match=r"must hold one of u\.data, ratings\.dat, ratings\.csv, got none of them"):
        load_movielens(tmp_path)


def test_two_data_sets_in_one_folder(tmp_path):
    write_folder(tmp_path / "a", FILES_100K)
    write_folder(tmp_path / "b", FILES_1M)
    with pytest.raises(ValueError, match=r"got 2 of them: a/u\.data, b/ratings\.dat; pass one folder"):
        load_movielens(tmp_path)


@pytest.mark.parametrize(
    ("layout", "member"),
    [("100k", "u.user"), ("100k", "u.item"), ("1m", "users.dat"), ("1m", "movies.dat"), ("10m", "movies.dat"),
     ("csv", "movies.csv")],
)  # fmt: skip
def test_missing_member(put, layout, member):
    files = {k: v for k, v in LAYOUTS[layout].items() if k != member}
    with pytest.raises(FileNotFoundError, match=rf"{member} is missing"):
        load_movielens(put(files))
    if member in ("u.item", "movies.dat", "movies.csv"):
        with pytest.raises(FileNotFoundError, match=rf"{member} is missing"):
            load_movielens_items(put(files))


def test_files_of_1m_or_10m_are_refused_as_ambiguous(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"users\.dat is missing .*MovieLens 10M has tags\.dat instead"):
        load_movielens(write_folder(tmp_path, FILES_10M, **{"tags.dat": None}))


@pytest.mark.parametrize("spoil", [lambda raw: b"not a zip", lambda raw: raw[:-60]])
def test_file_that_is_no_zip(tmp_path, spoil):
    path = write_zip(tmp_path / "x.zip", FILES_1M)
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(ValueError, match=r"x\.zip' is not a readable zip .*download it again"):
        load_movielens(path)


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_damaged_zip(tmp_path, compression):
    path = write_zip(tmp_path / "x.zip", FILES_1M, compression=compression)
    data = bytearray(path.read_bytes())
    start = data.find(b"ratings.dat") + len("ratings.dat")
    data[start + 2 : start + 8] = b"\xff" * 6
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"x\.zip: ratings\.dat cannot be unpacked .*download it again"):
        load_movielens(path)


#: The line below the first rating and its error message, by layout.
RATING_ERRORS = {
    "1m": [
        ("1::5::5", "expected 4 fields .*got 3: '1::5::5'"),
        ("1::5::5::0::0", "expected 4 fields .*got 5"),
        ("1\t5\t5\t0", "expected 4 fields .*got 1"),
        ("", "expected 4 fields .*got 1"),
        ("one::5::5::0", "user must be a whole number, got 'one'"),
        ("1::::5::0", "item must be a whole number, got ''"),
        ("1::-5::5::0", "item must be a whole number, got '-5'"),
        ("1::5::5::12345678901234567890", "timestamp must be a whole number, got '12345678901234567890'"),
        ("1::5::0::0", "rating must be an integer from 1 to 5, got '0'"),
        ("1::5::6::0", "rating must be an integer from 1 to 5, got '6'"),
        ("1::5::4.5::0", "rating must be an integer from 1 to 5, got '4.5'"),
        ("1::5::nan::0", "rating must be an integer from 1 to 5, got 'nan'"),
        ("2::30::1::9", r"user 2 rates item 30 a second time \(first in line 1\)"),
        ("9::30::1::9", r"user 9 has no row in users\.dat"),
        ("1::9::1::9", r"item 9 has no row in movies\.dat"),
    ],
    "csv": [
        ("3,5,4.5", r"expected 4 fields \(user, item, rating, timestamp\) separated by ',', got 3: '3,5,4\.5'"),
        ("3,5,4.5,1,1", "expected 4 fields .*got 5"),
        ("", "expected 4 fields .*got 1"),
        ("3,5,4.7,1", "rating must be 0.5 to 5 in half steps, got '4.7'"),
        ("3,5,0,1", "rating must be 0.5 to 5 in half steps, got '0'"),
        ("3,5,5.5,1", "rating must be 0.5 to 5 in half steps, got '5.5'"),
        ("3,5,,1", "rating must be 0.5 to 5 in half steps, got ''"),
        ("three,5,4.5,1", "user must be a whole number, got 'three'"),
        ("3,5.0,4.5,1", "item must be a whole number, got '5.0'"),
        ("3,5,4.5,yesterday", "timestamp must be a whole number, got 'yesterday'"),
        ('3,"5",4.5,1', "item must be a whole number, got '\"5\"'"),
        ("1,30,2.0,1", r"user 1 rates item 30 a second time \(first in line 2\)"),
        ("3,7,2.0,1", r"item 7 has no row in movies\.csv"),
    ],
    "100k": [("1::5::5::0", r"expected 4 fields .*'\\t', got 1")],
    "10m": [("1::5::4.25::0", "rating must be 0.5 to 5 in half steps, got '4.25'")],
}


@pytest.mark.parametrize(
    ("layout", "line", "message"), [(layout, *case) for layout, cases in RATING_ERRORS.items() for case in cases]
)
def test_malformed_ratings(put, layout, line, message):
    name, first = {"100k": ("u.data", 1), "csv": ("ratings.csv", 2)}.get(layout, ("ratings.dat", 1))
    lines = LAYOUTS[layout][name].split("\n")
    files = LAYOUTS[layout] | {name: "\n".join([*lines[:first], line, *lines[first:]])}
    with pytest.raises(ValueError, match=rf"{name}, line {first + 1}: {message}"):
        load_movielens(put(files))


@pytest.mark.parametrize("name", ["ratings.csv", "movies.csv"])
@pytest.mark.parametrize(("change", "got"), [("none", "'(1,30|5,)"), ("other", "'userId;"), ("empty", "an empty line")])
def test_missing_header(tmp_path, name, change, got):
    text = {"none": FILES_CSV[name].partition("\n")[2], "other": "userId;x\n", "empty": ""}[change]
    with pytest.raises(ValueError, match=rf"{name}, line 1: expected the header '(user|movie)Id,.*', got {got}"):
        load_movielens(write_folder(tmp_path, FILES_CSV, **{name: text}))


def test_a_header_without_rows(tmp_path):
    header = FILES_CSV["ratings.csv"].partition("\n")[0]
    with pytest.raises(ValueError, match=r"ratings\.csv, line 2: the file ends without a single row"):
        load_movielens(write_folder(tmp_path, FILES_CSV, **{"ratings.csv": header}))


def test_text_in_another_encoding(tmp_path):
    write_folder(tmp_path, FILES_CSV)
    (tmp_path / "movies.csv").write_bytes(FILES_CSV["movies.csv"].encode("latin-1"))
    with pytest.raises(ValueError, match=r"movies\.csv, line 2: the file is not utf-8 text .*download it again"):
        load_movielens(tmp_path)


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
        (FILES_10M, "movies.dat", "9::Bar (1999)", "line 3: expected 3 fields separated by '::', got 2"),
        (FILES_CSV, "movies.csv", "9,Bar, The (1999),War", "line 5: expected 3 fields separated by ',', got 4"),
        (FILES_CSV, "movies.csv", "", "line 5: expected 3 fields separated by ',', got 0"),
        (FILES_CSV, "movies.csv", "tt9,Bar (1999),War", "line 5: item id must be a whole number, got 'tt9'"),
        (FILES_CSV, "movies.csv", "5,Again (1999),War", "line 5: item 5 has a second row"),
        (FILES_100K, "u.user", "8|x|M|writer|1", "line 4: age must be a whole number, got 'x'"),
        (FILES_100K, "u.item", "8|Short|||", "line 4: expected 24 fields separated by '|', got 5"),
        (FILES_100K, "u.item", f"8|Two||||2{flags()[1:]}", "line 4: every genre flag must be 0 or 1"),
    ],
)
def test_malformed_features(tmp_path, files, member, line, message):
    path = write_folder(tmp_path, files, **{member: files[member] + line + "\n"})
    with pytest.raises(ValueError, match=rf"{member}, {message.replace('|', '[|]')}"):
        load_movielens(path)


# ---- entities -------------------------------------------------------------------------------------------------------


def test_regions_of_the_real_data(data_path):
    regions = zip_regions(load_movielens(data_path("ml-1m.zip")))
    names, counts = np.unique(regions, return_counts=True)
    assert names.tolist() == list("0123456789")
    assert counts.tolist() == [662, 662, 441, 386, 607, 659, 430, 419, 306, 1468]


def test_regions_need_codes():
    data = Interactions.from_arrays([1, 2], [7, 7])
    with pytest.raises(ValueError, match=r"must have the user feature 'zip_code', got \['age'\]"):
        zip_regions(data.with_features(user_features={"age": [1, 2]}))
    with pytest.raises(ValueError, match="zip_code must not be empty, got 1 empty codes for 2 users"):
        zip_regions(data.with_features(user_features={"zip_code": ["", "7"]}))
    with pytest.raises(TypeError, match="interactions must be Interactions, got list"):
        zip_regions([])
