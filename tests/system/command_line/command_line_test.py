"""Asks the command line about real runs: finished, failed, killed, live, damaged.

  command_line_test.py TROUPE GATED_RUN [unittest arguments]
"""
import contextlib
import fcntl
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

TROUPE, GATED_RUN = (Path(sys.argv.pop(1)).resolve() for _ in range(2))
ROOT = Path(__file__).resolve().parents[3]
LIMIT_S = 120  # of one program; none comes near it
NOBODY = 65534

sys.path.insert(0, str(ROOT / "tests/chaos"))
from xxh3 import xxh3_64  # noqa: E402


def troupe(*arguments, code=0, environment=None, program=TROUPE, **options):
    """What `troupe` printed to stdout and stderr; fails if it does not end with *code*."""
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, timeout=LIMIT_S,
                          stdin=subprocess.DEVNULL, env={**os.environ, **(environment or {})}, **options)
    if done.returncode != code:
        raise AssertionError(f"{arguments} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return done.stdout, done.stderr


def troupe_json(*arguments, code=0):
    return json.loads(troupe(*arguments, "--json", code=code)[0])


def on_terminal(*arguments, columns=100, environment=None):
    """Exit code of `troupe` and what it drew on a terminal."""
    pid, terminal = pty.fork()
    if pid == 0:
        try:
            import struct
            import termios
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))
            os.environ.pop("NO_COLOR", None)
            os.environ.update({"TERM": "xterm", **(environment or {})})
            os.execv(TROUPE, ["troupe", *map(str, arguments)])
        finally:
            os._exit(127)
    drawn = b""
    with contextlib.suppress(OSError):  # the program has closed its end
        while more := os.read(terminal, 65536):
            drawn += more
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), drawn.decode()


def signed(document):
    """The bytes of a file of a run with the fields *document*, as its writer would sign it."""
    text = json.dumps({k: v for k, v in document.items() if k != "sum"}, separators=(",", ":"))[:-1].encode()
    return text + f',"sum":"{xxh3_64(text):016x}"}}\n'.encode()


class Runs:
    """A storage folder with real runs."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory()
        self.storage = Path(self.folder.name) / "storage"
        self.drivers = []
        self.prefix = []  # what starts drivers

    def close(self):
        for driver in self.drivers:
            driver.kill()
            driver.wait()
            driver.stderr.close()
        self.folder.cleanup()

    def start(self, name, *arguments):
        driver = subprocess.Popen([*self.prefix, GATED_RUN, "--storage", self.storage, "--name", name, *map(str, arguments)],
                                  stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.drivers.append(driver)
        return driver

    def make(self, name, *arguments, code=0):
        driver = self.start(name, *arguments)
        _, errors = driver.communicate(timeout=LIMIT_S)
        if driver.returncode != code:
            raise AssertionError(f"{name} ended with {driver.returncode}:\n{errors}")
        return self.storage / name

    def hold(self, name, *arguments, step=2):
        """A run whose rank 0 waits before *step*, and the open gate: closing it lets the run continue."""
        gate = Path(self.folder.name) / f"{name}.gate"
        os.mkfifo(gate)
        driver = self.start(name, "--hold", step, "--gate", gate, *arguments)
        return driver, open(gate, "wb")  # waits for rank 0 to open its end

    def copy(self, run, name):
        shutil.copytree(run, self.storage / name)
        return self.storage / name


def in_namespace(kind, command, *arguments):
    """Starts a program with new namespaces, after a command of the shell."""
    return ["unshare", kind, "sh", "-c", command + ' && exec "$@"', "sh", *arguments]


class CommandLineTest(unittest.TestCase):
    def setUp(self):
        self.runs = Runs()
        self.addCleanup(self.runs.close)
        self.storage = self.runs.storage

    def drive_elsewhere(self):
        """From now on drivers are on a host with another name."""
        prefix = in_namespace("--uts", "hostname elsewhere")
        if subprocess.run([*prefix, "true"], stderr=subprocess.DEVNULL).returncode != 0:
            self.skipTest("no other host name: not permitted")
        self.runs.prefix = prefix

    def seen_from_afar(self):
        """What starts a program that sees the files of the storage folder in `afar`, where the kernel announces no change, as on NFS."""
        empty, afar = (Path(self.runs.folder.name) / name for name in ("empty", "afar"))
        for path in (empty, afar):
            path.mkdir()
        prefix = in_namespace("--mount", f"mount -t overlay overlay -o lowerdir={self.storage}:{empty} {afar}")
        if subprocess.run([*prefix, "true"], stderr=subprocess.DEVNULL).returncode != 0:
            self.skipTest("no overlay: not permitted")
        return prefix, afar

    def give_away(self, path):
        """Root may write everywhere: gives *path* to another user. Returns the options with which `troupe` runs as its owner."""
        if os.geteuid() != 0:
            return {}
        Path(self.runs.folder.name).chmod(0o755)
        program = Path(self.runs.folder.name) / "troupe"
        shutil.copy(TROUPE, program)
        for x in (path, *path.rglob("*")):
            os.chown(x, NOBODY, NOBODY)
        return {"program": program, "user": NOBODY}

    def listed(self, code=0):
        return {x["name"]: x for x in troupe_json("ls", self.storage, code=code)["runs"]}


class LsTest(CommandLineTest):
    def test_each_run_has_its_state_and_numbers(self):
        self.runs.make("digits")
        self.runs.make("again", "--fails-at", 2, "--max-failures", 1)
        self.runs.make("banana", "--fails-at", 2, code=3)
        driver, gate = self.runs.hold("killed")
        driver.kill()
        driver.wait()
        gate.close()
        _, live_gate = self.runs.hold("live")
        self.addCleanup(live_gate.close)
        listed = self.listed()
        found = {name: [x[k] for k in ("state", "reports", "restarts", "failures", "checkpoints", "ranks")]
                 for name, x in listed.items()}
        self.assertEqual(found, {"digits": ["finished", 4, 0, 0, 4, 2], "again": ["finished", 4, 1, 1, 4, 2],
                                 "banana": ["errored", 2, 0, 1, 2, 2], "killed": ["lost", 2, 0, 0, 2, 2],
                                 "live": ["running", 2, 0, 0, 2, 2]})
        self.assertEqual(listed["digits"]["metrics"], {"loss": 0.25, "note": "step 3", "step": 3})
        self.assertEqual([listed["digits"][k] for k in ("score_name", "score", "driver", "error")],
                         ["loss", 0.25, None, None])
        self.assertEqual(listed["live"]["driver"]["pid"], self.runs.drivers[-1].pid)
        self.assertIn("banana", listed["banana"]["error"])
        table, _ = troupe("ls", self.storage)
        self.assertEqual(table.splitlines()[0].split(),
                         ["NAME", "STATE", "REPORTS", "RESTARTS", "STARTED", "DURATION", "SCORE", "ID"])
        self.assertRegex(table, r"digits +finished +4 +0 .* loss=0.25 +" + listed["digits"]["id"][:8])

    def test_a_metric_that_no_run_has_is_refused_once_there_are_reports(self):
        _, gate = self.runs.hold("young", step=0)
        self.addCleanup(gate.close)
        self.assertIn("young", troupe("ls", self.storage, "--metric", "lss")[0])
        self.runs.make("digits")
        for options in ([], ["--json"]):
            output, complaint = troupe("ls", self.storage, "--metric", "lss", *options, code=2)
            self.assertEqual([output, complaint], ["", "troupe ls: no run has a metric 'lss'; did you mean loss?\n"])
        self.assertIn("'accuracy'; there is loss, note, step\n", troupe("ls", self.storage, "--metric", "accuracy", code=2)[1])
        self.assertEqual(troupe("ls", self.storage, "--metric", "step")[1], "")

    def test_a_metric_need_not_be_in_the_last_report(self):
        journal = self.runs.make("digits") / "journal.jsonl"
        lines = journal.read_bytes().splitlines(keepends=True)
        last = max(i for i, line in enumerate(lines) if line.startswith(b'{"batch":'))
        batch = json.loads(lines[last])
        for values in batch["values"]:
            del values["step"]
        journal.write_bytes(b"".join([*lines[:last], signed(batch), *lines[last + 1:]]))
        table, complaints = troupe("ls", self.storage, "--metric", "step")
        self.assertRegex(table, r"digits +finished +4 +0 .* - +[0-9a-f]{8}\n$")
        self.assertEqual(complaints, "")

    def test_names_a_folder_that_is_not_a_run_and_shows_the_runs(self):
        self.runs.make("digits")
        (self.storage / "pictures").mkdir()
        (self.storage / "notes.txt").write_text("not a folder")
        table, complaints = troupe("ls", self.storage)
        self.assertIn("digits", table)
        self.assertEqual(complaints, "troupe: pictures: not the folder of a run\n")
        (strange,) = troupe_json("ls", self.storage)["strange"]
        self.assertEqual([Path(strange["path"]).name, strange["code"]], ["pictures", "invalid argument"])

    def test_a_damaged_run_is_shown_with_its_cause(self):
        whole = self.runs.make("digits")
        for file in ("run.json", "state.json"):
            path = self.runs.copy(whole, f"broken {file}") / file
            path.write_bytes(path.read_bytes().replace(b'"', b"'", 1))
        (self.runs.copy(whole, "no journal") / "journal.jsonl").unlink()
        listed = self.listed(code=1)
        self.assertEqual({name: (x["state"], [p["code"] for p in x["problems"]]) for name, x in listed.items()},
                         {"digits": ("finished", []), "broken run.json": ("finished", ["corrupt"]),
                          "broken state.json": ("unreadable", ["corrupt"]), "no journal": ("finished", ["corrupt"])})
        table, complaints = troupe("ls", self.storage, code=1)
        self.assertEqual(len(table.splitlines()), 5)
        self.assertIn("broken run.json: ", complaints)

    def test_a_lost_state_is_rebuilt_but_not_for_another_program(self):
        (self.runs.make("digits") / "state.json").unlink()
        (self.storage / "project").mkdir()
        (self.storage / "project/run.json").write_text('{"of": "another program"}\n')
        said = {x["name"]: [p["message"] for p in x["problems"] if "state.json" in p["message"]]
                for x in self.listed(code=1).values()}
        self.assertRegex(said["digits"][0], r"there is no .*/state\.json; the next start of the run rebuilds it$")
        self.assertRegex(said["project"][0], r"there is no .*/state\.json; the next start refuses the folder: .* holds run\.json, but no run")

    def test_a_run_that_was_being_replaced_is_not_listed(self):
        whole = self.runs.make("digits")
        (self.runs.copy(whole, ".replaced-digits-59a8ab74") / "state.json").unlink()
        self.runs.copy(whole, ".replaced-digits")  # which may be a name
        self.assertEqual(sorted(self.listed()), [".replaced-digits", "digits"])

    def test_the_folder_of_mlflow_is_not_listed_but_a_run_of_its_name_is(self):
        self.runs.make("digits")
        tree = self.storage / "mlruns"
        (tree / "0").mkdir(parents=True)
        listed = troupe_json("ls", self.storage)
        self.assertEqual([[x["name"] for x in listed["runs"]], listed["strange"]], [["digits"], []])
        shutil.rmtree(tree)
        self.runs.make("mlruns")
        self.assertEqual(sorted(self.listed()), ["digits", "mlruns"])

    def test_a_newer_format_is_named(self):
        whole = self.runs.make("digits")
        for file, change in (("run.json", {"format": 2}), ("state.json", {"format": 9})):
            path = self.runs.copy(whole, f"newer {file}") / file
            path.write_bytes(signed({**json.loads(path.read_text()), **change}))
        path = self.runs.copy(whole, "newer journal") / "journal.jsonl"
        first, rest = path.read_bytes().split(b"\n", 1)
        path.write_bytes(signed({**json.loads(first), "journal": 7}) + rest)
        listed = self.listed(code=1)
        self.assertEqual({name: [p["code"] for p in x["problems"]] for name, x in listed.items()},
                         {"digits": [], "newer run.json": ["unsupported"], "newer state.json": ["unsupported"],
                          "newer journal": ["unsupported"]})
        shown = troupe_json("show", "newer journal", "-s", self.storage, code=1)
        self.assertEqual([x["code"] for x in shown["problems"]], ["unsupported"], "named once")

    def test_what_may_not_be_read_is_an_error(self):
        self.runs.make("digits")
        Path(self.runs.folder.name).chmod(0o755)
        self.storage.chmod(0o755)
        program = Path(self.runs.folder.name) / "troupe"
        shutil.copy(TROUPE, program)
        if os.geteuid() != 0:
            self.skipTest("only root has runs that others may not read")
        (self.storage / "digits").chmod(0o700)
        output, complaints = troupe("ls", self.storage, code=1, program=program, user=NOBODY)
        self.assertEqual(output, "")  # whether there are runs cannot be known
        self.assertIn("Permission denied", complaints)
        self.storage.chmod(0o700)
        _, complaints = troupe("ls", self.storage, code=1, program=program, user=NOBODY)
        self.assertIn("Permission denied", complaints)
        _, complaints = troupe("show", "digits", "-s", self.storage, code=1, program=program, user=NOBODY)
        self.assertIn("Permission denied", complaints)

    def test_refuses_a_folder_that_is_not_a_storage(self):
        run = self.runs.make("digits")
        file = Path(self.runs.folder.name) / "file"
        file.write_text("")
        other = Path(self.runs.folder.name) / "other"
        (other / "music").mkdir(parents=True)
        others = Path(self.runs.folder.name) / "others"
        for name in ("music", "pictures"):
            (others / name).mkdir(parents=True)
        for path, why in ((run, "is a run"), (file, "not a folder"), (self.storage / "none", "no folder"),
                          (other, "its only folder is not a run"), (others, "none of its 2 folders is a run")):
            output, complaint = troupe("ls", path, code=2)
            self.assertEqual(output, "")
            self.assertIn(why, complaint)

    def test_an_empty_storage_has_no_runs(self):
        self.storage.mkdir()
        self.assertIn("no runs in", troupe("ls", self.storage)[0])
        self.assertEqual(troupe_json("ls", self.storage)["runs"], [])

    def test_the_storage_may_come_from_the_environment(self):
        self.runs.make("digits")
        names, _ = troupe("ls", "--names", environment={"TROUPE_STORAGE": str(self.storage)})
        self.assertEqual(names, "digits\n")

    def test_colors_are_for_terminals(self):
        self.runs.make("digits")
        self.assertNotIn("\033", troupe("ls", self.storage)[0])
        code, drawn = on_terminal("ls", self.storage)
        self.assertEqual(code, 0)
        self.assertIn("\033[32mfinished\033[0m", drawn)
        self.assertNotIn("\033", on_terminal("ls", self.storage, environment={"NO_COLOR": "1"})[1])
        for kind in "dumb", "":
            self.assertNotIn("\033", on_terminal("ls", self.storage, environment={"TERM": kind})[1])
        narrow = on_terminal("ls", self.storage, columns=60, environment={"NO_COLOR": "1"})[1]
        self.assertIn("digits", narrow)

    def test_a_folders_name_does_not_command_the_terminal(self):
        self.runs.make("digits")
        (self.storage / "digits").rename(self.storage / "dig\033[2Jits")
        code, drawn = on_terminal("ls", self.storage, environment={"NO_COLOR": "1"})
        self.assertEqual(code, 0)
        self.assertNotIn("\033", drawn)

    def test_a_closed_pipe_ends_it_quietly(self):
        self.runs.make("digits")
        for restore in (True, False):  # SIGPIPE kills, or is ignored
            reader, writer = os.pipe()
            os.close(reader)
            done = subprocess.run([TROUPE, "ls", self.storage], stdout=writer, stderr=subprocess.PIPE,
                                  restore_signals=restore, timeout=LIMIT_S)
            os.close(writer)
            self.assertEqual([done.returncode, done.stderr], [-signal.SIGPIPE, b""])

    def test_a_full_disk_is_an_error(self):
        self.runs.make("digits")
        with open("/dev/full", "wb") as full:
            done = subprocess.run([TROUPE, "ls", self.storage], stdout=full, stderr=subprocess.PIPE, timeout=LIMIT_S)
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"troupe: cannot write to standard output: No space left", done.stderr)


class ShowTest(CommandLineTest):
    def test_it_has_config_attempts_failures_and_checkpoints(self):
        self.runs.make("digits", "--fails-at", 2, "--max-failures", 1)
        shown = troupe_json("show", "digits", "-s", self.storage)
        self.assertEqual([shown["config"][k] for k in ("lr", "steps")], [0.5, 4])
        first, second = shown["attempt_list"]
        self.assertIn("banana", first["failure"])
        self.assertEqual([first["reports"], second["reports"]], [2, 2])
        self.assertEqual([second["resumed_from"], second["failure"]], ["checkpoint_000001", None])
        self.assertEqual([(x["report"], x["attempt"], x["bytes"], x["best"]) for x in shown["checkpoint_list"]],
                         [(0, 0, 1, False), (1, 0, 1, False), (2, 1, 1, False), (3, 1, 1, True)])
        text, _ = troupe("show", "digits", "-s", self.storage)
        for part in ("Config", "Attempts", "Checkpoints", "Last metrics of rank 0", "banana", "0.25 (best)"):
            self.assertIn(part, text)

    def test_without_scores_the_newest_checkpoint_is_the_best(self):
        for name, score in (("unranked", ""), ("unscored", "accuracy")):
            with self.subTest(name):
                self.runs.make(name, "--score", score)
                shown = troupe_json("show", name, "-s", self.storage)
                self.assertEqual([(x["report"], x["score"], x["best"]) for x in shown["checkpoint_list"]],
                                 [(0, None, False), (1, None, False), (2, None, False), (3, None, True)])
                self.assertRegex(troupe("show", name, "-s", self.storage)[0], r"checkpoint_000003 .* - \(best\)")

    def test_a_run_is_found_by_name_folder_and_id(self):
        path = self.runs.make("digits")
        number = json.loads((path / "run.json").read_text())["id"]
        for words in (["digits", "-s", self.storage], [path], [f"{path}/"], [number[:6], "-s", self.storage]):
            self.assertEqual(troupe_json("show", *words)["id"], number)
        self.assertIn("digits", troupe("show", ".", cwd=path)[0])
        self.assertIn("digits", troupe("show", "digits", cwd=self.storage)[0])

    def test_a_run_that_does_not_exist_is_refused_with_near_names(self):
        self.runs.make("digits")
        for words in (["digist", "-s", self.storage], [self.storage / "digist"]):
            _, complaint = troupe("show", *words, code=2)
            self.assertIn("did you mean digits?", complaint)
        self.assertNotIn("did you mean", troupe("show", "letters", "-s", self.storage, code=2)[1])

    def test_a_live_run_names_its_driver(self):
        driver, gate = self.runs.hold("live")
        self.addCleanup(gate.close)
        self.assertEqual(troupe_json("show", "live", "-s", self.storage)["driver"]["pid"], driver.pid)
        self.assertIn(f"running (pid {driver.pid} on ", troupe("show", "live", "-s", self.storage)[0])

    def test_a_damaged_part_leaves_the_others(self):
        path = self.runs.make("digits")
        (path / "checkpoints/checkpoint_000002/manifest.json").unlink()
        text, complaint = troupe("show", path, code=1)
        self.assertIn("damaged", text)
        self.assertIn("checkpoint_000002", complaint)

    def test_a_journal_that_cannot_be_read_to_its_end_is_named(self):
        journal = self.runs.make("digits", "--fails-at", 2, "--max-failures", 1) / "journal.jsonl"
        lines = journal.read_bytes().splitlines(keepends=True)
        second = next(i for i, x in enumerate(lines) if b'"attempt_begun"' in x and b'"attempt":1,' in x)
        lines.insert(second, signed({"journal": 7}))  # as a newer version might continue it
        journal.write_bytes(b"".join(lines))
        self.assertEqual(self.listed()["digits"]["problems"], [], "its begin and its end are whole")
        shown = troupe_json("show", "digits", "-s", self.storage, code=1)
        self.assertEqual([x["code"] for x in shown["problems"]], ["unsupported"])
        self.assertIn(f"journal.jsonl line {second + 1} ", shown["problems"][0]["message"])
        self.assertEqual([(x["attempt"], x["reports"]) for x in shown["attempt_list"]], [(0, 2)], "what was read is shown")


class TailTest(CommandLineTest):
    def test_it_prints_the_last_reports(self):
        self.runs.make("digits", "--steps", 6)
        text, _ = troupe("tail", "digits", "-s", self.storage, "-n", 2, "-m", "step")
        first, second = text.splitlines()
        self.assertRegex(first, r"^4  \S+ \S+  step=4  checkpoint_000004$")
        self.assertRegex(second, r"^5  \S+ \S+  step=5  checkpoint_000005$")
        rows = [json.loads(x) for x in troupe("tail", "digits", "-s", self.storage, "--json")[0].splitlines()]
        self.assertEqual([x["report"] for x in rows], list(range(6)))
        self.assertEqual(rows[1]["ranks"], [{"loss": 0.5, "note": "step 1", "step": 1}] * 2)

    def test_it_follows_a_live_run_to_its_end(self):
        driver, gate = self.runs.hold("live")
        tail = subprocess.Popen([TROUPE, "tail", "live", "-f", "-s", self.storage], stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        rows = [tail.stdout.readline() for _ in range(2)]  # the run is held: no more may come
        self.assertEqual([x.split()[0] for x in rows], ["0", "1"])
        gate.close()
        output, errors = tail.communicate(timeout=LIMIT_S)
        self.assertEqual([x.split()[0] for x in output.splitlines()], ["2", "3"])
        self.assertEqual([tail.returncode, errors], [0, "troupe: live is finished\n"])

    def test_it_ends_with_the_driver(self):
        driver, gate = self.runs.hold("live")
        tail = subprocess.Popen([TROUPE, "tail", "live", "-f", "-s", self.storage], stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2):
            tail.stdout.readline()
        driver.kill()
        output, errors = tail.communicate(timeout=LIMIT_S)
        gate.close()
        self.assertEqual([tail.returncode, output, errors], [0, "", "troupe: live is lost\n"])

    def test_it_ends_when_no_one_reads(self):
        _, gate = self.runs.hold("live")
        self.addCleanup(gate.close)
        tail = subprocess.Popen([TROUPE, "tail", "live", "-f", "-s", self.storage], stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        tail.stdout.readline()
        tail.stdout.close()
        self.assertIn(tail.wait(timeout=LIMIT_S), (0, -signal.SIGPIPE))
        self.assertEqual(tail.stderr.read(), b"")
        tail.stderr.close()

    def test_a_run_whose_driver_is_elsewhere_is_followed_to_its_end(self):
        self.drive_elsewhere()
        _, gate = self.runs.hold("far")
        self.assertEqual(self.listed()["far"]["state"], "elsewhere")
        tail = subprocess.Popen([TROUPE, "tail", "far", "-s", self.storage, "--follow"], stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        first = [tail.stdout.readline() for _ in range(2)]
        gate.close()
        output, errors = tail.communicate(timeout=LIMIT_S)
        self.assertEqual(len([*first, *output.splitlines()]), 4)
        self.assertIn("far is finished", errors)

    def test_a_long_silence_of_a_driver_elsewhere_is_said(self):
        self.drive_elsewhere()
        driver, gate = self.runs.hold("far")
        driver.kill()
        driver.wait()
        gate.close()
        in_an_hour = time.time() + 3600  # by the clock of the storage
        os.utime(self.storage / "far/journal.jsonl", (in_an_hour, in_an_hour))
        tail = subprocess.Popen([TROUPE, "tail", "far", "-s", self.storage, "--follow", "--silence", "1"], stdin=subprocess.DEVNULL,
                                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.assertRegex(tail.stderr.readline(), "far has written nothing for 1 s; its driver is not on this host")
        tail.kill()
        tail.communicate()

    def test_what_the_kernel_does_not_announce_is_looked_for(self):
        self.drive_elsewhere()
        _, gate = self.runs.hold("far")
        prefix, afar = self.seen_from_afar()
        tail = subprocess.Popen([*prefix, TROUPE, "tail", "far", "-s", afar, "--follow"], stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        for i in range(4):
            self.assertTrue(tail.stdout.readline().startswith(f"{i}  "))
            if i == 1:
                gate.close()
        tail.kill()
        tail.communicate()

    def test_a_metric_that_no_report_has_is_refused(self):
        self.runs.make("digits")
        _, complaint = troupe("tail", "digits", "-s", self.storage, "-m", "los", code=2)
        self.assertIn("no report has a metric 'los'; did you mean loss?", complaint)
        _, complaint = troupe("tail", "digits", "-s", self.storage, "-m", "accuracy", code=2)
        self.assertIn("no report has a metric 'accuracy'; there is loss, note, step\n", complaint)


class PlotTest(CommandLineTest):
    def test_it_draws_a_curve(self):
        self.runs.make("digits", "--steps", 20)
        utf8 = {"LC_ALL": "C.UTF-8"}
        text, _ = troupe("plot", "digits", "loss", "-s", self.storage, "--width", 40, "--height", 5, environment=utf8)
        lines = text.splitlines()
        self.assertEqual(len(lines), 7)
        self.assertIn("loss  last 0.05", lines[0])
        self.assertTrue(all(len(x) <= 40 for x in lines), text)
        self.assertRegex(lines[1], "^ +1 │[\u2800-\u28ff]")
        self.assertRegex(lines[5], "^0.05 │ +[\u2800-\u28ff]+$")
        ascii_text, _ = troupe("plot", "digits", "loss", "step", "-s", self.storage, environment={"LC_ALL": "C"})
        self.assertTrue(ascii_text.isascii())
        self.assertIn("*", ascii_text)
        self.assertIn("step  last 19", ascii_text)

    def test_its_json_has_the_points(self):
        self.runs.make("digits")
        curve = troupe_json("plot", "digits", "loss", "-s", self.storage)["metrics"]["loss"]
        self.assertEqual(curve["x"], [0, 1, 2, 3])
        self.assertEqual(curve["mean"], [1, 0.5, 1 / 3, 0.25])

    def test_it_draws_the_largest_numbers(self):
        journal = self.runs.make("digits") / "journal.jsonl"
        lines = [json.loads(x) for x in journal.read_text().splitlines()]
        losses = iter([1.7e308, -1.7e308, float("nan"), 1.7e308])
        for line in lines:
            if "batch" in line:
                loss = next(losses)
                line["values"] = [{"loss": loss if loss == loss else {"float": "nan"}}]
        journal.write_bytes(b"".join(map(signed, lines)))
        rows = troupe("plot", "digits", "loss", "-s", self.storage, "--ascii")[0].splitlines()
        self.assertRegex(rows[1], r"^ *1\.7e\+308 \|\*+ +\*$")
        self.assertRegex(rows[-2], r"^-1\.7e\+308 \| +\*+$")

    def test_it_has_the_width_of_the_terminal(self):
        self.runs.make("digits")
        code, drawn = on_terminal("plot", "digits", "loss", "-s", self.storage, columns=50,
                                  environment={"NO_COLOR": "1", "LC_ALL": "C.UTF-8"})
        self.assertEqual(code, 0)
        self.assertEqual(max(len(x) for x in drawn.split("\r\n")), 50)

    def test_a_metric_that_no_report_has_is_refused(self):
        self.runs.make("digits")
        _, complaint = troupe("plot", "digits", "los", "-s", self.storage, code=2)
        self.assertIn("the run has loss, step; did you mean loss?", complaint)
        self.assertIn("the run has loss, step", troupe("plot", "digits", "note", "-s", self.storage, code=2)[1])
        self.assertIn("The run has loss, step", troupe("plot", "digits", "-s", self.storage, code=2)[1])


class CompareTest(CommandLineTest):
    def compared(self, *options, code=0):
        self.runs.make("digits")
        self.runs.make("long", "--steps", 6)
        page = self.storage.parent / "page.html"
        return page, troupe_json("compare", "digits", "long", "-s", self.storage, "-o", page, *options, code=code)

    def test_what_differs_is_marked_and_the_best_values_are_there(self):
        page, found = self.compared()
        self.assertEqual(found["page"], str(page))
        self.assertEqual([(x["name"], x["reports"], x["best"]["value"]) for x in found["runs"]],
                         [("digits", 4, 0.25), ("long", 6, 1 / 6)])
        self.assertEqual(found["runs"][0]["best"], {"metric": "loss", "order": "min", "value": 0.25})
        config = {x["name"]: (x["values"], x["differs"]) for x in found["config"]}
        self.assertEqual(config["steps"], (["4", "6"], True))
        self.assertEqual(config["lr"], (["0.5", "0.5"], False))
        self.assertEqual([x["last"] for x in found["metrics"]["step"]], [3, 5])
        self.assertFalse(any(x["differs"] for x in found["environment"]))
        text = page.read_text()
        data = json.loads(re.search(r'id="data">\n(.*?)</script>', text, re.DOTALL)[1])
        (loss,) = (x for x in data["groups"]["metrics"]["charts"] if x["title"] == "loss")
        self.assertEqual([(x["label"], len(x["mean"])) for x in loss["curves"]], [("digits", 4), ("long", 6)])

    def test_the_page_lies_in_the_current_folder_or_is_printed(self):
        page, _ = self.compared()
        elsewhere = self.storage.parent
        output, _ = troupe("compare", "digits", "long", "-s", self.storage, cwd=elsewhere)
        self.assertEqual([output, (elsewhere / "compare.html").read_text()], ["compare.html\n", page.read_text()])
        self.assertEqual(troupe("compare", "digits", "long", "-s", self.storage, "-o", "-")[0], page.read_text())

    def test_a_page_that_is_too_large_for_its_limit_is_an_error(self):
        self.compared()
        page = self.storage.parent / "large.html"
        done = subprocess.run(["sh", "-c", 'ulimit -f 8 && exec "$@"', "sh", TROUPE, "compare", "digits", "long", "-s", self.storage, "-o", page],
                              capture_output=True, text=True, timeout=LIMIT_S, stdin=subprocess.DEVNULL)
        self.assertEqual([done.returncode, done.stdout], [1, ""])
        self.assertIn("File too large", done.stderr)
        self.assertEqual(list(page.parent.glob("large*")), [])

    def test_a_damaged_run_is_named_and_the_others_are_shown(self):
        broken = self.runs.copy(self.runs.make("whole"), "broken") / "journal.jsonl"
        lines = broken.read_bytes().split(b"\n")
        lines[3] = lines[3].replace(b"1", b"2", 1)
        broken.write_bytes(b"\n".join(lines))
        page = self.storage.parent / "page.html"
        output, complaints = troupe("compare", "whole", "broken", "-s", self.storage, "-o", page, code=1)
        self.assertEqual(output, f"{page}\n")
        self.assertIn("broken: 1 line of the journal could not be read", complaints)
        self.assertIn("1 line of the journal could not be read", page.read_text())

    def test_wrong_runs_and_files_are_refused(self):
        self.runs.make("digits")
        for words, why in (([], "--help"), (["digits"], "is one run"), (["digits", "digist"], "did you mean digits?"),
                           (["digits", self.storage / "digits"], "is given twice"),
                           (["digits", self.storage], "is not the folder of a run")):
            self.assertIn(why, troupe("compare", *words, "-s", self.storage, code=2)[1])
        pipe = self.storage.parent / "pipe"
        os.mkfifo(pipe)
        self.runs.make("letters")
        complaint = troupe("compare", "digits", "letters", "-s", self.storage, "-o", pipe, code=2)[1]
        self.assertIn(f"{pipe} is not a regular file", complaint)
        self.assertTrue(pipe.is_fifo())


class VerifyTest(CommandLineTest):
    def test_whole_runs_pass_also_live_ones(self):
        self.runs.make("digits")
        _, gate = self.runs.hold("live")
        self.addCleanup(gate.close)
        runs = troupe_json("verify", self.storage)["runs"]
        self.assertEqual([(x["name"], x["whole"], x["checkpoints"]) for x in runs],
                         [("digits", True, 4), ("live", True, 2)])
        self.assertIn("digits: whole", troupe("verify", "digits", "-s", self.storage)[0])

    def test_each_bad_file_is_named(self):
        path = self.runs.make("digits")
        flipped = path / "checkpoints/checkpoint_000001/step"
        flipped.write_bytes(b"7")
        (path / "checkpoints/checkpoint_000002/step").unlink()
        manifest = path / "checkpoints/checkpoint_000003/manifest.json"
        manifest.write_bytes(manifest.read_bytes()[:-3])
        lines = (path / "journal.jsonl").read_bytes().split(b"\n")
        lines[2] = lines[2].replace(b"1", b"2", 1)
        (path / "journal.jsonl").write_bytes(b"\n".join(lines))
        text, _ = troupe("verify", path, code=1)
        self.assertIn("damaged", text)
        for part in ("checkpoint_000001/step", "checkpoint_000002/step", "checkpoint_000003/manifest.json",
                     "journal.jsonl line 3"):
            self.assertIn(part, text)
        (run,) = troupe_json("verify", self.storage, code=1)["runs"]
        self.assertEqual([run["whole"], len(run["bad"])], [False, 4])

    def test_what_a_loop_returned_is_compared_with_its_manifest(self):
        path = self.runs.make("digits")
        values = path / "return_values/0"
        self.assertEqual(sorted(x.name for x in values.iterdir()),
                         ["rank_0.bin", "rank_0.manifest.json", "rank_1.bin", "rank_1.manifest.json"])
        whole = (values / "rank_1.bin").read_bytes()
        (values / "rank_1.bin").write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        self.assertIn("return_values/0/rank_1.bin has checksum", troupe("verify", path, code=1)[0])
        (values / "rank_1.bin").unlink()
        self.assertIn("return_values/0/rank_1.bin is missing", troupe("verify", path, code=1)[0])
        # As an earlier version left it.
        (values / "rank_1.manifest.json").unlink()
        troupe("verify", path)

    def test_each_missing_report_is_named(self):
        path = self.runs.make("digits")
        journal = path / "journal.jsonl"
        whole = journal.read_bytes()
        lines = whole.splitlines(keepends=True)
        reports = [i for i, x in enumerate(lines) if x.startswith(b'{"batch"')]
        gap, again = lines.copy(), lines.copy()
        del gap[reports[1]]
        again.insert(reports[1], lines[reports[1]])
        for content, fault in ((gap, "report 1 is missing"), (again, "report 1 comes again after report 1"),
                               (lines[:reports[2]], "reports 2 to 3 are missing"), ([], "reports 0 to 3 are missing")):
            journal.write_bytes(b"".join(content))
            with self.subTest(fault):
                self.assertIn(f"journal.jsonl: {fault}", troupe("verify", path, code=1)[0])
        journal.write_bytes(whole)
        troupe("verify", path)

    def test_a_killed_run_misses_no_report_that_its_checkpoint_has(self):
        driver, gate = self.runs.hold("killed")
        driver.kill()
        driver.wait()
        gate.close()
        journal = self.storage / "killed/journal.jsonl"
        lines = journal.read_bytes().splitlines(keepends=True)
        reports = [i for i, x in enumerate(lines) if x.startswith(b'{"batch"')]
        journal.write_bytes(b"")
        self.assertIn("journal.jsonl: reports 0 to 1 are missing", troupe("verify", "killed", "-s", self.storage, code=1)[0])
        journal.write_bytes(b"".join(lines[:reports[1]]))  # As if killed between the checkpoint and its line.
        troupe("verify", "killed", "-s", self.storage)
        self.runs.make("killed")
        troupe("verify", "killed", "-s", self.storage)

    def test_a_lost_state_does_not_hide_the_checkpoints(self):
        path = self.runs.make("digits")
        (path / "state.json").unlink()
        (path / "checkpoints/checkpoint_000001/step").write_bytes(b"7")
        text, _ = troupe("verify", path, code=1)
        self.assertIn("state.json", text)
        self.assertIn("checkpoint_000001/step", text)

    def test_what_does_not_exist_is_refused(self):
        self.runs.make("digits")
        self.assertIn("did you mean digits?", troupe("verify", "digist", "-s", self.storage, code=2)[1])


class ReportTest(CommandLineTest):
    def test_the_page_takes_the_place_of_files_only(self):
        self.runs.make("digits")
        page, pipe = self.storage.parent / "page.html", self.storage.parent / "pipe"
        page.write_text("old")
        os.mkfifo(pipe)
        self.assertEqual(troupe("report", "digits", "-s", self.storage, "-o", page)[0], f"{page}\n")
        self.assertIn("<html", page.read_text())
        complaint = troupe("report", "digits", "-s", self.storage, "-o", pipe, code=2)[1]
        self.assertIn(f"{pipe} is not a regular file", complaint)
        self.assertTrue(pipe.is_fifo())


class StopTest(CommandLineTest):
    def ended(self, *options):
        """A live run's state and its driver, which was asked while rank 0 waited."""
        driver, gate = self.runs.hold("live", "--steps", 1_000_000, "--every", 0)
        stop = subprocess.Popen([TROUPE, "stop", "live", "-s", self.storage, "--wait", *options],
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        gate.close()
        output, errors = stop.communicate(timeout=LIMIT_S)
        self.assertEqual([stop.returncode, errors], [0, ""])
        driver.wait(timeout=LIMIT_S)
        self.assertFalse((self.storage / "live/end_request").exists())
        return output, driver.stderr.read()

    def test_a_run_is_stopped(self):
        output, error = self.ended()
        self.assertEqual(output, "live is aborted\n")
        self.assertIn("troupe stop", error)

    def test_a_run_is_preempted(self):
        self.assertEqual(self.ended("--preempt")[0], "live is preempted\n")

    def test_a_run_is_finished(self):
        self.assertEqual(self.ended("--finish")[0], "live is finished\n")
        self.assertIn("ended early", troupe("show", "live", "-s", self.storage)[0])
        self.assertIn("troupe stop", troupe_json("show", "live", "-s", self.storage)["stop_reason"])

    def test_a_run_has_one_end(self):
        self.assertIn("--finish", troupe("stop", "live", "--preempt", "--finish", code=2)[1])

    def test_a_request_for_an_earlier_driver_does_not_end_the_next(self):
        driver, gate = self.runs.hold("live")
        os.kill(driver.pid, signal.SIGSTOP)
        troupe("stop", "live", "-s", self.storage)
        driver.kill()
        driver.wait()
        gate.close()
        self.assertTrue((self.storage / "live/end_request").exists())
        self.runs.make("live")
        self.assertEqual(self.listed()["live"]["state"], "finished")

    def test_a_run_without_a_driver_is_refused(self):
        self.runs.make("digits")
        self.assertIn("it is finished", troupe("stop", "digits", "-s", self.storage, code=1)[1])


class RmTest(CommandLineTest):
    def test_a_run_goes_completely(self):
        path = self.runs.make("digits", "--fails-at", 2, "--max-failures", 1)
        (path / "callbacks" / "judge").mkdir(parents=True)
        (path / "callbacks" / "judge" / "seen").write_text("3")
        for name in ("media", "artifacts/docs"):  # what a loop logged
            (path / name).mkdir(parents=True)
            (path / name / "logged").write_text("bytes")
        self.runs.make("letters")
        output, complaints = troupe("rm", "digits", "--yes", "-s", self.storage)
        self.assertEqual(complaints, "")
        self.assertFalse(path.exists())
        self.assertEqual(list(self.listed()), ["letters"])

    def test_a_live_run_stays(self):
        driver, gate = self.runs.hold("live")
        _, complaint = troupe("rm", "live", "--yes", "-s", self.storage, code=1)
        self.assertIn(f"pid {driver.pid}", complaint)
        gate.close()
        self.assertEqual(driver.wait(timeout=LIMIT_S), 0)
        self.assertEqual(self.listed()["live"]["reports"], 4)
        troupe("verify", "live", "-s", self.storage)

    def test_a_killed_run_goes(self):
        driver, gate = self.runs.hold("killed")
        driver.kill()
        driver.wait()
        gate.close()
        troupe("rm", "killed", "--yes", "-s", self.storage)
        self.assertFalse((self.storage / "killed").exists())

    def test_ranks_of_a_host_that_is_lost_are_given_up(self):
        path = self.runs.make("digits")
        state = path / "state.json"
        state.write_bytes(signed({**json.loads(state.read_text()), "lost_after_ms": 3000}))
        with open(path / "ranks") as held:  # as by the server of a share, for a host that is gone
            fcntl.flock(held, fcntl.LOCK_SH)
            _, complaints = troupe("rm", "digits", "--yes", "-s", self.storage)
        self.assertIn("waits up to 15 s for ranks of the run on other hosts", complaints)
        self.assertIn("does not wait for ranks of an earlier driver", complaints)
        self.assertFalse(path.exists())

    def test_what_kills_have_left_unfinished_goes(self):
        path = self.runs.make("digits")
        (path / "tensorboard").mkdir()
        for name in ("tensorboard/.params.new", "ranks.new", "copy"):
            (path / name).write_text("half")
        (path / "copy").rename(path / f".troupe-copy-{(path / 'copy').stat().st_ino}")  # of the journal, on NFS
        troupe("rm", "digits", "--yes", "-s", self.storage)
        self.assertFalse(path.exists())

    def test_files_of_the_user_stay_and_are_named(self):
        path = self.runs.make("digits")
        users = ["notes.txt", "checkpoints/mine/model", "checkpoints/checkpoint_000001/readme", "logs/plot.png",
                 "logs/rank_0.trace.json", "metrics.csv.backup"]
        for name in users:
            (path / name).parent.mkdir(exist_ok=True)
            (path / name).write_text("mine")
        left = troupe_json("rm", "digits", "--yes", "-s", self.storage, code=1)["left"]
        self.assertEqual(left, ["checkpoints/kept-checkpoint_000001", "checkpoints/mine", "logs/plot.png",
                                "logs/rank_0.trace.json", "metrics.csv.backup", "notes.txt"])
        users = [name.replace("/checkpoint_", "/kept-checkpoint_") for name in users]
        for name in users:
            self.assertEqual((path / name).read_text(), "mine")
        self.assertFalse((path / "run.json").exists())
        self.runs.make("digits")  # They do not take the name from the next run, nor those of its checkpoints.
        self.assertEqual([self.listed()["digits"][k] for k in ("state", "checkpoints")], ["finished", 4])
        for name in users:
            self.assertEqual((path / name).read_text(), "mine")

    def test_event_files_of_other_programs_stay_and_are_named(self):
        events = self.runs.make("digits") / "tensorboard"
        events.mkdir(exist_ok=True)
        own = "1767225600.node.17.01234567-0001"
        for name in (f"events.out.tfevents.{own}", f"former.{own}", f"former.{own}.2"):
            (events / name).write_text("the run's")
        users = ["events.out.tfevents.1767225600.node.17.0", "former.plan", "former.plan.2"]
        for name in users:
            (events / name).write_text("mine")
        left = troupe_json("rm", "digits", "--yes", "-s", self.storage, code=1)["left"]
        self.assertEqual(left, [f"tensorboard/{name}" for name in users])
        for name in users:
            self.assertEqual((events / name).read_text(), "mine")

    def expect_begins_at_zero(self, name):
        """The next run *name* resumes from no checkpoint of the run that was removed."""
        self.runs.make(name)
        shown = troupe_json("show", name, "-s", self.storage)
        self.assertEqual([shown["state"], shown["reports"], shown["checkpoints"]], ["finished", 4, 4])
        self.assertEqual([(x["resumed_from"], x["reports"]) for x in shown["attempt_list"]], [(None, 4)])

    def test_a_kept_checkpoint_finds_a_name_beside_those_of_earlier_removals(self):
        checkpoints = self.runs.make("digits") / "checkpoints"
        (checkpoints / "checkpoint_000003" / "readme").write_text("mine")
        (checkpoints / "kept-checkpoint_000003").mkdir()  # of an earlier removal
        left = troupe_json("rm", "digits", "--yes", "-s", self.storage, code=1)["left"]
        self.assertEqual(left, ["checkpoints/kept-2-checkpoint_000003", "checkpoints/kept-checkpoint_000003"])
        self.assertEqual((checkpoints / "kept-2-checkpoint_000003" / "readme").read_text(), "mine")
        self.expect_begins_at_zero("digits")

    def test_a_run_in_a_folder_that_may_not_be_changed_stays_whole(self):
        path = self.runs.make("digits")
        as_owner = self.give_away(path)
        self.storage.chmod(0o555)
        self.addCleanup(self.storage.chmod, 0o755)
        _, complaints = troupe("rm", path, "--yes", code=1, **as_owner)
        self.assertIn(f"cannot remove {path}: Permission denied", complaints)
        troupe("verify", "digits", "-s", self.storage)

    def test_a_run_that_its_user_has_protected_stays_whole(self):
        path = self.runs.make("digits")
        as_owner = self.give_away(path)
        self.storage.chmod(0o777)
        for folder in (path, path / "checkpoints"):
            mode = folder.stat().st_mode
            folder.chmod(0o555)
            _, complaints = troupe("rm", path, "--yes", code=1, **as_owner)
            folder.chmod(mode)
            self.assertIn(f"cannot remove {path}: Permission denied", complaints)
            troupe("verify", "digits", "-s", self.storage)
        troupe("rm", path, "--yes", **as_owner)

    def test_a_name_that_begins_with_a_dot_is_a_name(self):
        self.runs.make(".digits")
        self.assertEqual(troupe_json("show", ".digits", "-s", self.storage)["state"], "finished")
        troupe("rm", ".digits", "--yes", "-s", self.storage)
        self.assertFalse((self.storage / ".digits").exists())

    def test_a_copy_of_a_checkpoint_is_the_users(self):
        checkpoints = self.runs.make("digits") / "checkpoints"
        shutil.copytree(checkpoints / "checkpoint_000003", checkpoints / "best")
        left = troupe_json("rm", "digits", "--yes", "-s", self.storage, code=1)["left"]
        self.assertEqual(left, ["checkpoints/best"])
        self.assertTrue((checkpoints / "best" / "step").exists())
        self.expect_begins_at_zero("digits")

    def test_a_run_whose_description_is_lost_is_removed_by_its_state(self):
        path = self.runs.make("digits", "--fails-at", 2, code=3)
        (path / "run.json").write_text("damaged")
        troupe("rm", "digits", "--yes", "-s", self.storage)
        self.assertFalse(path.exists())

    def test_checkpoints_of_an_earlier_id_are_removed(self):
        path = self.runs.make("digits", "--fails-at", 2, code=3)
        (path / "run.json").unlink()
        self.runs.make("digits")
        (path / "state.json").unlink()  # which names them, too
        troupe("rm", "digits", "--yes", "-s", self.storage)
        self.assertFalse(path.exists())

    def test_the_next_run_does_not_resume_from_checkpoints_that_stay(self):
        path = self.runs.make("digits", "--fails-at", 2, code=3)
        (path / "run.json").unlink()
        (path / "state.json").unlink()
        _, complaints = troupe("rm", "digits", "--yes", "-s", self.storage, code=1)
        for name in ("kept-checkpoint_000000", "kept-checkpoint_000001"):
            self.assertTrue((path / "checkpoints" / name / "step").exists())
            self.assertIn(f"{name}, a copy of a checkpoint, or one that is not known as this run's", complaints)
        self.expect_begins_at_zero("digits")

    def test_a_folder_of_another_program_stays(self):
        for name in ("state.json", "run.json", "journal.jsonl"):
            path = self.storage / "project"
            (path / "callbacks").mkdir(parents=True)
            (path / "callbacks" / "model.py").write_text("mine")
            (path / name).write_text('{"of": "another program"}\n')
            _, complaint = troupe("rm", path, "--yes", code=2)
            self.assertIn("another program's", complaint)
            self.assertEqual((path / "callbacks" / "model.py").read_text(), "mine")
            self.assertEqual(sorted(x.name for x in path.iterdir()), sorted(["callbacks", name]))
            shutil.rmtree(path)

    def test_links_are_not_followed(self):
        path = self.runs.make("digits")
        outside = Path(self.runs.folder.name) / "outside"
        outside.mkdir()
        (outside / "precious").write_text("mine")
        shutil.rmtree(path / "sinks")
        (path / "sinks").symlink_to(outside)
        troupe("rm", "digits", "--yes", "-s", self.storage, code=1)  # no driver would touch such a folder
        self.assertEqual((outside / "precious").read_text(), "mine")

    def test_a_link_to_a_folder_for_event_files_stays_and_is_named(self):
        path = self.runs.make("digits")
        outside = Path(self.runs.folder.name) / "outside"
        outside.mkdir()
        events = outside / "events.out.tfevents.1767225600.node.17.01234567-0001"
        events.write_text("mine")
        (path / "tensorboard").symlink_to(outside)
        left = troupe_json("rm", "digits", "--yes", "-s", self.storage, code=1)["left"]
        self.assertEqual(left, ["tensorboard"])
        self.assertEqual(sorted(x.name for x in path.iterdir()), ["attempts", "tensorboard"])
        self.assertEqual(events.read_text(), "mine")

    def test_a_checkpoint_with_a_folder_that_cannot_be_read_stays_and_is_named(self):
        path = self.runs.make("digits")
        name = "checkpoints/{}checkpoint_000001/closed"
        (path / name.format("")).mkdir()
        as_owner = self.give_away(path)
        self.storage.chmod(0o777)
        (path / name.format("")).chmod(0)
        output, _ = troupe("rm", path, "--yes", "--json", code=1, **as_owner)
        self.assertEqual(json.loads(output)["left"], ["checkpoints/kept-checkpoint_000001"])
        (path / name.format("kept-")).chmod(0o700)

    def test_it_asks_on_a_terminal_only(self):
        path = self.runs.make("digits")
        self.assertIn("--yes", troupe("rm", "digits", "-s", self.storage, code=2)[1])
        self.assertTrue(path.exists())
        for answer, code, there in (("n\n", 1, True), ("\4", 1, True), ("y\n", 0, False)):  # the second is the end of input
            pid, terminal = pty.fork()
            if pid == 0:
                os.execv(TROUPE, ["troupe", "rm", str(path)])
            asked = b""
            while b"[y/N]" not in asked:
                asked += os.read(terminal, 4096)
            self.assertIn(b"Remove digits (finished, 4 reports, 4 checkpoints)", asked)
            os.write(terminal, answer.encode())
            said = b""
            with contextlib.suppress(OSError):
                while more := os.read(terminal, 4096):
                    said += more
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), code)
            self.assertEqual(b"\ntroupe: nothing was removed\r\n" in said, there, said)
            os.close(terminal)
            self.assertEqual(path.exists(), there)


class ProgramTest(CommandLineTest):
    def test_wrong_arguments_end_with_2_and_say_where_to_read(self):
        for words in ([], ["fly"], ["ls", "--fly"], ["serve", "--port", "99999"], ["show"], ["show", ""], ["completion", "fish"]):
            output, complaint = troupe(*words, code=2)
            self.assertEqual(output, "")
            self.assertRegex(complaint, "--help")

    def test_a_verb_that_is_not_there_is_refused_with_near_names(self):
        self.assertIn("there is no verb 'shwo'; did you mean show?", troupe("shwo", code=2)[1])
        self.assertIn("there is no option --fly", troupe("--fly", code=2)[1])
        self.assertIn("there is no verb 'runs'", troupe("runs", "ls", code=2)[1])

    def test_arguments_that_no_one_takes_are_named_in_their_order(self):
        self.assertIn("options follow the verb, as in troupe ls --storage runs\n", troupe("--storage", "runs", "ls", code=2)[1])
        self.assertIn("this argument was not expected: --fly\n", troupe("ls", "--fly", code=2)[1])
        self.assertIn("these arguments were not expected: b c\n", troupe("ls", "a", "b", "c", code=2)[1])

    def test_it_knows_its_version(self):
        version = re.search(r"project\(\s*\w+\s+VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text(encoding="utf-8"))[1]
        self.assertEqual(troupe("--version"), (f"troupe {version}\n", ""))

    def test_the_page_has_every_verb_and_option(self):
        page = (ROOT / "docs/command_line.md").read_text(encoding="utf-8")
        helped, _ = troupe("--help")
        verbs = re.findall(r"^  (\w+) ", helped.split("Verbs:\n")[1], re.MULTILINE)
        self.assertIn("ls", verbs)
        for verb in verbs:
            section = re.search(rf"^## `troupe {verb}\b.*?(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
            self.assertTrue(section, f"docs/command_line.md has no section on {verb}")
            options = set(re.findall(r"(--[a-z][\w-]*)", troupe(verb, "--help")[0])) - {"--help"}
            common = {"--json", "--storage"}
            named = set(re.findall(r"(--[a-z][\w-]*)", section[0]))
            self.assertLessEqual(options - common, named, f"docs/command_line.md, {verb}")
            self.assertLessEqual(named - common, options, f"docs/command_line.md, {verb}")

    def test_the_man_page_has_what_help_has(self):
        page, _ = troupe("man")
        plain = page.replace("\\-", "-").replace("\\e", "\\")
        for verb in re.findall(r"^\.SS troupe (\w+)", page, re.MULTILINE):
            for option in re.findall(r"(--[a-z][\w-]*)", troupe(verb, "--help")[0]):
                self.assertIn(option, plain)
        if shutil.which("man"):
            done = subprocess.run(["man", "--warnings", "-l", "-"], input=page, capture_output=True, text=True)
            self.assertEqual([done.returncode, done.stderr], [0, ""])

    def test_bash_completes_verbs_options_and_runs(self):
        self.runs.make("digits")
        self.runs.make("dice")
        script = Path(self.runs.folder.name) / "completion"
        script.write_text(troupe("completion", "bash")[0])

        def completed(*words):
            code = f"""source {script}; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _troupe 2>/dev/null
                       printf '%s\\n' "${{COMPREPLY[@]}}" """
            done = subprocess.run(["bash", "-c", code, "bash", "troupe", *words], capture_output=True, text=True,
                                  timeout=LIMIT_S, env={**os.environ, "TROUPE_STORAGE": str(self.storage),
                                                        "PATH": f"{TROUPE.parent}:{os.environ['PATH']}"})
            return sorted(done.stdout.split())

        self.assertEqual(completed("sh"), ["show"])
        self.assertEqual(completed("show", "--js"), ["--json"])
        self.assertEqual(completed("show", "di"), ["dice", "digits"])
        self.assertEqual(completed("show", "dig"), ["digits"])


if __name__ == "__main__":
    unittest.main()
