"""A shuffler as a separate process for tests, and certificates made by openssl as on the page."""

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

from fastfedrec.engines.shuffling.shuffler import ShufflerClient

COMMAND = "import sys; from fastfedrec.cli.main import main; sys.exit(main())"


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


class ShufflerProcess:
    """`fastfedrec shuffler` on loopback, with the same port for its lifetime, also after it is killed."""

    def __init__(self, folder, min_crowd, n_reports, n_coordinates, files=None, server_key=None, **options):
        self.port, self.folder, self.files = free_port(), folder, files
        options = {"min-crowd": min_crowd, "reports": n_reports, "coordinates": n_coordinates} | options
        options |= {"folder": folder / "shuffler", "listen": f"127.0.0.1:{self.port}"}
        secure = ["--insecure"] if files is None else [f"--{name}={path}" for name, path in files("shuffler").items()]
        self.command = [sys.executable, "-P", "-c", COMMAND, "shuffler", *secure]
        self.command += [f"--{name}={value}" for name, value in options.items()]
        self.command.append("--unsealed" if server_key is None else f"--server-key={server_key}")
        self.process = None
        self.start()

    @property
    def url(self):
        return f"http{'s' * (self.files is not None)}://127.0.0.1:{self.port}"

    def start(self):
        with open(self.folder / "shuffler.log", "ab") as log:
            self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=log)
        assert self.process.stdout.readline().startswith(b"listening"), self.log()

    def kill(self):
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.process.stdout.close()

    def log(self):
        return (self.folder / "shuffler.log").read_text()

    def client(self, name):
        """Return a client of one party."""
        return ShufflerClient(self.url, name=name, **({} if self.files is None else self.files.of_client(name)))


PAGE = Path(__file__).resolve().parents[2] / "docs/how-to/deploy-with-flower.md"
#: The page's commands: an authority, and a certificate of `server`, which names its host.
AUTHORITY, SERVER = re.search(r"(?s)(openssl req -x509.*?)(openssl req .*?)ssh-keygen", PAGE.read_text()).groups()


class Certificates:
    """An authority, and a certificate for each name on loopback; a call with a name returns the three files."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir()
        self.run(AUTHORITY)

    def __call__(self, name):
        if not (self.folder / f"{name}.crt").exists():
            self.run(SERVER.replace("DNS:server", "IP:127.0.0.1,DNS:localhost").replace("server", name))
        files = {"authority": "ca.crt", "certificate": f"{name}.crt", "private-key": f"{name}.key"}
        return {kind: self.folder / file for kind, file in files.items()}

    def of_client(self, name):
        """Return the three files by the names of `ShufflerClient`'s parameters."""
        return {kind.replace("-", "_"): path for kind, path in self(name).items()}

    def run(self, commands):
        subprocess.run(["sh", "-ec", commands], cwd=self.folder, check=True, capture_output=True)
