"""Twin of the eICU reader: one row at a time, into a dict."""

import csv
from collections import Counter


def read(patient, lab, medication, rows):
    """Return ({(user, item): count}, {user: hospital}, {item: name}) from the texts of the three files."""
    users, hospitals = {}, {}
    for row in csv.DictReader(patient.splitlines()):
        user = row["uniquepid"] if rows == "patients" else int(row["patientunitstayid"])
        users[row["patientunitstayid"]] = user
        hospitals.setdefault(user, int(row["hospitalid"]))
    counts, names = Counter(), {}
    for row in csv.DictReader(lab.splitlines()):
        item = f"lab {row['labname']}"
        names[item] = row["labname"]
        counts[users[row["patientunitstayid"]], item] += 1
    for row in csv.DictReader(medication.splitlines()):
        if row["drugordercancelled"] == "Yes" or not (row["drugname"] or row["drughiclseqno"]):
            continue
        if row["drughiclseqno"]:
            item = f"medication {row['drughiclseqno']}"
            names[item] = names.get(item) or row["drugname"]
        else:
            item = f"medication {row['drugname'].lower()}"
            names[item] = row["drugname"].lower()
        counts[users[row["patientunitstayid"]], item] += 1
    return counts, hospitals, names
