"""Hostile files: valid ones with some bytes, fields, types or shapes changed."""

import contextlib
import copy
import io
import json
import math
import os
import zipfile

import numpy as np

NUMBERS = [
    0,
    1,
    -1,
    2,
    3.5,
    -0.0,
    2**31 - 1,
    2**31,
    -(2**31),
    2**53 + 1,
    2**62,
    2**63,
    2**64,
    10**30,
    1e-320,
    1e308,
    -1e308,
]
VALUES = [
    *NUMBERS,
    None,
    True,
    False,
    "",
    "x",
    "1",
    [],
    [1],
    [[]],
    {},
    {"a": 1},
    "\ud800",
    "inf",
    float("inf"),
    float("nan"),
]
DTYPES = ["<i4", ">i4", "<i8", "<u8", "<f4", ">f8", "<f8", "|u1", "|b1", "<U3", "|S2", "<M8[s]", "<c16", "<f2", "|V4"]


def unpack(content):
    """Return the header document and arrays of a model file."""
    with np.load(io.BytesIO(content), allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    return json.loads(arrays.pop("json").tobytes()), arrays


def pack(document, arrays, compression=zipfile.ZIP_DEFLATED):
    """Write a model file with any content."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as archive:
        text = json.dumps(document).encode("utf-8", "surrogatepass")
        for name, array in {"json": np.frombuffer(text, dtype=np.uint8), **arrays}.items():
            member = io.BytesIO()
            np.lib.format.write_array(member, array, allow_pickle=False)
            archive.writestr(name + ".npy", member.getvalue())
    return out.getvalue()


def change_header(path, function):
    """Change the header of a model file in place."""
    document, arrays = unpack(path.read_bytes())
    function(document["header"])
    path.write_bytes(pack(document, arrays))


def change_array(path, name, function):
    """Replace an array of a file, which needs only NumPy."""
    with np.load(path) as file:
        arrays = dict(file)
    arrays[name] = function(arrays[name])
    np.savez(path, **arrays)
    if not str(path).endswith(".npz"):
        os.replace(f"{path}.npz", path)


def bytes_changed(random, content):
    """Return the content with some bytes flipped, removed, duplicated or inserted."""
    content = bytearray(content)
    for _ in range(random.randint(1, 4)):
        at = random.randint(0, max(len(content) - 1, 0))
        kind = random.choice(["flip", "set", "cut", "end", "double", "insert"])
        length = random.randint(1, 64)
        if kind == "flip" and content:
            content[at] ^= 1 << random.randint(0, 7)
        elif kind == "set":
            content[at : at + length] = random.randbytes(length)
        elif kind == "cut":
            del content[at : at + length]
        elif kind == "end":
            del content[at:]
        elif kind == "double":
            content[at:at] = content[at : at + length]
        else:
            content[at:at] = random.randbytes(length)
    return bytes(content)


def find_paths(value, path=()):
    """Yield the paths of all values in a JSON document."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in items:
        yield from find_paths(part, (*path, key))


def json_changed(random, document):
    """Return a document with one value replaced, removed, or duplicated next to itself."""
    document = json.loads(json.dumps(document))
    for _ in range(random.randint(1, 2)):
        paths = [value_path for value_path in find_paths(document) if value_path]
        if not paths:
            return document
        *path, last = random.choice(paths)
        parent = document
        for key in path:
            parent = parent[key]
        kind = random.choice(["replace", "replace", "drop", "add", "copy"])
        if kind == "replace":
            parent[last] = copy.deepcopy(random.choice(VALUES))
        elif kind == "drop":
            del parent[last]
        elif isinstance(parent, list):
            parent.append(copy.deepcopy(random.choice(VALUES) if kind == "add" else parent[last]))
        else:
            parent[f"{last}{kind}"] = copy.deepcopy(random.choice(VALUES) if kind == "add" else parent[last])
    return document


def array_changed(random, array):
    """Return an array of another value, type, shape, order or length."""
    kind = random.choice(["value", "value", "dtype", "view", "shape", "shorter", "longer", "empty", "order"])
    with np.errstate(all="ignore"):
        if kind == "value" and array.size and array.dtype.kind in "iuf":
            array = array.copy()
            number = random.choice([*NUMBERS, float("nan"), float("inf"), 10**6])
            if array.dtype.kind != "f":
                number = int(number) if math.isfinite(number) else 7
                number = (number & (2 ** (8 * array.itemsize) - 1)).to_bytes(array.itemsize, "little")
                number = np.frombuffer(number, dtype=array.dtype.newbyteorder("<"))[0]
            array.reshape(-1)[random.randint(0, array.size - 1)] = number
            return array
        if kind == "dtype":
            try:
                return array.astype(random.choice(DTYPES))
            except (ValueError, TypeError):
                return array
        if kind == "view":
            new_dtype = np.dtype(random.choice(DTYPES))
            content = array.tobytes()
            return np.frombuffer(content[: len(content) // new_dtype.itemsize * new_dtype.itemsize], dtype=new_dtype)
        if kind == "shape":
            shape = random.choice([(-1,), (1, -1), (-1, 1), (*array.shape, 1), array.shape[::-1]])
            return array.reshape(shape)
        flat = array.reshape(-1)
        if kind == "shorter":
            return array[:-1] if array.ndim else flat[:0]
        if kind == "longer":
            return np.concatenate([array, array[:1]]) if array.ndim else np.concatenate([flat, flat])
        if kind == "empty":
            return flat[:0]
        return np.asfortranarray(array) if array.ndim > 1 else array[::-1] if array.ndim else flat


def fields_changed(random, content):
    """Return a valid archive with another header, other arrays or both."""
    document, arrays = unpack(content)
    for _ in range(random.randint(1, 3)):
        kind = random.choice(["header", "array", "array", "swap", "drop", "add"])
        names = sorted(arrays)
        if kind == "header" or not names:
            document = json_changed(random, document)
            continue
        name, other = random.choice(names), random.choice(names)
        if kind == "array":
            arrays[name] = array_changed(random, arrays[name])
        elif kind == "swap":
            arrays[name], arrays[other] = arrays[other], arrays[name]
        elif kind == "drop":
            del arrays[name]
        else:
            arrays[f"{name}x"] = arrays[other]
    # Keep the header's declaration consistent with the arrays.
    if random.random() < 0.5 and isinstance(document, dict):
        promised = document.get("arrays")
        if isinstance(promised, dict):
            objects = {name for name, promise in promised.items() if isinstance(promise, dict) and "bytes" in promise}
            for name in arrays.keys() - objects:
                promised[name] = {"dtype": arrays[name].dtype.str, "shape": list(arrays[name].shape)}
            for name in list(promised.keys() - arrays.keys()):
                del promised[name]
    return pack(document, arrays, random.choice([zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED]))


def array_file_changed(random, content):
    """Return a NumPy file of a changed array."""
    out = io.BytesIO()
    np.save(out, array_changed(random, np.load(io.BytesIO(content), allow_pickle=False)), allow_pickle=False)
    return out.getvalue()


def files_changed(random, files):
    """Return files by name with one or two of them changed, swapped or removed."""
    files = dict(files)
    for _ in range(random.randint(1, 2)):
        if not files:
            break
        name, other = random.choice(sorted(files)), random.choice(sorted(files))
        kind = random.choice(["bytes", "array", "array", "json", "swap", "drop"])
        if kind == "bytes":
            files[name] = bytes_changed(random, files[name])
        elif kind == "array" and files[name].startswith(b"\x93NUMPY"):
            with contextlib.suppress(Exception):  # NumPy's, of a file that was changed before
                files[name] = array_file_changed(random, files[name])
        elif kind == "array" and files[name].startswith(b"PK"):
            with contextlib.suppress(Exception):
                files[name] = fields_changed(random, files[name])
        elif kind == "json" and name.endswith(".json"):
            with contextlib.suppress(ValueError):
                files[name] = json.dumps(json_changed(random, json.loads(files[name]))).encode()
        elif kind == "swap":
            files[name], files[other] = files[other], files[name]
        elif kind == "drop":
            del files[name]
    return files
