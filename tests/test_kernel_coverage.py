"""Tests of the program that counts which lines of the kernels the tests run."""

import shutil
import subprocess
from types import SimpleNamespace

import pytest
from support.maintainers import load_program

SOURCE = """\
template <int level> int half(int number) {
    if (number % 2)
        return -1;
    return number / 2;
}
int main(int count, char **) {
    return count > 1 ? half<1>(1) + 1 : half<2>(2) - 1;
}
"""
WRITTEN = """\
static int __Pyx_helper(void);
  /* "_kernels/a.pyx":4
 * def f():
 */
  f();
  /* "_kernels/_b.pxd":7
 */
  g();
  /* function exit code */
  return 0;
}
"""


@pytest.fixture
def program():
    return load_program(".ci/kernel_coverage")


@pytest.mark.skipif(not (shutil.which("g++") and shutil.which("gcov")), reason="needs g++ and gcov")
def test_a_line_ran_if_any_copy_of_it_ran(program, tmp_path):
    (tmp_path / "_kernels").mkdir()
    (tmp_path / "temp").mkdir()
    (tmp_path / "_kernels/half.cpp").write_text(SOURCE)
    for copy in ("one", "two"):
        command = ["g++", "--coverage", "-O0", "-o", f"temp/{copy}", "_kernels/half.cpp"]
        subprocess.run(command, cwd=tmp_path, check=True)
    subprocess.run([tmp_path / "temp/one"], check=True)
    lines = program.read_counts(tmp_path, tmp_path)["_kernels/half.cpp"]
    assert [number for number, ran in lines.items() if not ran] == [3]  # neither copy ran with an odd number
    assert program.total({"half": lines}) == 1 - 1 / len(lines)
    subprocess.run([tmp_path / "temp/two", "odd"], check=True)
    assert all(program.read_counts(tmp_path, tmp_path)["_kernels/half.cpp"].values())


def test_lines_that_cython_writes_belong_to_the_line_in_the_comment_above(program, tmp_path):
    path = tmp_path / "a.cpp"
    path.write_text(WRITTEN)
    assert [place for place in program.places(path, "build/a.cpp") if place] == [
        *[("_kernels/a.pyx", 4)] * 4,
        *[("_kernels/_b.pxd", 7)] * 3,
    ]
    assert list(program.places(path, "_kernels/a.cpp"))[-1] == ("_kernels/a.cpp", 11)


def test_the_table_names_each_line_that_did_not_run(program):
    lines = {"_kernels/b.pyx": {1: True, 2: True}, "_kernels/a.cpp": dict.fromkeys([3, 4, 5, 9], False)}
    table = program.format_table(lines)
    assert table.splitlines()[1:] == ["  0.0%  _kernels/a.cpp: 3-5, 9", "100.0%  _kernels/b.pyx"]


@pytest.mark.parametrize(("n_ran", "failed_tests", "status"), [(96, 0, 0), (94, 0, 1), (96, 1, 1)])
def test_too_few_lines_or_a_failed_test_fail(program, monkeypatch, tmp_path, capsys, n_ran, failed_tests, status):
    def run(command, **options):
        text = f"{tmp_path}/lib/fastfedrec/__init__.py plain" if "-c" in command else ""
        return subprocess.CompletedProcess(command, 0, stdout=text)

    monkeypatch.setattr(program.subprocess, "run", run)
    tests = SimpleNamespace(wait=lambda: failed_tests)
    monkeypatch.setattr(program.subprocess, "Popen", lambda command, **options: tests)
    monkeypatch.setattr(program, "read_counts", lambda out: {"a.pyx": {n: n < n_ran for n in range(100)}})
    assert program.main(["--out", str(tmp_path), "tests/test_api.py"]) == status
    assert f"{n_ran}.0% of all lines" in capsys.readouterr().out
