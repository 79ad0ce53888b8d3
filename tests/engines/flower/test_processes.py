"""Tests of Flower as deployed: the examples over a SuperLink and two SuperNodes on loopback, and SIGKILL.

Every message is a new process, so this takes minutes; `test_app.py` tests the content of messages.
"""

import contextlib
import importlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed (extra 'flower')")

from support.patience import HANG, wait_until
from support.server_keys import make_keys
from support.shuffler_process import Certificates, ShufflerProcess

from fastfedrec import DPALS, Key, load
from fastfedrec.accounting import Ledger
from fastfedrec.core.model_files import read_model

EXAMPLES = Path(__file__).parents[3] / "examples/flower"
BIN = Path(sys.executable).parent
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for processes in /proc"),
    pytest.mark.skipif(not (BIN / "flower-superlink").exists(), reason="Flower's commands are not beside Python"),
]


def wait_for(condition):
    matches = []
    wait_until(lambda: matches.append(condition()) or matches[-1])
    return matches[-1]


def free_port():
    """Return a port that the system selects."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


class Federation:
    """SuperLink and its nodes, each in a separate process group; `close` ends all of them."""

    def __init__(self, folder, app, seed, files=None, **environment):
        self.folder, self.groups, self.files, self.port = folder, {}, files, free_port()
        self.app = folder / "app"  # installing an app writes beside it
        shutil.copytree(app, self.app, ignore=shutil.ignore_patterns("__pycache__"))
        home = folder / "home"
        home.mkdir()
        secure = "insecure = true" if files is None else f'root-certificates = "{files("server")["authority"]}"'
        address = f'address = "127.0.0.1:{self.port}"\n{secure}\n'
        (home / "config.toml").write_text(f'[superlink]\ndefault = "here"\n\n[superlink.here]\n{address}')
        settings = {"FLWR_HOME": str(home), "FLWR_TELEMETRY_ENABLED": "0", "FASTFEDREC_FOLDER": str(folder / "server")}
        path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
        settings |= environment | ({} if seed is None else {"FASTFEDREC_SEED": str(seed)})
        self.environment = os.environ | settings | {"PATH": path}
        self.start_link()

    def start_link(self):
        # A SuperLink that starts again knows its nodes from the file.
        link = ["flower-superlink", "--disable-runtime-dependency-installation"]
        link += ["--database", str(self.folder / "link.db")]
        if self.files is None:
            link += ["--insecure"]
        else:
            pairs = zip(("ca-cert", "cert", "key"), self.files("server").values(), strict=True)
            link += ["--enable-supernode-auth", *(f"--ssl-{kind}file={path}" for kind, path in pairs)]
        self.start("link", [*link, "--host", "127.0.0.1", "--port", str(self.port)])
        wait_for(self.is_up)

    def is_up(self):
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def start(self, name, command):
        with open(self.folder / f"{name}.log", "ab") as log:
            self.groups[name] = subprocess.Popen(
                [str(BIN / command[0]), *command[1:]],
                env=self.environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def start_node(self, name, partition, config=""):
        config = f'name="{name}" folder="{self.folder / name}" partition-id={partition} num-partitions=2 {config}'
        address = ["--superlink", f"127.0.0.1:{self.port}", "--port", str(free_port())]
        address += ["--node-config", config]
        if self.files is None:
            self.start(name, ["flower-supernode", "--insecure", *address])
            return
        secure = ["--root-certificates", self.files(name)["authority"]]
        secure += ["--auth-supernode-private-key", self.folder / f"{name}.ssh"]
        self.start(name, ["flower-supernode", *map(str, secure), *address])

    def make_ssh_key(self, name):
        command = ["ssh-keygen", "-q", "-t", "ecdsa", "-b", "384", "-N", "", "-f", str(self.folder / f"{name}.ssh")]
        subprocess.run(command, check=True, capture_output=True)

    def register(self, name):
        """Register a node's public key at the SuperLink."""
        command = [str(BIN / "flwr"), "supernode", "register", str(self.folder / f"{name}.ssh.pub"), "here"]
        subprocess.run(command, env=self.environment, check=True, capture_output=True, timeout=HANG)

    def run(self):
        command = [str(BIN / "flwr"), "run", str(self.app), "here"]
        subprocess.run(command, env=self.environment, check=True, capture_output=True, timeout=HANG)

    def finished_round(self):
        state = self.folder / "server/state"
        return read_model(state)[0]["round"] if state.exists() else -1

    def processes(self, command):
        """Return process ids of this federation, found by the home folder in their environment."""
        mark, matches = f"FLWR_HOME={self.folder / 'home'}".encode(), []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdecimal() and mark in (entry / "environ").read_bytes().split(b"\0"):
                    matches += [int(entry.name)] * (command.encode() in (entry / "cmdline").read_bytes())
            except OSError:
                continue
        return matches

    def kill(self, name):
        process = self.groups.pop(name)
        # The process group includes the children of Flower's commands.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def close(self):
        for name in list(self.groups):
            self.kill(name)
        for pid in self.processes(""):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def federation(tmp_path):
    made = []

    def make(app, seed=None, system=None):
        made.append(Federation(tmp_path, EXAMPLES / app, seed))
        if system is not None:
            task = made[0].app / f"{app}_flower/task.py"
            lines = task.read_text().splitlines(keepends=True)
            changed = [f"SYSTEM = {system!r}\n" if line.startswith("SYSTEM =") else line for line in lines]
            names = "from fastfedrec import FMFLDP, Interactions"
            task.write_text("".join(changed).replace(names, f"{names}, {type(system).__name__}"))
        for partition, name in enumerate("ab"):
            made[0].start_node(name, partition)
        return made[0]

    yield make
    for federation in made:
        federation.close()


def task_of(app, monkeypatch):
    """Return the module of the example."""
    monkeypatch.syspath_prepend(str(EXAMPLES / app))
    return importlib.import_module(f"{app}_flower.task")


def everybody(task):
    class Context:
        node_config = {"num-partitions": 1, "partition-id": 0}  # noqa: RUF012 -- as Flower's

    return task.load(Context)


# ---- invariants -----------------------------------------------------------------------------------------------------


def test_the_server_is_killed_and_then_a_node(federation, monkeypatch):
    there = federation("fmf_ldp", seed=3)
    there.run()
    wait_for(lambda: there.finished_round() >= 0)
    for pid in wait_for(lambda: there.processes("flwr-serverapp")):
        os.kill(pid, signal.SIGKILL)
    before = there.finished_round()
    there.run()
    wait_for(lambda: there.finished_round() > before)
    there.kill("b")
    there.start_node("b", 1)
    wait_for((there.folder / "server/model").exists)
    task = task_of("fmf_ldp", monkeypatch)
    here = task.SYSTEM.fit(everybody(task), key=Key.from_seed(3))
    np.testing.assert_array_equal(load(there.folder / "server/model").item_factors_, here.item_factors_)


def test_an_app_of_another_model_is_private(federation):
    there = federation("private_regression")
    program, ledger = there.app / "private_regression.py", there.folder / "ledger.json"
    text = program.read_text()
    for old, new in (
        ("n_nodes=400, sampling_probability=0.25", "n_nodes=2, sampling_probability=1.0"),
        ("n_rounds=15", "n_rounds=2"),
        ("num_rounds=15", "num_rounds=2"),
    ):
        assert text.count(old) == 1
        text = text.replace(old, new)
    last = "from pathlib import Path; assert not any(strategy.silent.values())"
    program.write_text(f"{text}    {last}; Path({str(ledger)!r}).write_text(strategy.ledger.to_json())\n")
    there.run()
    stored = Ledger.from_json(wait_for(lambda: ledger.exists() and ledger.read_text()))
    assert sum(stored.events.values()) == 2
    assert not stored.is_simulation
    assert 3.9 < stored.epsilon("public") <= 4.0


def test_entities_with_separate_keys(federation, monkeypatch):
    there = federation("private_prototypes")
    there.run()
    wait_for((there.folder / "server/model").exists)
    assert {path.stat().st_mode & 0o777 for path in there.folder.glob("[ab]/run-*/key.json")} == {0o600}
    model = load(there.folder / "server/model")
    assert not model.ledger_.is_simulation
    task = task_of("private_prototypes", monkeypatch)
    data = everybody(task)
    here = task.SYSTEM.fit(data, entities=np.arange(data.n_users) < 150, key=Key.from_seed(3))
    assert (model.item_factors_ != here.item_factors_).any()  # other keys, other noise
    assert model.ledger_.epsilon("server") == here.ledger_.epsilon("server")


def test_a_system_with_its_fit_as_server_is_killed_between_phases(federation, monkeypatch):
    system = DPALS(4.0, n_factors=4)  # counts, a start, and two rounds of least squares
    there = federation("fmf_ldp", seed=3, system=system)
    there.run()
    wait_for((there.folder / "server/round-1-0").exists)
    for pid in wait_for(lambda: there.processes("flwr-serverapp")):
        os.kill(pid, signal.SIGKILL)
    assert not (there.folder / "server/model").exists()
    there.run()
    wait_for((there.folder / "server/model").exists)
    here = system.fit(everybody(task_of("fmf_ldp", monkeypatch)), key=Key.from_seed(3))
    model = load(there.folder / "server/model")
    np.testing.assert_array_equal(model.item_factors_, here.item_factors_)
    assert model.ledger_.to_dict() == here.ledger_.to_dict()


@contextlib.contextmanager
def supervised(start, find_process):
    """Start a process, and start it again whenever it ends, as a supervisor of services does."""
    is_over = threading.Event()

    def watch():
        while not is_over.is_set():
            process = find_process()
            if process is None or process.poll() is not None:
                start()
            is_over.wait(0.5)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


HAS_COMMANDS = all(map(shutil.which, ("openssl", "ssh-keygen")))


@pytest.mark.skipif(not HAS_COMMANDS, reason="makes certificates and keys")
def test_a_node_and_the_superlink_are_killed_and_connect_again_under_tls(tmp_path, monkeypatch):
    files = Certificates(tmp_path / "certificates")
    there = Federation(tmp_path, EXAMPLES / "fmf_ldp", 3, files)
    try:
        for partition, name in enumerate("ab"):
            there.make_ssh_key(name)
            there.register(name)
            there.start_node(name, partition)
        there.run()
        wait_for(lambda: there.finished_round() >= 0)
        there.kill("b")
        before = there.finished_round()
        # The SuperLink refuses a second connection of a node until it has missed the first one's heartbeats.
        with supervised(lambda: there.start_node("b", 1), lambda: there.groups.get("b")):
            wait_for(lambda: there.finished_round() > before + 1)
        there.kill("link")
        assert not (there.folder / "server/model").exists()
        there.start_link()
        there.run()
        wait_for((there.folder / "server/model").exists)
        assert there.groups["a"].poll() is None  # it connected again by itself
    finally:
        there.close()
    task = task_of("fmf_ldp", monkeypatch)
    here = task.SYSTEM.fit(everybody(task), key=Key.from_seed(3))
    model = load(there.folder / "server/model")
    np.testing.assert_array_equal(model.item_factors_, here.item_factors_)
    assert model.ledger_.epsilon("server", 0) == 5 * 250.0  # each round counts once


@pytest.mark.skipif(not HAS_COMMANDS, reason="makes certificates and keys")
def test_a_shuffler_certificates_and_nodes_that_are_known(tmp_path, monkeypatch):
    """Follow docs/how-to/deploy-with-flower.md: TLS everywhere, two registered nodes, and one unregistered node."""
    files = Certificates(tmp_path / "certificates")
    files("server")
    private, public = make_keys(tmp_path / "keys")
    hop = ShufflerProcess(tmp_path, 200, 100, 300, files, server_key=public)
    addresses = {"FASTFEDREC_SHUFFLER": hop.url, "FASTFEDREC_CERTIFICATES": str(files.folder)}
    addresses["FASTFEDREC_SERVER_KEYS"] = str(private)
    there = Federation(tmp_path, EXAMPLES / "fmf_ldp", None, files, **addresses)
    try:
        for partition, name in enumerate(["a", "b", "stranger"]):
            there.make_ssh_key(name)
            if name != "stranger":
                there.register(name)
            settings = " ".join(f'shuffler-{kind}="{path}"' for kind, path in files(name).items())
            settings += f' server-key="{public}"'
            there.start_node(name, partition % 2, f'shuffler="{hop.url}" {settings}')
        there.run()
        wait_for(lambda: there.finished_round() >= 1)
        hop.kill()
        hop.start()
        wait_for((there.folder / "server/model").exists)
        assert "stranger" not in (tmp_path / "link.log").read_text()
        assert there.groups["stranger"].poll() is not None  # it was sent away, and ended
    finally:
        there.close()
        hop.kill()
    model = load(there.folder / "server/model")
    assert {type(event).__name__: times for event, times in model.ledger_.events.items()} == {"ShuffledReports": 5}
    assert model.ledger_.epsilon("server", 0) == 5 * 250.0
    assert not model.ledger_.is_simulation
    assert hop.log() == ""
    header, _ = read_model(there.folder / "server/state")
    assert header["members"] == {"a": 150, "b": 150}
