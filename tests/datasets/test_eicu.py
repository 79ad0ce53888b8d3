"""The eICU reader: small files of the published layout against a twin that reads line by line, and the demo."""

import gzip

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from naive.datasets import eicu as naive
from support.interaction_case import assert_well_formed, table_of

from fastfedrec.datasets import eicu, load_eicu

PATIENT = "patientunitstayid,gender,hospitalid,apacheadmissiondx,uniquepid\n"
LAB = "labid,patientunitstayid,labresultoffset,labname,labresult\n"
MEDICATION = "medicationid,patientunitstayid,drugordercancelled,drugname,drughiclseqno,dosage\n"
FILES = {
    "patient": PATIENT
    + '12,Female,59,"Rhythm disturbance (atrial, supraventricular)",002-1039\n'
    + "7,Male,60,,002-0044\n11,Female,73,,002-1039\n30,,60,,002-0099\n",
    "lab": LAB + "1,12,600,bun,28\n2,12,700,bun,29\n3,7,5,Hgb,\n4,11,5,bun,3\n",
    "medication": MEDICATION
    + '1,12,No,"WARFARIN, 5 MG",2812,5 3\n2,12,No,,2812,\n3,7,No,Aspirin,,\n4,11,No,ASPIRIN,,\n'
    + "5,7,Yes,Aspirin,1820,\n6,7,No,,,\n7,7,No,aspirin 81 mg,1820,\n",
}


def write(folder, files=FILES, packed=True):
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        if packed:
            (folder / f"{name}.csv.gz").write_bytes(gzip.compress(text.encode()))
        else:
            (folder / f"{name}.csv").write_text(text)
    return folder


def assert_equals_twin(data, files, rows):
    counts, hospitals, names = naive.read(files["patient"], files["lab"], files["medication"], rows)
    users = np.repeat(data.user_ids, data.interactions_per_user()).tolist()
    pairs = zip(users, data.item_ids[data.indices].tolist(), strict=True)
    assert dict(zip(pairs, data.values_or_ones().tolist(), strict=True)) == counts
    assert dict(zip(data.user_ids.tolist(), data.user_features["hospital"].tolist(), strict=True)) == hospitals
    assert dict(zip(data.item_ids.tolist(), data.item_features["name"].tolist(), strict=True)) == names
    assert data.item_features["kind"].tolist() == [item.split()[0] for item in data.item_ids.tolist()]


# ---- oracle ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", ["patients", "stays"])
@pytest.mark.parametrize("packed", [True, False])
def test_equals_the_twin(tmp_path, rows, packed):
    data = load_eicu(write(tmp_path / "eicu", packed=packed), rows=rows)
    assert_equals_twin(data, FILES, rows)
    assert data.item_ids.tolist() == ["lab Hgb", "lab bun", "medication 1820", "medication 2812", "medication aspirin"]
    assert data.item_features["name"].tolist()[2:4] == ["aspirin 81 mg", "WARFARIN, 5 MG"]
    if rows == "patients":
        assert data.user_ids.tolist() == ["002-0044", "002-0099", "002-1039"]
        assert data.user_features["hospital"].tolist() == [60, 60, 59]
        assert data.interactions_per_user().tolist() == [3, 0, 3]
    else:
        assert data.user_ids.tolist() == [7, 11, 12, 30]
        assert data.user_features["patient"].tolist() == ["002-0044", "002-1039", "002-1039", "002-0099"]


stay = st.integers(1, 6)
labs = st.lists(st.tuples(stay, st.sampled_from(["bun", "k", "na"])), max_size=20)
drugs = st.lists(
    st.tuples(
        stay, st.sampled_from(["Yes", "No", ""]), st.sampled_from(["", "A", "a", "b"]), st.sampled_from(["", "7"])
    ),
    max_size=20,
)


@given(labs, drugs, st.lists(st.integers(1, 3), min_size=6, max_size=6), st.sampled_from(["patients", "stays"]))
def test_any_rows_equal_the_twin(tmp_path_factory, labs, drugs, patients, rows):
    files = {
        "patient": PATIENT + "".join(f"{s},,{s % 3},,p{patients[s - 1]}\n" for s in range(6, 0, -1)),
        "lab": LAB + "1,1,0,k,\n" + "".join(f"1,{s},0,{name},\n" for s, name in labs),
        "medication": MEDICATION + "1,1,No,,,\n" + "".join(f"1,{s},{c},{n},{i},\n" for s, c, n, i in drugs),
    }
    folder = write(tmp_path_factory.mktemp("eicu"), files, packed=False)
    assert_equals_twin(load_eicu(folder, rows=rows), files, rows)


def test_counts_of_blocks_are_added_up(tmp_path, monkeypatch):
    monkeypatch.setattr(eicu, "_PENDING", 1)
    monkeypatch.setattr("fastfedrec.datasets.columns._BLOCK_BYTES", 40)
    assert_equals_twin(load_eicu(write(tmp_path / "eicu")), FILES, "patients")


def test_a_list_of_tests_and_medicines(tmp_path):
    folder, listed = write(tmp_path / "eicu"), ["lab bun", "medication 2812", "lab potassium", "medication aspirin"]
    with pytest.raises(ValueError, match="item_ids must list all items of the data, but 'lab Hgb' is missing"):
        load_eicu(folder, item_ids=listed)
    data = load_eicu(folder, item_ids=listed, unlisted="drop")
    assert_well_formed(data)
    assert (data.item_ids.tolist(), data.catalogue) == (listed, "public")
    assert data.item_features["kind"].tolist() == ["lab", "medication", "lab", "medication"]
    assert data.item_features["name"].tolist() == ["bun", "WARFARIN, 5 MG", "", "aspirin"]
    everything = table_of(load_eicu(folder))
    assert table_of(data) == {u: {i: n for i, n in row.items() if i in listed} for u, row in everything.items()}
    whole = load_eicu(folder, item_ids=[*listed, "lab Hgb", "medication 1820"])
    assert (table_of(whole), load_eicu(folder).catalogue) == (everything, "data")


# ---- bad inputs -----------------------------------------------------------------------------------------------------


def changed(name, old, new):
    return FILES | {name: FILES[name].replace(old, new)}


def test_bad_arguments(tmp_path):
    with pytest.raises(ValueError, match="rows must be one of 'patients', 'stays', got 'visits'"):
        load_eicu(tmp_path, rows="visits")
    with pytest.raises(FileNotFoundError, match=r"is not a folder; pass the folder with patient\.csv\.gz"):
        load_eicu(tmp_path / "nothing")
    with pytest.raises(FileNotFoundError, match=r"patient\.csv\.gz \(or \.csv\) is missing"):
        load_eicu(tmp_path)


@pytest.mark.parametrize(
    ("files", "error", "message"),
    [
        (changed("lab", "3,7,5", "3,8,5"), ValueError, r"lab\.csv\.gz: stay 8 is not in patient"),
        (changed("patient", "\n7,Male", "\n12,Male"), ValueError, "stay 12 has a second row; remove one"),
        (changed("lab", "labname", "name"), KeyError, r"lab\.csv\.gz must have the column 'labname', got \['labid'"),
        (changed("lab", "3,7,5", "3,x,5"), ValueError, "line 4: patientunitstayid must be a whole number, got 'x'"),
        (changed("lab", "3,7,5", "3,7"), ValueError, "line 4: expected 5 fields"),
        (FILES | {"medication": MEDICATION}, ValueError, r"medication\.csv\.gz, line 2: the file ends without a"),
    ],
)
def test_malformed_files(tmp_path, files, error, message):
    with pytest.raises(error, match=message):
        load_eicu(write(tmp_path / "eicu", files))


# ---- the published demo ---------------------------------------------------------------------------------------------


def test_the_demo(data_path):
    folder = data_path("eicu-demo")
    patients, stays = load_eicu(folder), load_eicu(folder, rows="stays")
    assert (patients.n_users, stays.n_users) == (1841, 2520)
    assert len(set(patients.user_features["hospital"].tolist())) == 186
    assert (stays.item_features["kind"] == "lab").sum() == 39
    ordered = 75_604 - 2_636  # medicines that were not cancelled
    for data in (patients, stays):
        kinds = data.item_features["kind"][data.indices]
        assert data.values[kinds == "lab"].sum() == 134_504
        assert 0 < data.values[kinds == "medication"].sum() <= ordered
    held = {}
    for patient, hospital in zip(stays.user_features["patient"], stays.user_features["hospital"], strict=True):
        held.setdefault(patient, set()).add(hospital)
    assert sum(len(hospitals) > 1 for hospitals in held.values()) == 19
