"""Find built pages that are wider than a phone, and serious findings of axe, in a browser.

The program needs Chromium on the path, and the file of axe-core for its findings.  A measuring page is served next to
the built pages.  It shows each page in a frame of the given width, measures it there, and posts the results.
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
  const page = frame.contentDocument, width = page.documentElement.clientWidth, elements = [];
  for (const e of page.body.querySelectorAll("*")) {
    const box = e.getBoundingClientRect(), right = Math.max(box.right, scrolls(e) ? 0 : box.left + e.scrollWidth);
    if (box.width && right > width + 1 && box.left < width && !scrolls(e.parentElement))
      elements.push(`${e.tagName.toLowerCase()}.${e.className}: ${e.textContent.trim().slice(0, 60)}`);
  }
  return {excess: page.scrollingElement.scrollWidth - width, elements: elements.slice(-3)};
};
const examine = async frame => {
  const page = frame.contentDocument, script = page.createElement("script");
  await new Promise((loaded, failed) => {
    Object.assign(script, {onload: loaded, onerror: failed, src: "/axe.js"});
    page.head.append(script);
  });
  const {violations} = await frame.contentWindow.axe.run(page, {resultTypes: ["violations"]});
  return violations.filter(({impact}) => ["serious", "critical"].includes(impact)).map(
    ({id, nodes}) => `${id} (${nodes.length}): ${nodes[0].html.slice(0, 160)}`);
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
    """Serve the built pages, the measuring page, its list of pages and axe, and receive its results."""

    def __init__(self, *arguments, task, axe, results, **options):
        self.generated = {MEASURE: ("text/html", PROGRAM), "/pages": ("application/json", json.dumps(task))}
        if axe is not None:
            self.generated["/axe.js"] = ("text/javascript", axe)
        self.results = results
        super().__init__(*arguments, **options)

    def do_GET(self):
        """Send a generated page, or a file of the folder."""
        file = Path(self.translate_path(self.path))
        if self.path in self.generated:
            kind, text = self.generated[self.path]
        elif "/axe.js" in self.generated and file.suffix == ".html":  # a content policy would block axe
            kind, text = "text/html", re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", file.read_text())
        else:
            return super().do_GET()
        self.send_response(200)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.end_headers()
        self.wfile.write(text.encode())

    def do_POST(self):
        """Put the posted results into the queue."""
        self.results.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *arguments):
        """Write no log."""


def measure(folder, width, program, seconds, axe=None, dark=False):
    """Return the excess width of each page with the elements that cause it, and the serious findings of axe."""
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
            measured = results.get(timeout=seconds)
        finally:
            browser.terminate()
            browser.wait()
            server.shutdown()
    if measured.keys() != set(names):
        raise SystemExit(f"the browser stopped: {measured.get('error')}")
    return measured


def main():
    """Print every page that is wider than a phone, and the serious findings of axe."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--width", type=int, default=390, help="width in CSS pixels (390)")
    parser.add_argument("--axe", type=Path, help="file axe.min.js, or a folder that contains it")
    parser.add_argument("--dark", action="store_true", help="use the dark color scheme")
    parser.add_argument("--seconds", type=float, default=1800, help="maximum time for all pages (1800)")
    arguments = parser.parse_args()
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        raise SystemExit("neither chromium nor google-chrome is on the path")
    axe = None
    if arguments.axe is not None:
        (file,) = arguments.axe.rglob("axe.min.js") if arguments.axe.is_dir() else (arguments.axe,)
        axe = file.read_text()
    measured = measure(arguments.folder.resolve(), arguments.width, program, arguments.seconds, axe, arguments.dark)
    wide = {name: page for name, page in measured.items() if page["excess"] > 0}
    for name, page in wide.items():
        print(f"{name}: {page['excess']} too wide", *page["elements"], sep="\n    ")
    print(f"{len(wide)} of {len(measured)} pages are wider than {arguments.width}")
    bad = {name: page["findings"] for name, page in measured.items() if page.get("findings")}
    for name, findings in bad.items():
        print(name, *findings, sep="\n    ")
    if axe is not None:
        print(f"axe has serious findings in {len(bad)} of them")
    sys.exit(bool(wide or bad))


if __name__ == "__main__":
    main()
