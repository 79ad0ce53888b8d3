"""The Frappe reader: a small log against a twin that reads line by line; the real one by its published counts."""

import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from naive.datasets import frappe as naive

from fastfedrec.datasets import load_frappe

HEADER = "user\titem\tcnt\tdaytime\tweekday\tisweekend\thomework\tcost\tweather\tcountry\tcity"
CONTEXTS = ["daytime", "weekday", "isweekend", "homework", "weather", "country", "city"]
LINES = [
    "7\t30\t1\tmorning\tsunday\tweekend\tunknown\tfree\tsunny\tUnited States\t0",
    "2\t4\t9\tnoon\tmonday\tworkday\thome\tpaid\tcloudy\tSpain\t369",
    "7\t30\t5\tnight\tmonday\tworkday\twork\tfree\trainy\tEspaña\t0",
]
REAL = Path(__file__).resolve().parents[3] / "shared/data/frappe/frappe.csv"


def write(folder, lines=LINES, header=HEADER, name="frappe.csv"):
    path = folder / name
    path.write_text("".join(f"{line}\n" for line in [header, *lines]), encoding="utf-8")
    return path


# ---- oracle ----------------------------------------------------------------------------------------------------------


@given(
    st.lists(
        st.tuples(
            st.integers(0, 5), st.integers(0, 5), st.lists(st.sampled_from(["a", "b c", "0"]), min_size=8, max_size=8)
        ),
        min_size=1,
        max_size=30,
    )
)
def test_equals_the_twin(tmp_path_factory, rows):
    cost = {item: words[0] for _, item, words in rows}
    lines = ["\t".join([str(user), str(item), "3", *words[1:5], cost[item], *words[5:]]) for user, item, words in rows]
    path = write(tmp_path_factory.mktemp("frappe"), lines)
    log = load_frappe(path)
    entries, uses = naive.read_log(path.read_text())
    assert log.n_entries == len(entries)
    assert list(log.contexts) == CONTEXTS
    users, items = log.interactions.user_ids[log.users], log.interactions.item_ids[log.items]
    for row, entry in enumerate(entries):
        assert (users[row], items[row]) == (int(entry["user"]), int(entry["item"]))
        assert [log.contexts[name][row] for name in CONTEXTS] == [entry[name] for name in CONTEXTS]
    data = log.interactions
    dense = data.to_scipy().toarray()
    assert {(data.user_ids[u].item(), data.item_ids[i].item()): dense[u, i] for u, i in np.argwhere(dense > 0)} == dict(
        uses
    )
    assert dict(zip(data.item_ids.tolist(), data.item_features["cost"].tolist(), strict=True)) == cost


def test_a_list_of_apps(tmp_path):
    path = write(tmp_path)
    log = load_frappe(path, item_ids=[4, 5, 30])
    assert (log.interactions.item_ids.tolist(), log.interactions.catalogue) == ([4, 5, 30], "public")
    assert log.interactions.item_features["cost"].tolist() == ["paid", "", "free"]
    with pytest.raises(ValueError, match=r"items\[0\] must be in item_ids, got 30 \(2 of 3 rows have an unlisted id\)"):
        load_frappe(path, item_ids=[5, 4])
    some = load_frappe(path, item_ids=[5, 4], unlisted="drop")
    assert (some.interactions.user_ids.tolist(), some.contexts["daytime"].tolist()) == ([2], ["noon"])
    assert some.interactions.item_features["cost"].tolist() == ["", "paid"]
    lines = [*LINES, "2\t4\t9\tnoon\tmonday\tworkday\thome\tfree\tcloudy\tSpain\t369"]
    with pytest.raises(ValueError, match="line 3: item 4 must have one cost, got 'paid' and 'free'"):
        load_frappe(write(tmp_path, lines), item_ids=[5, 4], unlisted="drop")


# ---- invariants ------------------------------------------------------------------------------------------------------


def test_file_folder_and_zip_are_the_same(tmp_path):
    (tmp_path / "frappe").mkdir()
    path = write(tmp_path / "frappe")
    packed = tmp_path / "frappe.zip"
    with zipfile.ZipFile(packed, "w") as archive:
        archive.write(path, "Frappe/frappe.csv")
    logs = [load_frappe(p) for p in (path, str(path.parent), tmp_path / "frappe", packed)]
    for log in logs:
        np.testing.assert_array_equal(log.interactions.user_ids[log.users], [7, 2, 7])
        np.testing.assert_array_equal(log.contexts["country"], ["United States", "Spain", "España"])
        np.testing.assert_array_equal(log.interactions.values_or_ones(), [1, 2])


def test_the_count_of_uses_is_omitted(tmp_path):
    log = load_frappe(write(tmp_path))
    assert "cnt" not in log.contexts
    assert set(log.interactions.item_features) == {"cost"}


@pytest.mark.skipif(not REAL.exists(), reason="Frappe is not here")
def test_published_counts():
    log = load_frappe(REAL)
    assert log.n_entries == 96_203
    assert log.interactions.shape == (957, 4_082)
    assert log.interactions.n_interactions == 18_842
    assert log.interactions.values_or_ones().sum() == 96_203
    assert (log.interactions.item_features["cost"] == "paid").sum() == 337
    assert [len(np.unique(log.contexts[name])) for name in CONTEXTS] == [7, 7, 2, 3, 9, 80, 233]


# ---- bad inputs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"header": HEADER.replace("cnt", "count")}, r"frappe.csv, line 1: expected the header 'user\\titem"),
        ({"lines": []}, "line 2: the file ends without a single row"),
        ({"lines": [LINES[0], "1\t2"]}, "line 3: expected 11 fields"),
        ({"lines": [LINES[0].replace("7", "x", 1)]}, "line 2: user must be a whole number, got 'x'"),
        ({"lines": [*LINES, LINES[0].replace("free", "paid")]}, "item 30 must have one cost, got 'free' and 'paid'"),
    ],
)
def test_malformed_files(tmp_path, change, message):
    with pytest.raises(ValueError, match=message):
        load_frappe(write(tmp_path, **change))


def test_no_such_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="does not exist"):
        load_frappe(tmp_path / "frappe.csv")
    with pytest.raises(FileNotFoundError, match=r"must hold one frappe\.csv, got 0 of them"):
        load_frappe(tmp_path)
