"""A folder of files as one input: a zip without compression, so that seeds can share it with mutations."""

import io
import shutil
import zipfile

from support.hostile_files import files_changed

__all__ = ["files_of", "folder_changed", "packed", "unpacked"]


def packed(files):
    """Return files by name as one input."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name in sorted(files):
            archive.writestr(zipfile.ZipInfo(name), files[name])
    return out.getvalue()


def unpacked(content):
    """Return the files of an input by name; any other input has none."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            names = [name for name in archive.namelist() if name.replace("-", "").replace(".", "").isidentifier()]
            return {name: archive.read(name) for name in names}
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, OSError, ValueError, EOFError, zipfile.zlib.error):
        return {}


def files_of(content, folder):
    """Write the files of an input to a new folder with no other files."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, part in unpacked(content).items():
        (folder / name).write_bytes(part)


def folder_changed(random, content):
    """Return an input with some files changed, swapped or removed."""
    return packed(files_changed(random, unpacked(content)))
