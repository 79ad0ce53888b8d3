"""Tests of `make dist`: refused contents of distributions, and consistent metadata."""

import re
import tomllib
from importlib.metadata import distribution
from pathlib import Path

import pytest
from support.maintainers import load_program

ROOT = Path(__file__).parents[1]
TRACKED = [
    "pyproject.toml",
    "fastfedrec/__init__.py",
    "fastfedrec/systems/private_recommender/advice.json",
    "_kernels/capi.pxd",
    "_kernels/compute/_als.pxd",
    "_kernels/compute/als.pyx",
    "_kernels/compute/networks/gru.py",
    "docs/how-to/evaluate.md",
]
WHEEL = [
    "fastfedrec/__init__.py",
    "fastfedrec/__init__.pyi",
    "fastfedrec/systems/private_recommender/advice.json",
    "fastfedrec/_kernels/capi.pxd",
    "fastfedrec/_kernels/compute/als.cpython-312-x86_64-linux-gnu.so",
    "fastfedrec/_kernels/compute/networks/gru.py",
    "fastfedrec/docs/how-to/evaluate.md",
    "fastfedrec-1.0.dist-info/METADATA",
    "fastfedrec.libs/libgomp-a34b3233.so.1",
]


@pytest.fixture(scope="module")
def dist():
    return load_program(".ci/dist")


@pytest.fixture(scope="module")
def settings():
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


# ---- invariants ------------------------------------------------------------------------------------------------------


def test_whole_archives_have_no_faults(dist):
    assert list(dist.source_faults([*TRACKED, "PKG-INFO", "fastfedrec.egg-info/SOURCES.txt"], TRACKED)) == []
    assert list(dist.wheel_faults(WHEEL, TRACKED)) == []


def test_versions_agree(dist, settings):
    project, wheels = settings["project"], settings["tool"]["cibuildwheel"]
    versions = dist.PYTHONS["supported"](project["requires-python"], project["classifiers"])
    assert wheels["build"] == [f"cp{version.replace('.', '')}-*" for version in versions]
    assert settings["tool"]["mypy"]["python_version"] == versions[0]
    tested = [word for command in wheels["test-command"] for word in command.split() if word.startswith("{project}")]
    assert len(tested) >= 4
    assert all(Path(path.format(project=ROOT)).is_file() for path in tested)


def test_the_description_is_the_readme_without_links_into_the_repository(dist):
    described, readme = distribution("fastfedrec").read_text("METADATA"), (ROOT / "README.md").read_text()
    assert "\nDescription-Content-Type: text/markdown\n" in described
    assert list(dist.description_faults(described)) == []
    headings = re.findall(r"^#+ .*$", readme, flags=re.MULTILINE)
    assert re.findall(r"^#+ .*$", described, flags=re.MULTILINE) == headings
    # Control: the repository's file without changes does not pass.
    assert len(list(dist.description_faults(f"Name: fastfedrec\n\n{readme}"))) > 10


def test_every_extra_that_users_may_want_is_tried_alone(dist, settings):
    extras = set(settings["project"]["optional-dependencies"])
    assert extras > dist.FOR_DEVELOPERS
    assert set(load_program(".ci/smoke").EXTRAS) == extras - dist.FOR_DEVELOPERS


def test_only_wheels_of_linux_are_repaired(dist, monkeypatch, tmp_path):
    commands = []

    def run(*command, **options):
        commands.append(command)
        (tmp_path / "a-manylinux_2_34_x86_64.whl").touch()

    monkeypatch.setattr(dist, "run", run)
    monkeypatch.setattr(dist.sys, "platform", "darwin")
    assert dist.repaired(tmp_path / "a-macosx.whl", tmp_path) == tmp_path / "a-macosx.whl"
    monkeypatch.setattr(dist.sys, "platform", "linux")
    assert dist.repaired(tmp_path / "a-linux_x86_64.whl", tmp_path).name == "a-manylinux_2_34_x86_64.whl"
    assert [command[1:4] for command in commands] == [("-m", "auditwheel", "repair")]


# ---- bad inputs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", TRACKED)
def test_a_file_missing_from_the_source_archive_is_named(dist, missing):
    (fault,) = dist.source_faults(set(TRACKED) - {missing}, TRACKED)
    assert fault == f"{missing} is tracked, and not in the source archive"


def test_a_file_too_many_is_named(dist):
    (fault,) = dist.source_faults([*TRACKED, "docs/_build/x.html"], TRACKED)
    assert fault == "docs/_build/x.html is in the source archive, and not tracked"
    (fault,) = dist.wheel_faults([*WHEEL, "tests/compute/test_als.py"], TRACKED)
    assert fault == "tests/compute/test_als.py is in the wheel, and no part of the package"


@pytest.mark.parametrize("missing", [*WHEEL[:5], "fastfedrec/docs/how-to/evaluate.md"])
def test_missing_files_of_a_wheel_are_named(dist, missing):
    (fault,) = dist.wheel_faults(set(WHEEL) - {missing}, TRACKED)
    assert fault in (f"{missing} is not in the wheel", "the kernel fastfedrec/_kernels/compute/als is not in the wheel")


def test_links_that_an_index_does_not_have_are_named(dist):
    text = "Name: x\n\n[a](docs/a.md) ![b](b.png) [c](https://example.org) [d](#here)"
    names = [fault.split()[4].rstrip(",") for fault in dist.description_faults(text)]
    assert names == ["docs/a.md", "b.png", "#here"]
    assert list(dist.description_faults("Name: x\n\n")) == ["the metadata have no description"]
