"""A message of Flower as files: one for each array, and JSON for the plain values; Flower itself is not needed."""

import io
import json
from dataclasses import dataclass

import numpy as np

from fastfedrec.engines.flower.wire.records import read_array
from fuzz.folders import packed, unpacked

__all__ = ["SentArray", "message_of", "read_message"]

_VALUES, _ARRAY = "values.json", ".npy"


@dataclass(frozen=True)
class SentArray:
    """An array of Flower as received: its bytes, and the sender's statement of their form."""

    data: bytes
    stype: str = "numpy.ndarray"


def message_of(arrays, values):
    """Return arrays and plain values as one input; a value of bytes becomes {"hex": ...}."""
    files = {_VALUES: json.dumps({name: _to_json(value) for name, value in values.items()}).encode()}
    for name, array in arrays.items():
        out = io.BytesIO()
        np.lib.format.write_array(out, np.ascontiguousarray(array), version=(1, 0), allow_pickle=False)
        files[name + _ARRAY] = out.getvalue()
    return packed(files)


def read_message(content):
    """Return the sent arrays by name, as the package reads them, and the plain values."""
    files = unpacked(content)
    values = json.loads(files.pop(_VALUES, b"{}"))
    if type(values) is not dict:
        raise ValueError("the values must be an object")
    sent = {name.removesuffix(_ARRAY): SentArray(part) for name, part in files.items()}
    arrays = {name: read_array(name, array) for name, array in sent.items()}
    return arrays, {name: _from_json(value) for name, value in values.items()}


def _to_json(value):
    return {"hex": value.hex()} if isinstance(value, bytes) else value


def _from_json(value):
    return bytes.fromhex(str(value["hex"])) if isinstance(value, dict) and "hex" in value else value
