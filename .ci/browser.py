"""Built pages in a browser: those that are wider than a phone, and what axe finds serious in them, light and dark.

Needs Chromium on the path, and for the second axe-core's one file.  A page of ours, served beside the built ones,
shows each of them in a frame of the given width, measures it there, and posts what it found.
"""

import argparse
import functools
import json
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

MEASURE = "/measure"
PROGRAM = """<!doctype html><title>measure</title><body style="margin:0"><script>
const scrolls = e => e && e.tagName != "BODY" && (
  /auto|scroll|hidden|clip/.test(getComputedStyle(e).overflowX) || scrolls(e.parentElement));
const show = frame => {
  const page = frame.contentDocument, width = page.documentElement.clientWidth, found = [];
  for (const e of page.body.querySelectorAll("*")) {
    const box = e.getBoundingClientRect(), right = Math.max(box.right, scrolls(e) ? 0 : box.left + e.scrollWidth);
    if (box.width && right > width + 1 && box.left < width && !scrolls(e.parentElement))
      found.push(`${e.tagName.toLowerCase()}.${e.className}: ${e.textContent.trim().slice(0, 60)}`);
  }
  return {excess: page.scrollingElement.scrollWidth - width, elements: found.slice(-3)};
};
const examine = async frame => {
  const page = frame.contentDocument, script = page.createElement("script");
  await new Promise((loaded, failed) => {
    Object.assign(script, {onload: loaded, onerror: failed, src: "/axe.js"});
    page.head.append(script);
  });
  const {violations} = await frame.contentWindow.axe.run(page, {resultTypes: ["violations"]});
  return violations.filter(found => ["serious", "critical"].includes(found.impact)).map(
    found => `${found.id} (${found.nodes.length}): ${found.nodes[0].html.slice(0, 160)}`);
};
(async () => {
  const {pages, width, axe} = await (await fetch("/pages")).json(), results = {};
  for (const name of pages) {
    const frame = document.createElement("iframe");
    frame.style = `width:${width}px;height:900px;border:0`;
    document.body.replaceChildren(frame);
    await new Promise(loaded => { frame.onload = loaded; frame.src = "/" + encodeURI(name); });
    await frame.contentDocument.fonts.ready;
    await frame.contentWindow.MathJax?.startup?.promise;
    results[name] = show(frame);
    if (axe) results[name].findings = await examine(frame);
  }
  await fetch("/results", {method: "POST", body: JSON.stringify(results)});
})().catch(error => fetch("/results", {method: "POST", body: JSON.stringify({error: String(error)})}));
</script>"""


class Handler(SimpleHTTPRequestHandler):
    """Built pages as files; our own page, the list it goes through, axe, and where its results go."""

    def __init__(self, *arguments, task, axe, results, **options):
        self.own = {MEASURE: ("text/html", PROGRAM), "/pages": ("application/json", json.dumps(task))}
        if axe is not None:
            self.own["/axe.js"] = ("text/javascript", axe)
        self.results = results
        super().__init__(*arguments, **options)

    def do_GET(self):
        """Answer with one of ours, or a file."""
        file = Path(self.translate_path(self.path))
        if self.path in self.own:
            kind, text = self.own[self.path]
        elif "/axe.js" in self.own and file.suffix == ".html":  # without a policy that would keep axe out
            kind, text = "text/html", re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", file.read_text())
        else:
            return super().do_GET()
        self.send_response(200)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.end_headers()
        self.wfile.write(text.encode())

    def do_POST(self):
        """Take the results."""
        self.results.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *arguments):
        """Say nothing."""


def measure(folder, width, program, seconds, axe=None, dark=False):
    """How much wider than `width` each page is, and why; with axe's text also what that finds serious."""
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.html"))
    results, task = queue.Queue(), {"pages": names, "width": width, "axe": axe is not None}
    handler = functools.partial(Handler, directory=folder, task=task, axe=axe, results=results)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server, tempfile.TemporaryDirectory() as profile:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}{MEASURE}"
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
        browser = subprocess.Popen(
            [program, *options, "--disable-component-update", "--disable-sync", f"--user-data-dir={profile}",
             "--remote-debugging-port=0", "--window-size=1400,1000",
             f"--blink-settings=preferredColorScheme={0 if dark else 1}", url],
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            found = results.get(timeout=seconds)
        finally:
            browser.terminate()
            browser.wait()
            server.shutdown()
    if found.keys() != set(names):
        raise SystemExit(f"the browser stopped: {found.get('error')}")
    return found


def main():
    """Print every page that a phone cannot show without scrolling to the side, and what axe finds serious."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--width", type=int, default=390, help="CSS pixels (390)")
    parser.add_argument("--axe", type=Path, help="a folder that holds axe.min.js, or such a file")
    parser.add_argument("--dark", action="store_true", help="as on a device that asks for dark pages")
    parser.add_argument("--seconds", type=float, default=1800, help="to wait at most (1800)")
    arguments = parser.parse_args()
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        raise SystemExit("neither chromium nor google-chrome is on the path")
    axe = None
    if arguments.axe is not None:
        (file,) = arguments.axe.rglob("axe.min.js") if arguments.axe.is_dir() else (arguments.axe,)
        axe = file.read_text()
    found = measure(arguments.folder.resolve(), arguments.width, program, arguments.seconds, axe, arguments.dark)
    wide = {name: page for name, page in found.items() if page["excess"] > 0}
    for name, page in wide.items():
        print(f"{name}: {page['excess']} too wide", *page["elements"], sep="\n    ")
    print(f"{len(wide)} of {len(found)} pages are wider than {arguments.width}")
    bad = {name: page["findings"] for name, page in found.items() if page.get("findings")}
    for name, findings in bad.items():
        print(name, *findings, sep="\n    ")
    if axe is not None:
        print(f"axe finds something serious in {len(bad)} of them")
    sys.exit(bool(wide or bad))


if __name__ == "__main__":
    main()
