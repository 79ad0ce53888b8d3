"""The measure of plain English counts each kind of fault, and its program fails where a figure is above its limit."""

import subprocess
import sys
from pathlib import Path

import pytest
from support.maintainers import load_program

PROGRAM = Path(__file__).resolve().parents[1] / ".ci/plain_words.py"
PLAIN = '"""Return the number of users."""\n\n# The count includes users without items.\nn_users = 1\n'
# One fault in each text, and the name that the program gives it.
FAULTS = {
    "what": '"""Return what the users sent."""\n# A comment.\n',
    "fragments": '"""Of all users the items."""\n# A comment.\n',
    "vague names": PLAIN + "found = 1\n",
    "comments (too few)": '"""Return the number of users."""\n\nn_users = 1\n',
    "nobody": PLAIN + 'raise ValueError("nobody is a user")\n',
    "tell": PLAIN + "# The report tells the server.\n",
}


def run(*arguments, cwd=None):
    done = subprocess.run([sys.executable, PROGRAM, *map(str, arguments)], capture_output=True, text=True, cwd=cwd)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def file(tmp_path):
    return tmp_path / "sample.py"


def test_plain_text_passes(file):
    file.write_text(PLAIN)
    code, out, err = run(file)
    assert (code, err) == (0, "")
    assert "tell 0.0 (1)" in out
    assert "fragments 0.0%" in out


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_named(file, name):
    file.write_text(FAULTS[name])
    code, out, err = run("--lines", 5, file)
    assert code == 1
    assert err.startswith(f"above the limit: {name};")
    has_line = name not in ("vague names", "comments (too few)")  # these are counted by file
    assert (f"{file}:" in out) == has_line


def test_labels_and_descriptions_of_options_are_prose(file):
    for call in ('axes.set(xlabel="what the server sees")', 'parser.add_argument("--n", help="what is printed")'):
        file.write_text(f"{PLAIN}{call}\n")
        assert run(file)[0] == 1
        file.write_text(f"{PLAIN}{call.replace('what', 'items')}\n")
        assert run(file)[0] == 0


def test_comments_of_files_without_a_suffix_are_prose(tmp_path):
    makefile = tmp_path / "Makefile"
    makefile.write_text("# what is made\nwhat:\n")
    assert run(makefile)[0] == 1
    makefile.write_text("# the files of a build\nwhat:\n")
    assert run(makefile)[0] == 0


def test_a_small_group_fails_alone(tmp_path):
    """The prose of a large folder does not compensate for faults of a small one."""
    groups = load_program(".ci/plain_words").GROUPS
    names = [name for group in groups for name in group]
    missing = [name for name in names if not (PROGRAM.parents[1] / name).exists()]
    assert missing == []
    large, small = (tmp_path / name / "sample.py" for name in ("tests", "examples"))
    for file in (large, small):
        file.parent.mkdir()
    large.write_text(f"{PLAIN}# {'word ' * 30_000}\n")
    small.write_text(FAULTS["nobody"])
    assert run("tests", "examples", cwd=tmp_path)[0] == 0
    code, _, err = run(cwd=tmp_path)
    assert code == 1
    assert err.startswith("above the limit: nobody;")


def test_code_examples_and_formulas_are_no_prose(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("The sum of `what` and $what$ in [a page](what.md).\n\n```\nwhat\n```\n")
    docstring = tmp_path / "module.py"
    docstring.write_text('"""Return a number.\n\nExamples\n--------\n>>> what\n"""\n# A comment.\n')
    assert run(page)[0] == run(docstring)[0] == 0
    page.write_text("The page describes what users sent.\n")
    assert run(page)[0] == 1


def test_compiled_sources_have_their_comments_counted(tmp_path):
    for name, mark in (("a.cpp", "//"), ("b.pyx", "#")):
        source = tmp_path / name
        source.write_text(f"int x; {mark} what the users sent\n")
        assert run(source)[0] == 1
        source.write_text("int what;\n")
        assert run(source)[0] == 0
