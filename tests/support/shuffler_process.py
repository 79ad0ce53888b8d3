"""A shuffler as a process of its own, for tests; and certificates, made by openssl."""

import os
import signal
import socket
import subprocess
import sys

from fastfedrec.engines.shuffling.shuffler import ShufflerClient

COMMAND = "import sys; from fastfedrec.cli.main import main; sys.exit(main())"


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


class ShufflerProcess:
    """`fastfedrec shuffler` on loopback; a port of its own for its whole life, however often it is killed."""

    def __init__(self, folder, min_crowd, n_reports, n_coordinates, files=None, **options):
        self.port, self.folder, self.files = free_port(), folder, files
        options = {"min-crowd": min_crowd, "reports": n_reports, "coordinates": n_coordinates} | options
        options |= {"folder": folder / "shuffler", "listen": f"127.0.0.1:{self.port}"}
        secure = ["--insecure"] if files is None else [f"--{name}={path}" for name, path in files("shuffler").items()]
        self.command = [sys.executable, "-P", "-c", COMMAND, "shuffler", *secure]
        self.command += [f"--{name}={value}" for name, value in options.items()]
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
        """As seen by one party."""
        files = {} if self.files is None else self.files(name)
        return ShufflerClient(self.url, name=name, **{k.replace("-", "_"): path for k, path in files.items()})


class Certificates:
    """An authority, and a certificate for each name on loopback; call it with a name for the three files."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir()
        self._run("req", "-x509", "-nodes", "-days", "2", "-subj", "/CN=authority", *self._new("ca"), "-out", "ca.crt")

    def __call__(self, name):
        if not (self.folder / f"{name}.crt").exists():
            (self.folder / "names").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
            self._run("req", "-nodes", "-subj", f"/CN={name}", *self._new(name), "-out", f"{name}.csr")
            signed = ["-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "names"]
            self._run("x509", "-req", "-in", f"{name}.csr", *signed, "-out", f"{name}.crt")
        files = {"authority": "ca.crt", "certificate": f"{name}.crt", "private-key": f"{name}.key"}
        return {kind: self.folder / file for kind, file in files.items()}

    def _new(self, name):
        return ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-keyout", f"{name}.key"]

    def _run(self, *arguments):
        subprocess.run(["openssl", *arguments], cwd=self.folder, check=True, capture_output=True)
