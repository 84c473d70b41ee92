"""Asks `troupe serve` about real runs, also live ones, as programs and as a browser do.

  serve_test.py TROUPE GATED_RUN [unittest arguments]
"""
import contextlib
import http.client
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path
from urllib.parse import urlencode

import command_line_test as base  # takes the programs from the command line

LIMIT_S = base.LIMIT_S


class Server:
    """`troupe serve`, and requests to it."""

    def __init__(self, storage, *options, prefix=()):
        self.process = subprocess.Popen([*prefix, base.TROUPE, "serve", storage, "--json", *map(str, options)], stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(self.process.stderr.read())
        self.url = json.loads(line)["url"]
        address, self.token = self.url.removeprefix("http://").split("/#token=")
        self.port = int(address.split(":")[1])

    def end(self, number=signal.SIGINT):
        """Exit code and what it said."""
        self.process.send_signal(number)
        output, errors = self.process.communicate(timeout=LIMIT_S)
        return self.process.returncode, output, errors

    def close(self):
        if self.process.returncode is None:
            self.process.kill()
            self.process.communicate()

    def ask(self, method, path, **fields):
        """Status and body of the answer."""
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT_S)) as connection:
            connection.request(method, path, headers={k.replace("_", "-"): v for k, v in fields.items()})
            answer = connection.getresponse()
            return answer.status, answer.read().decode()

    def stop(self, run, **fields):
        return self.ask("POST", "/stop?" + urlencode({"run": run}), **{"Authorization": f"Bearer {self.token}", **fields})

    def open_stream(self, run="", token=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT_S)
        connection.request("GET", "/events?" + urlencode({"token": token or self.token, "run": run}))
        return connection, connection.getresponse()

    @contextlib.contextmanager
    def watch(self, run="", whole=True):
        """The events of a stream: kind and document. With whole=False, news are not put into the documents."""
        connection, answer = self.open_stream(run)
        try:
            assert answer.status == 200, answer.status
            assert answer.headers["Content-Type"] == "text/event-stream"
            yield self.documents(self.events(answer)) if whole else self.events(answer)
        finally:
            answer.close()
            connection.close()

    def whole(self, run):
        """The document of a reader that comes now."""
        with self.watch(run, whole=False) as events:
            return next(events)[1]

    @staticmethod
    def events(answer):
        kind = None
        while line := answer.readline().decode():
            if line.startswith("event: "):
                kind = line.removeprefix("event: ").strip()
            elif line.startswith("data: "):
                yield kind, json.loads(line.removeprefix("data: "))

    @staticmethod
    def documents(events):
        last = (None, None)
        for kind, x in events:
            last = (last[0], changed(last[1], x)) if kind == "news" else (kind, x)
            yield last


def changed(old, news):
    """What *old* becomes by *news*, as in page/live.js."""
    if "is" in news:
        return news["is"]
    if isinstance(old, dict):
        result = {name: x for name, x in old.items() if name not in news.get("gone", ())}
        return result | {name: changed(old.get(name), x) for name, x in news.get("fields", {}).items()}
    begin, end = news["skip"], news["skip"] + news["keep"]
    if isinstance(old, str):
        return old.encode("utf-16-le")[2 * begin:2 * end].decode("utf-16-le") + news["add"]
    kept = old[begin:end]
    for i, x in news.get("items", {}).items():
        kept[int(i)] = changed(kept[int(i)], x)
    return kept + news["add"]


def until(events, condition):
    """The first event that meets the condition."""
    for kind, x in events:
        if condition(kind, x):
            return x
    raise AssertionError("the stream ended")


class ServeTest(base.CommandLineTest):
    def serve(self, *options):
        server = Server(self.storage, *options)
        self.addCleanup(server.close)
        return server

    def hold(self, name, *options):
        driver, gate = self.runs.hold(name, *options)
        self.addCleanup(gate.close)
        return driver, gate

    def browser(self):
        program = os.environ.get("TROUPE_CHROMIUM") or shutil.which("chromium")
        if not program:
            if os.environ.get("CI") == "true":
                self.fail("there is no chromium on PATH: run ./dev test")
            self.skipTest("there is no chromium on PATH and TROUPE_CHROMIUM is not set: run ./dev test")
        browser = Chromium(program)
        self.addCleanup(browser.close)
        return browser


class LiveTest(ServeTest):
    def test_the_list_grows_with_the_runs_of_the_folder(self):
        self.runs.make("digits")
        with self.serve().watch() as events:
            first = until(events, lambda kind, _: kind == "runs")
            self.assertEqual([(x["name"], x["state"], x["reports"], x["score"]) for x in first["runs"]],
                             [("digits", "finished", 4, 0.25)])
            self.runs.make("letters", "--fails-at", 2, code=3)
            until(events, lambda _, x: [(y["name"], y["state"]) for y in x["runs"]] == [("digits", "finished"), ("letters", "errored")])
            shutil.rmtree(self.storage / "digits")
            until(events, lambda _, x: [y["name"] for y in x["runs"]] == ["letters"])

    def test_an_empty_folder_is_served_until_runs_come(self):
        self.storage.mkdir()
        with self.serve().watch() as events:
            self.assertEqual(next(events)[1]["runs"], [])
            self.runs.make("digits")
            until(events, lambda _, x: [y["state"] for y in x["runs"]] == ["finished"])

    def test_reports_are_shown_as_they_come(self):
        _, gate = self.hold("live")
        with self.serve().watch("live") as events:
            first = until(events, lambda kind, x: kind == "run" and x["run"]["reports"] == 2)
            self.assertEqual([first["state"], first["can_stop"]], ["running", True])
            gate.close()
            last = until(events, lambda _, x: x["state"] == "finished")
            (loss,) = (x for x in last["run"]["groups"]["metrics"]["charts"] if x["title"] == "loss")
            self.assertEqual(loss["curves"][0]["mean"], [1, 0.5, 0.333333, 0.25])
            self.assertFalse(last["can_stop"])

    def test_a_reader_gets_the_whole_document_once_and_then_what_is_new(self):
        driver, gate = self.hold("live", "--steps", 40, "--every", 0)
        server = self.serve()
        with server.watch("live", whole=False) as events:
            kind, document = next(events)
            self.assertEqual([kind, document["state"], bool(document["run"]["environment"])], ["run", "running", True])
            gate.close()
            driver.wait(timeout=LIMIT_S)
            while document["state"] != "finished" or document != server.whole("live"):
                kind, news = next(events)
                self.assertEqual(kind, "news")
                self.assertNotIn("environment", news["fields"].get("run", {}).get("fields", {}))
                document = changed(document, news)
        self.assertEqual([document["state"], document["run"]["reports"]], ["finished", 40])

    def test_what_the_kernel_does_not_announce_is_looked_for(self):
        self.drive_elsewhere()
        _, gate = self.hold("far")
        prefix, afar = self.seen_from_afar()
        server = Server(afar, prefix=prefix)
        self.addCleanup(server.close)
        with server.watch("far") as events:
            until(events, lambda kind, x: kind == "run" and x["state"] == "elsewhere" and x["run"]["reports"] == 2)
            gate.close()
            until(events, lambda kind, x: kind == "run" and x["run"]["reports"] == 4)

    def test_runs_that_come_unannounced_are_listed(self):
        self.runs.make("digits")
        outside = self.runs.make("letters").rename(self.storage.parent / "letters")
        prefix, afar = self.seen_from_afar()
        server = Server(afar, prefix=prefix)
        self.addCleanup(server.close)
        with server.watch() as events:
            until(events, lambda _, x: [y["name"] for y in x["runs"]] == ["digits"])
            outside.rename(self.storage / "letters")
            until(events, lambda _, x: [y["name"] for y in x["runs"]] == ["digits", "letters"])

    def test_a_run_that_had_ended_and_is_resumed_unannounced_is_followed(self):
        self.drive_elsewhere()
        self.runs.make("far", "--fails-at", 2, code=3)
        prefix, afar = self.seen_from_afar()
        server = Server(afar, prefix=prefix)
        self.addCleanup(server.close)
        with server.watch("far") as events:
            until(events, lambda kind, x: kind == "run" and x["state"] == "errored" and x["run"]["reports"] == 2)
            self.runs.make("far")
            until(events, lambda kind, x: kind == "run" and x["run"]["reports"] == 4)

    def test_a_run_whose_folder_cannot_be_watched_is_looked_at(self):
        self.runs.make("digits")
        _, gate = self.hold("live")
        # Those of the storage folder itself.
        prefix = base.in_namespace("-Ur", "echo 2 > /proc/sys/user/max_inotify_watches")
        if subprocess.run([*prefix, "true"], stderr=subprocess.DEVNULL).returncode != 0:
            self.skipTest("no limit of watches: not permitted")
        server = Server(self.storage, prefix=prefix)
        self.addCleanup(server.close)
        with server.watch() as events:
            (complaint,) = until(events, lambda _, x: len(x["runs"]) == 2)["complaints"]
            self.assertIn(", and 1 more", complaint)
        with server.watch("live") as events:
            until(events, lambda kind, x: kind == "run" and x["run"]["reports"] == 2)
            gate.close()
            until(events, lambda kind, x: kind == "run" and x["run"]["reports"] == 4)

    def test_on_a_local_file_system_it_waits_for_the_kernel_alone(self):
        folder = tempfile.TemporaryDirectory(dir="/dev/shm")
        self.addCleanup(folder.cleanup)
        server = Server(folder.name)
        self.addCleanup(server.close)
        with server.watch() as events:
            next(events)
            deadline = time.monotonic() + LIMIT_S
            while time.monotonic() < deadline:
                # The number of a system call and its arguments, of which the third is the limit of `poll`.
                call = Path(f"/proc/{server.process.pid}/syscall").read_text().split()
                if call[0] == "7" and int(call[3], 16) & 0xffffffff == 0xffffffff or call[0] == "271" and call[3] == "0x0":
                    return
        self.fail("it looks at the folder now and then")

    def test_the_end_of_a_killed_driver_is_seen_at_once(self):
        driver, gate = self.hold("live")
        server = self.serve()
        with server.watch() as events, server.watch("live") as of_run:
            until(events, lambda _, x: x["runs"][0]["state"] == "running")
            until(of_run, lambda _, x: x["state"] == "running")
            driver.kill()
            driver.wait()
            gate.close()
            until(events, lambda _, x: x["runs"][0]["state"] == "lost")
            until(of_run, lambda _, x: x["state"] == "lost" and not x["can_stop"])

    def test_a_run_that_is_removed_and_made_again_is_followed(self):
        self.runs.make("digits")
        with self.serve().watch("digits") as events:
            until(events, lambda kind, x: kind == "run" and x["run"]["reports"] == 4)
            base.troupe("rm", "digits", "--yes", "-s", self.storage)
            until(events, lambda kind, x: kind == "problem" and x["message"] == "there is no run digits")
            self.runs.make("digits", "--steps", 6)
            until(events, lambda kind, x: kind == "run" and x["state"] == "finished" and x["run"]["reports"] == 6)

    def test_damaged_lines_are_complaints(self):
        journal = self.runs.make("digits") / "journal.jsonl"
        lines = journal.read_bytes().split(b"\n")
        lines[3] = lines[3].replace(b"1", b"2", 1)
        journal.write_bytes(b"\n".join(lines))
        (self.storage / "pictures").mkdir()
        server = self.serve()
        with server.watch("digits") as events:
            complaints = next(events)[1]["run"]["complaints"]
            self.assertIn("1 line of the journal could not be read", complaints[0])
        with server.watch() as events:
            self.assertEqual(next(events)[1]["complaints"], ["pictures: not the folder of a run"])

    def test_without_a_reader_nothing_is_read(self):
        self.storage.mkdir()
        server = self.serve()
        with server.watch() as events:
            next(events)
        server.ask("GET", "/")  # after which the stream's end is known

        def sleeps():
            text = Path(f"/proc/{server.process.pid}/status").read_text()
            return int(text.split("\nvoluntary_ctxt_switches:")[1].split()[0])
        before = sleeps()
        self.runs.make("digits", "--steps", 20)
        self.assertLessEqual(sleeps() - before, 5)  # ends of connections, and not 20 reports


class ComparisonTest(ServeTest):
    def test_a_run_that_is_missing_is_named_until_it_is_there(self):
        self.runs.make("digits")
        with self.serve().watch("digits\nletters") as events:
            until(events, lambda kind, x: kind == "problem" and x["message"] == "there is no run letters")
            self.runs.make("letters")
            x = until(events, lambda kind, x: kind == "comparison" and all(y["status"] == "finished" for y in x["comparison"]["runs"]))
            self.assertEqual([y["name"] for y in x["comparison"]["runs"]], ["digits", "letters"])

    def test_of_a_journal_what_is_new_is_read(self):
        journal = self.runs.make("digits", "--steps", 10_000, "--every", 0) / "journal.jsonl"
        _, gate = self.hold("live")
        server = self.serve()

        def bytes_read():
            return int(Path(f"/proc/{server.process.pid}/io").read_text().split("rchar: ")[1].split()[0])
        with server.watch("digits\nlive") as events:
            next(events)
            before = bytes_read()
            self.assertGreater(before, journal.stat().st_size)
            gate.close()
            x = until(events, lambda _, x: x["comparison"]["runs"][1]["status"] == "finished")
            self.assertLess(bytes_read() - before, journal.stat().st_size / 2)
            self.assertEqual([y["reports"] for y in x["comparison"]["runs"]], [10_000, 4])

    def test_too_many_runs_are_refused(self):
        self.runs.make("digits")
        with self.serve().watch("\n".join(["digits"] * 33)) as events:
            self.assertEqual(next(events)[1]["message"], "33 runs were chosen; at most 32 can be compared")


class StopTest(ServeTest):
    def test_a_run_is_stopped_with_the_token_only(self):
        driver, gate = self.hold("live", "--steps", 1_000_000, "--every", 0)
        server = self.serve()
        for fields in ({"Authorization": "Bearer " + "0" * 32}, {"Authorization": server.token}, {"Authorization": ""},
                       {"Origin": "http://evil.example"}, {"Origin": "null"}, {"Sec_Fetch_Site": "cross-site"}):
            self.assertEqual(server.stop("live", **fields)[0], 403, fields)
        self.assertEqual(server.stop("live", Host="evil.example")[0], 421)
        self.assertEqual(server.ask("POST", f"/stop?run=live&token={server.token}")[0], 403)
        self.assertEqual(server.ask("GET", "/stop?run=live", Authorization=f"Bearer {server.token}")[0], 405)
        self.assertFalse((self.storage / "live/end_request").exists())
        status, said = server.stop("live", Origin=f"http://127.0.0.1:{server.port}", Sec_Fetch_Site="same-origin")
        self.assertEqual(status, 200)
        self.assertIn(f"pid {driver.pid} ", said)
        gate.close()
        driver.wait(timeout=LIMIT_S)
        self.assertEqual(self.listed()["live"]["state"], "aborted")

    def test_a_run_without_a_driver_is_refused(self):
        self.runs.make("digits")
        server = self.serve()
        status, why = server.stop("digits")
        self.assertEqual(status, 409)
        self.assertIn("it is finished", why)
        self.assertEqual(server.stop("letters")[0], 404)


class AccessTest(ServeTest):
    def test_nothing_but_runs_is_served(self):
        self.runs.make("digits")
        (self.storage / "secret.txt").write_text("secret")
        outside = self.runs.copy(self.storage / "digits", "../outside")
        self.assertTrue(outside.exists())
        server = self.serve()
        for path in ("/secret.txt", "/digits/state.json", "/../storage/secret.txt", "/%2e%2e/storage", "//", "/favicon.ico"):
            self.assertEqual(server.ask("GET", path), (404, "404 Not Found\n"), path)
        for run in ("../outside", ".", "..", "secret.txt", "digits/..", "digits/checkpoints", "digits\0"):
            with server.watch(run) as events:
                self.assertEqual(next(events)[0], "problem", run)

    def test_a_stream_needs_the_token(self):
        self.runs.make("hidden-digits")
        server = self.serve()
        self.assertEqual(server.ask("GET", "/events")[0], 403)
        connection, answer = server.open_stream(token="f" * 32)
        self.assertEqual(answer.status, 403)
        connection.close()
        status, page = server.ask("GET", "/")
        self.assertEqual(status, 200)
        self.assertNotIn(server.token, page)
        self.assertNotIn("hidden-digits", page)

    def test_another_user_is_not_served(self):
        if os.geteuid() != 0:
            self.skipTest("only root can ask as another user")
        self.runs.make("digits")
        server = self.serve()
        ask = "import socket, sys; x = socket.create_connection(('127.0.0.1', int(sys.argv[1])));" \
              "x.sendall(b'GET / HTTP/1.1\\r\\n\\r\\n'); print(len(x.recv(100)))"
        for user, size in ((base.NOBODY, "0"), (0, "100")):
            done = subprocess.run(["/usr/bin/python3", "-c", ask, str(server.port)], user=user, capture_output=True, text=True,
                                  timeout=LIMIT_S, cwd="/")
            self.assertIn(done.stdout.strip(), (size, "") if user else (size,), done.stderr)

    def test_the_number_of_readers_is_limited(self):
        self.storage.mkdir()
        server = self.serve()
        with contextlib.ExitStack() as stack:
            for _ in range(16):
                next(stack.enter_context(server.watch()))
            connection, answer = server.open_stream()
            self.assertEqual(answer.status, 503)
            connection.close()
            self.assertEqual(server.ask("GET", "/")[0], 200)


class ProgramTest(ServeTest):
    def test_it_ends_with_a_signal(self):
        self.runs.make("digits")
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            server = self.serve()
            with server.watch() as events:
                next(events)
                self.assertEqual(server.end(number), (0, "", ""))

    def test_a_port_that_is_taken_is_named(self):
        self.storage.mkdir()
        server = self.serve()
        _, complaint = base.troupe("serve", self.storage, "--port", server.port, code=1)
        self.assertIn(f"127.0.0.1:{server.port}: Address already in use", complaint)

    def test_refuses_a_folder_without_runs(self):
        run = self.runs.make("digits")
        (self.storage.parent / "other/music").mkdir(parents=True)
        for path, why in ((run, "is a run"), (self.storage / "none", "no folder"), (self.storage.parent / "other", "is not a folder of runs")):
            self.assertIn(why, base.troupe("serve", path, code=2)[1])
        self.assertIn("--help", base.troupe("serve", "--port", 70000, code=2)[1])

    def test_a_folder_that_goes_away_ends_it(self):
        self.storage.mkdir()
        server = self.serve()
        with server.watch() as events:
            next(events)
            self.storage.rmdir()
            _, errors = server.process.communicate(timeout=LIMIT_S)
        self.assertEqual(server.process.returncode, 1)
        self.assertIn("is gone", errors)

    def test_without_a_reader_it_ends_with_its_folder_as_well(self):
        for name, take_away in (("removed", lambda path: path.rmdir()), ("moved", lambda path: path.rename(self.storage.parent / "elsewhere"))):
            path = self.storage / name
            path.mkdir(parents=True)
            server = Server(path)
            self.addCleanup(server.close)
            take_away(path)
            _, errors = server.process.communicate(timeout=LIMIT_S)
            self.assertEqual(server.process.returncode, 1)
            self.assertIn(f"{name} is gone", errors)


class Chromium:
    """A page in headless Chromium, which listens at a pipe."""

    def __init__(self, program):
        self.profile = tempfile.TemporaryDirectory()
        to_browser, self.output = os.pipe()
        self.input, from_browser = os.pipe()

        def connect():
            commands, answers = os.dup(to_browser), os.dup(from_browser)
            os.dup2(commands, 3)
            os.dup2(answers, 4)
        self.process = subprocess.Popen(
            [program, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--remote-debugging-pipe", "--disable-dev-shm-usage",
             "--disable-background-networking", "--disable-component-update", f"--user-data-dir={self.profile.name}", "about:blank"],
            env={**os.environ, "HOME": self.profile.name}, preexec_fn=connect, pass_fds=(3, 4), stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        os.close(to_browser)
        os.close(from_browser)
        self.numbers = itertools.count(1)
        self.unread = b""
        self.complaints = []  # of the page
        self.session = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Runtime.enable")
        self.call("Log.enable")

    def close(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self.output)
        os.close(self.input)
        for _ in range(100):  # its helpers may still write
            with contextlib.suppress(OSError):
                self.profile.cleanup()
                return

    def receive(self):
        while b"\0" not in self.unread:
            more = os.read(self.input, 65536)
            if not more:
                raise AssertionError("Chromium has ended")
            self.unread += more
        text, self.unread = self.unread.split(b"\0", 1)
        return json.loads(text)

    def call(self, method, **arguments):
        number = next(self.numbers)
        message = {"id": number, "method": method, "params": arguments, **({"sessionId": self.session} if self.session else {})}
        os.write(self.output, json.dumps(message).encode() + b"\0")
        while (x := self.receive()).get("id") != number:
            if x.get("method") in ("Log.entryAdded", "Runtime.exceptionThrown"):
                self.complaints.append(x["params"])
        if "error" in x:
            raise AssertionError(x["error"])
        return x["result"]

    def run(self, script):
        result = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            raise AssertionError(result["exceptionDetails"])
        return result["result"].get("value")

    def wait(self, script):
        """The value of *script* once it is true, which it may become when the document changes."""
        return self.run(f"""new Promise(done => {{
          const look = () => {{ const x = ({script}); if (x) {{ watch.disconnect(); done(x); }} }};
          const watch = new MutationObserver(look);
          watch.observe(document, {{ subtree: true, childList: true, attributes: true, characterData: true }});
          look();
        }})""")


class BrowserTest(ServeTest):
    def test_a_curve_grows_and_the_button_stops_the_run(self):
        points = """(document.querySelector('[data-group="metrics"] [data-name="loss"] .curve')?.getAttribute('d') ?? '').split(',').length - 1"""
        state = "document.querySelector('.title .status')?.textContent"
        self.runs.make("digits")
        driver, gate = self.hold("live run", "--steps", 1_000_000, "--every", 0)
        browser = self.browser()
        server = self.serve()
        browser.call("Page.navigate", url=server.url)
        browser.wait("document.querySelectorAll('main tbody tr').length === 2")
        browser.run("[...document.querySelectorAll('main a')].find(x => x.textContent === 'live run').click()")
        browser.wait(f"{points} === 2")
        self.assertEqual(browser.run(state), "running")
        browser.run("document.querySelector('nav[aria-label=Sections] a[href=\"#config\"]').click()")
        gate.close()
        browser.wait(f"{points} > 100")
        browser.run("document.querySelector('.stop button').click()")  # which asks
        self.assertIn("sure?", browser.run("document.querySelector('.stop button').textContent"))
        self.assertFalse((self.storage / "live run/end_request").exists())
        browser.run("document.querySelector('.stop button').click()")
        browser.wait(f"{state} === 'aborted'")
        driver.wait(timeout=LIMIT_S)
        while browser.run("globalThis.seen = live.document") != server.whole("live run"):
            browser.wait("live.document !== seen")
        self.assertFalse(browser.run("!!document.querySelector('.stop')"))
        browser.run("document.querySelector('nav[aria-label=Pages] a').click()")
        browser.wait("document.querySelector('h1').textContent === 'Runs' && document.querySelectorAll('main tbody tr').length === 2")
        self.assertEqual(browser.complaints, [])
        server.end()
        browser.wait("document.getElementById('state')?.textContent.includes('cannot be reached')")

    def test_the_button_stops_the_run_although_all_connections_are_taken(self):
        driver, gate = self.hold("live", "--steps", 1_000_000, "--every", 0)
        browser = self.browser()
        browser.call("Page.navigate", url=self.serve().url + "&run=live")
        browser.wait("document.querySelector('.stop button')")
        browser.run("""Promise.all(Array.from({ length: 5 }, () => new Promise(done => {
          new EventSource(live.source.url).addEventListener('open', done);
        })))""")  # as of five more pages
        for _ in range(2):
            browser.run("document.querySelector('.stop button').click()")
        browser.wait(f"document.querySelector('.stop .hint')?.textContent.includes('pid {driver.pid} ')")
        gate.close()
        driver.wait(timeout=LIMIT_S)
        self.assertEqual(self.listed()["live"]["state"], "aborted")

    def test_a_page_that_is_hidden_holds_no_connection(self):
        self.runs.make("digits")
        browser = self.browser()
        browser.call("Page.navigate", url=self.serve().url)
        browser.wait("document.querySelectorAll('main tbody tr').length === 1")
        for hidden in ("true", "false"):
            browser.run("globalThis.before = live.source")
            browser.run(f"Object.defineProperty(document, 'hidden', {{ get: () => {hidden}, configurable: true }})")
            browser.run("document.dispatchEvent(new Event('visibilitychange'))")
            if hidden == "true":
                self.assertTrue(browser.run("before.readyState === EventSource.CLOSED && live.source === null"))
        self.runs.make("letters")
        browser.wait("document.querySelectorAll('main tbody tr').length === 2")
        self.assertEqual(browser.complaints, [])

    def test_the_only_run_can_be_chosen(self):
        self.runs.make("digits")
        browser = self.browser()
        browser.call("Page.navigate", url=self.serve().url)
        browser.wait("document.querySelector('main input')")
        browser.run("document.querySelector('main input').click()")
        self.assertEqual(browser.run("document.getElementById('compare')?.textContent"), "Choose runs to compare them.")
        self.assertEqual(browser.complaints, [])

    def test_runs_that_are_chosen_are_compared_as_they_grow(self):
        points = """[...document.querySelectorAll('[data-group="metrics"] [data-name="loss"] .curve')].map(x => x.getAttribute('d').split(',').length - 1)"""
        self.runs.make("digits")
        self.runs.make("letters")
        _, gate = self.hold("live run")
        browser = self.browser()
        browser.call("Page.navigate", url=self.serve().url)
        browser.wait("document.getElementById('compare')?.textContent === 'Choose runs to compare them.'")
        for name in ("digits", "live run"):
            browser.run(f"document.querySelector('main input[data-run=\"{name}\"]').click()")
        browser.wait("document.querySelector('#compare a')?.textContent === 'Compare 2 runs'")
        browser.run("document.querySelector('#compare a').click()")
        browser.wait(f"({points}).join() === '4,2'")
        self.assertEqual(browser.run("[...document.querySelectorAll('#runs tbody .status')].map(x => x.textContent).join()"), "finished,running")
        self.assertFalse(browser.run("!!document.querySelector('.stop')"))
        gate.close()
        browser.wait(f"({points}).join() === '4,4' && document.querySelectorAll('#runs [data-status=finished]').length === 2")
        browser.run("document.querySelector('nav[aria-label=Pages] a').click()")
        browser.wait("document.querySelectorAll('main input:checked').length === 2")
        self.assertEqual(browser.complaints, [])


if __name__ == "__main__":
    unittest.main()
