"""The Netflix reader: every published form made small, against a twin that reads line by line."""

import io
import tarfile
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from naive.datasets import netflix as naive

from fastfedrec.datasets import load_netflix
from fastfedrec.datasets.columns import ColumnReader
from fastfedrec.datasets.netflix import _FIELDS, holds_netflix

MOVIES = {
    1: "1:\n1488844,3,2005-09-06\n822109,5,2005-05-13\n",
    2: "2:\n822109,1,1999-12-31\n",
    5: "5:\n6,4,2004-02-29\n1488844,2,2003-01-01\n",
    17770: "17770:\n6,5,2000-03-01\n",
}
TITLES = "1,2003,Dinosaur Planet\n2,NULL,Eros, Élise, and 1\n5,1989,Chump\n17770,2003,Alien\n"
FORMS = [
    "movies",
    "movies, given the folder inside",
    "tar",
    "tar, given itself",
    "kaggle",
    "kaggle zip",
    "tar in a zip",
]


def put_tar(path, movies=MOVIES):
    with tarfile.open(path, "w") as archive:
        for movie, text in movies.items():
            info = tarfile.TarInfo(f"training_set/mv_{movie:07}.txt")
            info.size = len(text.encode())
            archive.addfile(info, io.BytesIO(text.encode()))


def kaggle(movies=MOVIES):
    texts = list(movies.values())
    return {f"combined_data_{part + 1}.txt": "".join(texts[part::4]) for part in range(4)}


def write(folder, form, movies=MOVIES, titles=TITLES):
    """Write the files of one form and return the path for the reader."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "movie_titles.txt").write_bytes(titles.encode("latin-1"))
    if form.startswith("movies"):
        (folder / "training_set").mkdir()
        for movie, text in movies.items():
            (folder / "training_set" / f"mv_{movie:07}.txt").write_text(text, newline="")
        return folder / "training_set" if "inside" in form else folder
    if form.startswith("tar"):
        put_tar(folder / "training_set.tar", movies)
        if form == "tar in a zip":
            with zipfile.ZipFile(folder / "all.zip", "w") as archive:
                for name in ("movie_titles.txt", "training_set.tar"):
                    archive.write(folder / name, f"download/{name}")
            return folder / "all.zip"
        return folder / "training_set.tar" if "itself" in form else folder
    (folder / "movie_titles.txt").rename(folder / "movie_titles.csv")
    if form == "kaggle":
        for name, text in kaggle(movies).items():
            (folder / name).write_text(text, newline="")
        return folder
    with zipfile.ZipFile(folder / "archive.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(folder / "movie_titles.csv", "movie_titles.csv")
        for name, text in kaggle(movies).items():
            archive.writestr(name, text)
    return folder / "archive.zip"


def table_of(data):
    user_of = np.repeat(data.user_ids, data.interactions_per_user()).tolist()
    movie_of = data.item_ids[data.indices].tolist()
    rated = zip(data.values.tolist(), data.timestamps.tolist(), strict=True)
    return dict(zip(zip(user_of, movie_of, strict=True), rated, strict=True))


# ---- oracle ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_every_form_equals_the_twin(tmp_path, form):
    data = load_netflix(write(tmp_path / "nf", form))
    assert table_of(data) == naive.read_ratings("".join(MOVIES.values()))
    titles = naive.read_titles(TITLES)
    assert data.item_ids.tolist() == [1, 2, 5, 17770]
    assert data.user_ids.tolist() == [6, 822109, 1488844]
    assert data.item_features["title"].tolist() == [titles[movie][0] for movie in data.item_ids.tolist()]
    assert data.item_features["year"].tolist() == [titles[movie][1] for movie in data.item_ids.tolist()]
    assert data.item_features["year"].tolist()[1] == 0
    assert data.values.dtype == np.float32
    assert data.user_ids.dtype == data.item_ids.dtype == data.item_features["year"].dtype == np.int64


ratings = st.tuples(st.integers(1, 2649429), st.integers(1, 5), st.dates())
movies = st.dictionaries(st.integers(1, 17770), st.lists(ratings, min_size=1, max_size=5, unique_by=lambda r: r[0]))


@given(movies.filter(bool), st.sampled_from(["\n", "\r\n"]), st.booleans(), st.integers(1, 40))
def test_any_ratings_in_blocks_of_any_size_equal_the_twin(movies, line_end, has_end, block):
    text = "".join(
        f"{movie}:{line_end}" + "".join(f"{user},{stars},{date}{line_end}" for user, stars, date in rows)
        for movie, rows in movies.items()
    )
    expected = naive.read_ratings(text)
    reader = ColumnReader(_FIELDS, ",", headings=True)

    class Trickle(io.BytesIO):
        def read(self, size=-1):
            return super().read(block)

    reader.read(Trickle((text if has_end else text.removesuffix(line_end)).encode()), "text")
    users, stars, seconds, numbers = (column.tolist() for column in reader.columns())
    pairs, rated = zip(users, numbers, strict=True), zip(stars, seconds, strict=True)
    assert dict(zip(pairs, rated, strict=True)) == expected
    assert reader.n_rows == len(users) == sum(map(len, movies.values()))


# ---- invariants -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["movies", "tar", "kaggle zip"])
@pytest.mark.parametrize("change", ["windows line ends", "no final line end"])
def test_line_ends_do_not_change_the_data(tmp_path, form, change):
    if change == "windows line ends":
        movies = {movie: text.replace("\n", "\r\n") for movie, text in MOVIES.items()}
        titles = TITLES.replace("\n", "\r\n")
    else:
        movies, titles = {movie: text[:-1] for movie, text in MOVIES.items()}, TITLES[:-1]
    data = load_netflix(write(tmp_path / "nf", form, movies, titles))
    assert table_of(data) == naive.read_ratings("".join(MOVIES.values()))
    assert data.item_features["title"].tolist()[-1] == "Alien"


@pytest.mark.parametrize("form", FORMS)
def test_each_form_is_recognized_by_file_names(tmp_path, form):
    assert holds_netflix(write(tmp_path / "nf", form))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "ratings.csv").write_text("userId,movieId,rating,timestamp\n")
    assert not holds_netflix(tmp_path / "other")
    assert not holds_netflix(tmp_path / "nothing")


def test_the_unpacked_folder_goes_before_the_tar(tmp_path):
    write(tmp_path / "nf", "tar", {1: "1:\n7,1,2000-01-01\n"})
    assert load_netflix(write(tmp_path / "nf", "movies")).n_interactions == 6


def test_the_publishers_list(tmp_path):
    """The list has every movie of the file in its order, which differs from the order of ids."""
    path = write(tmp_path / "nf", "movies", titles="".join(TITLES.splitlines(keepends=True)[::-1]))
    data = load_netflix(path, item_ids="published")
    assert (data.item_ids.tolist(), data.catalogue) == ([17770, 5, 2, 1], "public")
    assert data.item_features["title"].tolist() == ["Alien", "Chump", "Eros, Élise, and 1", "Dinosaur Planet"]
    assert load_netflix(path).catalogue == "data"
    assert load_netflix(path, item_ids=[1], unlisted="drop").item_ids.tolist() == [1]


# ---- bad inputs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["nothing", "training_set.tar"])
def test_path_that_does_not_exist(tmp_path, name):
    with pytest.raises(FileNotFoundError, match=rf"{name}' does not exist; pass the Netflix zip"):
        load_netflix(tmp_path / name)


def test_none_of_the_forms(tmp_path):
    with pytest.raises(ValueError, match=r"must hold training_set with mv_0000001\.txt .*got none of them"):
        load_netflix(tmp_path)


@pytest.mark.parametrize("form", FORMS[:-2])
def test_missing_titles(tmp_path, form):
    path = write(tmp_path / "nf", form)
    for file in (tmp_path / "nf").glob("movie_titles.*"):
        file.unlink()
    with pytest.raises(FileNotFoundError, match=r"movie_titles\.txt is missing \(or movie_titles\.csv"):
        load_netflix(path)


def test_missing_part(tmp_path):
    path = write(tmp_path / "nf", "kaggle")
    (path / "combined_data_3.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"combined_data_3\.txt is missing; unpack or download"):
        load_netflix(path)


ERRORS = [
    ("1:\n6,4\n", r"line 2: expected 3 fields \(user, rating, date\) separated by ',', got 2: '6,4'"),
    ("1:\n6,4,2004-02-29,1\n", "line 2: expected 3 fields .*got 4"),
    ("1:\n\n6,5,2000-03-01\n", "line 2: expected 3 fields .*got 1"),
    ("1:\n\n", "line 2: the file ends without a single row"),
    ("1:\nx,4,2004-02-29\n", "line 2: user must be a whole number, got 'x'"),
    ("1:\n6,0,2004-02-29\n", "line 2: rating must be an integer from 1 to 5, got '0'"),
    ("1:\n6,3.5,2004-02-29\n", r"line 2: rating must be an integer from 1 to 5, got '3\.5'"),
    ("1:\n6,4,2003-02-29\n", "line 2: date must be a date such as 2005-09-06, got '2003-02-29'"),
    ("1:\n6,4,\n", "line 2: date must be a date such as 2005-09-06, got ''"),
    ("1:\n6,4,29.2.2004\n", r"line 2: date must be a date such as 2005-09-06, got '29\.2\.2004'"),
    ("6,4,2004-02-29\n", "line 1: the first line must be a heading such as '1:'"),
    ("1\n6,4,2004-02-29\n", "line 1: expected 3 fields .*got 1"),
    ("x:\n6,4,2004-02-29\n", "line 1: expected 3 fields .*got 1"),
    ("1:\n", "line 2: the file ends without a single row"),
    ("", "line 1: the file is empty"),
]


@pytest.mark.parametrize(("text", "message"), ERRORS)
@pytest.mark.parametrize("form", ["movies", "tar", "kaggle"])
def test_malformed_ratings(tmp_path, form, text, message):
    name = "combined_data_1" if form == "kaggle" else "mv_0000001"
    with pytest.raises(ValueError, match=rf"{name}\.txt, {message}"):
        load_netflix(write(tmp_path / "nf", form, MOVIES | {1: text}))


@pytest.mark.parametrize(
    ("form", "file"), [("movies", r"mv_0000005\.txt"), ("tar", r"training_set/mv_0000005\.txt"),
                       ("kaggle", r"combined_data_3\.txt")]
)  # fmt: skip
def test_duplicate_pair(tmp_path, form, file):
    movies = MOVIES | {5: MOVIES[5] + "6,1,2004-03-01\n"}
    with pytest.raises(ValueError, match=rf"{file}: user 6 rates movie 5 a second time; remove one"):
        load_netflix(write(tmp_path / "nf", form, movies))


@pytest.mark.parametrize(
    ("titles", "message"),
    [
        (TITLES.replace("NULL", "?"), "line 2: expected movie, year .* got '2,[?],Eros"),
        (TITLES + "18000,1999\n", "line 5: expected movie, year .* got '18000,1999'"),
        (TITLES + "5,1999,Again\n", "line 5: movie 5 has a second row; remove one"),
    ],
)
def test_malformed_titles(tmp_path, titles, message):
    with pytest.raises(ValueError, match=rf"movie_titles\.txt, {message}"):
        load_netflix(write(tmp_path / "nf", "movies", titles=titles))


def test_a_movie_without_a_title(tmp_path):
    with pytest.raises(ValueError, match=r"movie_titles\.txt has no row for movie 17770, which has ratings"):
        load_netflix(write(tmp_path / "nf", "tar", titles=TITLES.partition("17770")[0]))


@pytest.mark.parametrize(
    ("size", "message"),
    [(1030, "movie_titles.txt: movie 2 has no ratings; a file is missing or cut short"),
     (1540, "training_set.tar cannot be unpacked .*download it again"),
     (530, "training_set.tar cannot be unpacked .*download it again"),
     (100, "training_set.tar cannot be unpacked .*download it again")],
)  # fmt: skip
def test_truncated_tar(tmp_path, size, message):
    path = write(tmp_path / "nf", "tar, given itself")
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(ValueError, match=message):
        load_netflix(path)


def test_a_missing_movie(tmp_path):
    path = write(tmp_path / "nf", "movies")
    (path / "training_set" / "mv_0000005.txt").unlink()
    with pytest.raises(ValueError, match=r"movie_titles\.txt: movie 5 has no ratings; a file is missing or cut short"):
        load_netflix(path)


def test_a_file_that_is_no_tar(tmp_path):
    path = write(tmp_path / "nf", "tar, given itself")
    path.write_bytes(b"this is no tar")
    with pytest.raises(ValueError, match=r"training_set\.tar cannot be unpacked .*download it again"):
        load_netflix(path)


def test_an_empty_tar(tmp_path):
    put_tar((tmp_path / "training_set.tar"), {})
    (tmp_path / "movie_titles.txt").write_text(TITLES)
    with pytest.raises(ValueError, match=r"training_set\.tar must hold mv_0000001\.txt and so on, got none"):
        load_netflix(tmp_path)


def test_truncated_zip(tmp_path):
    path = write(tmp_path / "nf", "kaggle zip")
    path.write_bytes(path.read_bytes()[:-60])
    with pytest.raises(ValueError, match="not a readable zip"):
        load_netflix(path)


def test_damaged_zip(tmp_path):
    path = write(tmp_path / "nf", "kaggle zip")
    data = bytearray(path.read_bytes())
    start = data.find(b"combined_data_2.txt") + len("combined_data_2.txt")
    data[start + 2 : start + 8] = b"\xff" * 6
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"combined_data_2\.txt cannot be unpacked .*download it again"):
        load_netflix(path)
