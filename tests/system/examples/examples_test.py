"""Runs the examples as a user would, and looks at what they print and leave.

  examples_test.py FOLDER [unittest arguments]

FOLDER holds the built programs; those that are not there are skipped.
"""
import csv
import json
import os
import pwd
import pty
import random
import re
import select
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.request
import zipfile
from pathlib import Path

PROGRAMS = Path(sys.argv.pop(1)).resolve()
EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
DATA = Path("/usr/share/datasets/fashion-mnist")
LIMIT_S = 120  # of one program; none comes near it


def run(name, *arguments, folder, code=0, environment=None):
    """What program *name* printed to stdout and stderr in *folder*; fails if it does not end with *code*."""
    done = subprocess.run([PROGRAMS / name, *map(str, arguments)], cwd=folder, capture_output=True, text=True,
                          timeout=LIMIT_S, stdin=subprocess.DEVNULL, env={**os.environ, **(environment or {})})
    if done.returncode != code:
        raise AssertionError(f"{name} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return done.stdout, done.stderr


def run_on_terminal(name, *arguments, folder):
    """Exit code of program *name* and all that it drew on a terminal of 100 columns."""
    pid, terminal = pty.fork()
    if pid == 0:
        try:
            os.chdir(folder)
            os.environ.update(TERM="xterm", COLUMNS="100")
            os.execv(PROGRAMS / name, [name, *map(str, arguments)])
        finally:
            os._exit(127)
    drawn = b""
    deadline = time.monotonic() + LIMIT_S
    try:
        while time.monotonic() < deadline and select.select([terminal], [], [], LIMIT_S)[0]:
            try:
                more = os.read(terminal, 65536)
            except OSError:  # the program has closed its end
                break
            if not more:
                break
            drawn += more
    finally:
        os.close(terminal)
        _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status), drawn.decode()


def batches_of(path):
    """The report batches in the journal of the run in *path*."""
    lines = [json.loads(x) for x in (path / "journal.jsonl").read_text().splitlines()]
    return [x for x in lines if "batch" in x]


def config_names(path):
    """Names of the config's values, as the run in *path* shows them to trackers."""
    return list(json.loads(json.loads((path / "run.json").read_text())["config"])["config"])


def strange_folders(storage):
    """Folders in *storage* that `troupe ls` complains about: neither a run nor hidden."""
    return [x.name for x in storage.iterdir() if x.is_dir() and not x.name.startswith(".") and not (x / "run.json").exists()]


def children_of(pid):
    return [int(x) for x in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def only_run(storage):
    (path,) = [x for x in storage.iterdir() if x.is_dir()]
    return path


class ExampleTest(unittest.TestCase):
    program = None

    def setUp(self):
        if not (PROGRAMS / self.program).exists():
            self.skipTest(f"{self.program} is not built here")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.storage = self.folder / "runs"

    def run_example(self, *arguments, code=0, environment=None):
        return run(self.program, *arguments, folder=self.folder, code=code, environment=environment)

    def check_resumes(self, *arguments, name, epochs, killed_at):
        """The driver dies as checkpoint *killed_at* is stored; the next start trains the epochs that are left."""
        killed_by = {"TROUPE_FAILPOINT": f"commit.state_saved:{killed_at}"}
        self.run_example(*arguments, code=-9, environment=killed_by)
        _, err = self.run_example(*arguments)
        batches = batches_of(self.storage / name)
        self.assertEqual([x["values"][0]["epoch"] for x in batches], list(range(epochs)))
        self.assertNotIn("without having asked", err)
        return batches


class Minimal(ExampleTest):
    program = "minimal"

    def test_counts_to_five_and_keeps_two_checkpoints(self):
        out, err = self.run_example()
        path = only_run(self.storage)
        self.assertIn("counted to 5, the last checkpoint is " + str(path), out)
        for step in range(1, 6):
            self.assertIn(f"rank 0 of 2 counts {step}\n", out)
        self.assertNotIn("rank 1", out)
        self.assertIn("finished", err)
        self.assertEqual((path / "logs" / "rank_1.log").read_text(),
                         "".join(f"rank 1 of 2 counts {step}\n" for step in range(1, 6)))
        checkpoints = sorted(x.name for x in (path / "checkpoints").iterdir())
        self.assertEqual(checkpoints, ["checkpoint_000003", "checkpoint_000004"])
        last = path / "checkpoints" / "checkpoint_000004"
        self.assertEqual([x.name for x in last.glob("step.*")], ["step.bin"])
        batches = batches_of(path)
        self.assertEqual([x["batch"] for x in batches], list(range(5)))
        for name in ("run.json", "state.json"):
            json.loads((path / name).read_text())
        self.assertEqual(config_names(path), ["steps"])

    def test_help_that_cannot_be_printed_is_an_error(self):
        for to, why in (("/dev/full", "No space left on device"), ("&-", "Bad file descriptor")):
            done = subprocess.run(["sh", "-c", f'exec "$0" --help >{to}', PROGRAMS / self.program], stderr=subprocess.PIPE, text=True,
                                  timeout=LIMIT_S, stdin=subprocess.DEVNULL)
            self.assertEqual([done.returncode, done.stderr], [1, f"{self.program}: cannot write to standard output: {why}\n"])

    def test_leaves_no_escape_codes_in_a_log(self):
        out, err = self.run_example("--storage", self.folder / "elsewhere")
        self.assertNotIn("\x1b", out + err)
        self.assertNotIn("\r", out + err)
        only_run(self.folder / "elsewhere")

    def test_shows_one_live_line_on_a_terminal(self):
        code, drawn = run_on_terminal(self.program, folder=self.folder)
        self.assertEqual(code, 0, drawn)
        self.assertIn("\r", drawn)
        self.assertIn("\x1b[", drawn)
        # What rank 0 printed stands on lines of its own between the redraws.
        plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", drawn)
        shown = [x.split("\r")[-1] for x in plain.replace("\r\n", "\n").split("\n")]
        for step in range(1, 6):
            self.assertIn(f"rank 0 of 2 counts {step}", shown)
        self.assertTrue(any(x.startswith("counted to 5") for x in shown), drawn)

    def test_takes_the_fields_of_its_config(self):
        out, err = self.run_example("--help")
        self.assertIn("usage: minimal [options]\n", out)
        self.assertRegex(out, r"--steps +integer.* \[5\]\n")
        self.assertRegex(out, r"--storage +path.* \[runs\]\n")
        self.assertEqual(err, "")
        out, _ = self.run_example("--steps", 2, environment={"TROUPE_CONFIG_STEPS": "9"})
        self.assertIn("counted to 2,", out)
        for wrong in ("--stepz=1", "", "5"):
            out, err = self.run_example(wrong, code=2)
            self.assertEqual(out, "")
            self.assertTrue(err.startswith("minimal: "), err)

    def test_options_that_no_run_can_have_are_wrong_arguments(self):
        for wrong in ("--workers=100000", "--workers=2:4", "--name=a/b", "--storage=", "--max_failures=-2"):
            with self.subTest(wrong):
                out, err = self.run_example(wrong, code=2)
                self.assertEqual(out, "")
                self.assertRegex(err, r"^minimal: [^\n]+ \(--help lists all options\)\n$")
        self.assertFalse(self.storage.exists())

    def test_says_why_a_folder_cannot_be_used(self):
        (self.folder / "file").write_text("x")
        out, err = self.run_example("--storage", self.folder / "file", code=1)
        self.assertIn(str(self.folder / "file"), err)
        self.assertEqual(out, "")


class Sweep(ExampleTest):
    program = "sweep"

    def test_finds_a_config_that_fits_and_repeats_no_trial(self):
        out, err = self.run_example("--trials", 6)
        self.assertRegex(out, r"best of 6 trials: trial-\d{4}, loss 0\.\d{4} with lr=\S+ momentum=\S+ schedule=\w+\n$")
        self.assertLess(float(re.search(r"loss (\S+)", out)[1]), 0.05)
        self.assertRegex(err, r"trial-0000 finished after \d+ reports?")
        journals = {x: x.read_bytes() for x in (self.storage / "line_search").glob("trial-*/journal.jsonl")}
        self.assertEqual(len(journals), 6)
        again, err = self.run_example("--trials", 6)
        self.assertEqual(again, out)
        self.assertNotIn("begins", err)
        self.assertEqual({x: x.read_bytes() for x in journals}, journals)
        out, err = self.run_example("--trials", 7)
        self.assertTrue(out.startswith("best of 7 trials: "), out)
        self.assertNotIn("another config", err)

    def test_resumes_a_trial_as_if_it_had_not_been_interrupted(self):
        def losses(storage, **options):
            self.run_example("--trials", 1, "--storage", storage, **options)
            return [x["values"][0]["loss"] for x in batches_of(self.folder / storage / "line_search" / "trial-0000")]
        whole = losses("whole")
        cut = losses("cut", code=-9, environment={"TROUPE_FAILPOINT": "commit.state_saved:10"})
        self.assertLess(len(cut), len(whole))
        self.assertEqual(losses("cut"), whole)

    def test_draws_a_table_on_a_terminal(self):
        code, drawn = run_on_terminal("sweep", "--trials", 3, folder=self.folder)
        self.assertEqual(code, 0, drawn)
        self.assertIn("reports  loss", drawn)
        self.assertIn("\x1b[J", drawn)
        self.assertIn("3 of 3 ended", drawn)


class LinearRegression(ExampleTest):
    program = "linear_regression"

    def check(self, workers):
        out, _ = self.run_example("--workers", workers)
        weight, bias, loss = map(float, re.search(r"y = (\S+) x \+ (\S+), loss (\S+)", out).groups())
        self.assertLess(abs(weight - 2), 0.3)
        self.assertLess(abs(bias), 0.3)
        self.assertLess(loss, 0.02)
        path = only_run(self.storage)
        self.assertEqual(config_names(path), ["lr", "epochs", "samples"])
        batches = batches_of(path)
        self.assertEqual(len(batches), 60)
        (kept,) = (path / "checkpoints").iterdir()
        self.assertLessEqual({"model.safetensors", "optimizer.safetensors", "epoch.bin"}, {x.name for x in kept.iterdir()})
        return batches

    def test_finds_the_line_on_two_workers(self):
        for batch in self.check(2):
            first, second = batch["values"]
            # One model on all ranks, whatever their own samples are.
            self.assertEqual((first["weight"], first["bias"]), (second["weight"], second["bias"]))

    def test_finds_the_line_inline(self):
        self.check(0)

    def test_resumes_from_its_checkpoint(self):
        batches = self.check_resumes("--name", "line", name="line", epochs=60, killed_at=20)
        # Momentum and all: the curve has no jump where the run was cut off.
        losses = [x["values"][0]["loss"] for x in batches]
        self.assertLess(losses[20], 2 * losses[19])
        self.assertLess(losses[-1], 0.02)


class Torchmetrics(ExampleTest):
    program = "torchmetrics"

    def check(self, workers):
        out, _ = self.run_example("--workers", workers)
        printed = re.search(r"loss (\S+) on rank 0, (\S+) on all; MAPE (\S+), R2 (\S+)", out).groups()
        run = only_run(self.storage)
        self.assertEqual(config_names(run), ["lr", "epochs", "samples", "batch_size"])
        batches = batches_of(run)
        self.assertEqual([x["values"][0]["epoch"] for x in batches], list(range(5)))
        for batch in batches:
            self.assertTrue((run / "checkpoints" / batch["checkpoint"] / "model.safetensors").exists())
        first, last = batches[0]["values"][0], batches[-1]["values"][0]
        names = ("valid_loss", "mean_valid_loss", "mape", "r2")
        self.assertEqual(printed, tuple(f"{last[x]:.4f}" for x in names))
        self.assertLess(last["mean_valid_loss"], first["mean_valid_loss"])
        self.assertLess(last["mape"], first["mape"])
        self.assertGreater(last["r2"], 0.9)
        self.assertLessEqual(last["r2"], 1)
        return batches

    def test_reports_equal_values_from_all_ranks(self):
        for batch in self.check(3):
            first, *others = [{k: v for k, v in x.items() if k != "valid_loss"} for x in batch["values"]]
            self.assertEqual(others, [first, first])

    def test_scores_inline(self):
        self.check(0)

    def test_resumes_from_its_checkpoint(self):
        batches = self.check_resumes("--name", "scores", name="scores", epochs=5, killed_at=3)
        self.assertGreater(batches[-1]["values"][0]["r2"], 0.9)


class ActorLearner(ExampleTest):
    program = "actor_learner"

    def test_an_environment_takes_no_field_of_the_learners_from_its_variables(self):
        _, said = self.run_example("environment", "--socket", "none", code=1, environment={"TROUPE_CONFIG_GOAL": "300"})
        self.assertIn("none", said)

    def play(self, after_checkpoint_4=None, code=0):
        """What the program and its environments have said once all of them have ended."""
        program = subprocess.Popen([PROGRAMS / self.program, "--name", "pole"], cwd=self.folder, stdout=subprocess.PIPE,
                                   stdin=subprocess.DEVNULL, text=True, start_new_session=True)
        self.addCleanup(program.stdout.close)
        self.addCleanup(program.wait)
        self.addCleanup(program.kill)
        # Ends the loop below: environments are of the same process group, and hold stdout open.
        over = threading.Event()

        def end():
            over.set()
            os.killpg(program.pid, signal.SIGKILL)
        limit = threading.Timer(LIMIT_S, end)
        limit.start()
        said = ""
        try:
            for line in program.stdout:
                said += line
                if line.startswith("checkpoint 4:") and after_checkpoint_4:
                    after_checkpoint_4(program, said)
            self.assertFalse(over.is_set(), said)
        finally:
            limit.cancel()
        self.assertEqual(program.wait(LIMIT_S), code, said)
        return said

    def check_goal(self, said):
        reward, policy = re.search(r"mean reward (\S+) of 100 episodes after \d+ updates; the policy is in (\S+)", said).groups()
        self.assertGreaterEqual(float(reward), 475)
        self.assertTrue((Path(policy) / "policy.bin").exists())
        self.assertEqual(list((self.storage / ".sockets").iterdir()), [])
        self.assertEqual(strange_folders(self.storage), [])

    def test_reaches_the_goal_at_the_last_checkpoint(self):
        out, _ = self.run_example("--updates", 100, "--goal", 1)
        self.assertRegex(out, r"\nmean reward \S+ of 100 episodes after 100 updates; the policy is in \S+\n$")
        out, _ = self.run_example("--updates", 100, "--goal", 500, code=1)
        self.assertRegex(out, r"checkpoint 1: mean reward \S+ of 20 episodes\n")
        self.assertTrue(out.endswith("the goal was not reached\n"), out)

    def test_reaches_the_goal_although_an_environment_and_a_learner_are_killed(self):
        def kill(program, said):
            os.kill(int(re.search(r"environment 0 is process (\d+)", said)[1]), signal.SIGKILL)
            (spawner,) = children_of(program.pid)
            os.kill(children_of(spawner)[0], signal.SIGKILL)

        said = self.play(kill)
        self.assertIn("environment 0 has ended (signal 9)", said)
        self.assertEqual(len(re.findall("environment 0 is process", said)), 2, said)
        self.assertRegex(said, r"learner \d: killed by signal 9")
        self.check_goal(said)

    def test_reaches_the_goal_after_the_program_is_killed_and_leaves_nothing(self):
        learners = []  # as descriptors, which are readable once the process has ended

        def kill(program, said):
            (spawner,) = children_of(program.pid)
            for process in (spawner, *children_of(spawner)):
                learners.append(os.pidfd_open(process))
                self.addCleanup(os.close, learners[-1])
            program.kill()

        said = self.play(kill, code=-signal.SIGKILL)
        self.assertIn("checkpoint 4:", said)
        self.assertEqual(len(learners), 3)
        for learner in learners:
            self.assertTrue(select.select([learner], [], [], LIMIT_S)[0], "a learner outlives the program")
        self.check_goal(self.play())
        updates = [x["values"][0]["updates"] for x in batches_of(self.storage / "pole")]
        self.assertEqual(updates, list(range(100, 100 * len(updates) + 1, 100)))


class Service(ExampleTest):
    program = "service"

    def start(self, *arguments):
        service = subprocess.Popen([PROGRAMS / "service", *map(str, arguments)], cwd=self.folder, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True)
        self.addCleanup(service.stdout.close)
        self.addCleanup(service.wait)
        self.addCleanup(service.kill)
        self.assertIn("clients find the service at", service.stdout.readline())
        return service

    def client(self, *arguments):
        client = subprocess.Popen([PROGRAMS / "service_client", *map(str, arguments)], cwd=self.folder,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
        self.addCleanup(client.kill)
        return client

    def end_of(self, service):
        """What the service prints until it has ended, as asked."""
        service.send_signal(signal.SIGTERM)
        said = service.stdout.read()
        self.assertEqual(service.wait(LIMIT_S), 0, said)
        return said

    def rounds_of(self, client):
        """Answers per round that a client has counted; fails unless all of its requests were answered in order."""
        said, errors = client.communicate(timeout=LIMIT_S)
        self.assertEqual(client.returncode, 0, said + errors)
        self.assertRegex(said, r"\d+ predictions answered, 0 lost, 0 from an older checkpoint")
        self.assertRegex(said, r"p99 \d+\.\d+ ms")
        return {x: int(n) for x, n in re.findall(r"^(round-\d+) +(\d+) ", said, re.MULTILINE)}

    def kill_a_rank(self, service):
        """Ends a rank that trains with SIGKILL; what the service says of it."""
        for line in service.stdout:
            if "ranks train" in line:
                (spawner,) = children_of(service.pid)
                for rank in children_of(spawner)[:1]:
                    try:
                        os.kill(rank, signal.SIGKILL)
                    except ProcessLookupError:  # The round is over: in the next one.
                        pass
            elif ": killed by" in line:
                return line
        raise AssertionError("the service has ended")

    def test_answers_every_request_while_it_trains_and_a_rank_dies(self):
        service = self.start("--shard_size", 1000, "--epochs", 5)
        client = self.client("--rate", 100, "--checkpoints", 12)
        self.assertRegex(self.kill_a_rank(service), r"^round-\d+: rank \d: killed by signal 9")
        rounds = self.rounds_of(client)
        self.assertGreater(len(rounds), 1)
        self.end_of(service)
        kept = sorted(x.name for x in self.storage.glob("round-*"))
        self.assertLessEqual(len(kept), 2)
        self.assertEqual(strange_folders(self.storage), [])
        # The next service answers at once, and resumes from there.
        service = self.start("--shard_size", 1000, "--epochs", 1)
        first, *others = self.rounds_of(self.client("--rate", 100, "--checkpoints", 2))
        self.assertIn(first, kept)
        self.assertTrue(all(x > kept[-1] for x in others), others)
        self.end_of(service)

    def test_leaves_the_storage_open_to_those_who_have_runs_there(self):
        self.storage.mkdir()
        self.storage.chmod(0o775)
        self.end_of(self.start())
        mode = {x: stat.S_IMODE((self.storage / x).stat().st_mode) for x in (".", ".sockets", ".samples")}
        self.assertEqual(mode, {".": 0o775, ".sockets": 0o700, ".samples": 0o700})

    def test_says_why_it_cannot_serve(self):
        self.start()
        _, err = self.run_example(code=1)
        self.assertIn(".sockets/service", err)
        out, err = run("service_client", "--socket", "nowhere", folder=self.folder, code=1)
        self.assertIn("nowhere", err)


class Readme(ExampleTest):
    program = "readme_example"

    def test_says_once_what_it_refuses(self):
        _, err = self.run_example(code=2, environment={"TROUPE_SENDER_GRACE": "abc"})
        self.assertEqual(err.count("TROUPE_SENDER_GRACE"), 1, err)

    def test_trains_as_it_stands_in_the_readme(self):
        if not DATA.exists():
            self.skipTest("the package dataset-fashion-mnist is not installed")
        self.run_example()
        self.assertEqual(config_names(self.storage / "fashion"), ["lr", "epochs"])
        (batch,) = batches_of(self.storage / "fashion")
        self.assertLess(batch["values"][0]["loss"], 2.3)
        self.assertIn("checkpoint", batch)
        self.run_example()  # The first run stays; this one has the next name.
        self.assertEqual(len(batches_of(self.storage / "fashion-2")), 1)

    def test_resumes_from_its_checkpoint(self):
        if not DATA.exists():
            self.skipTest("the package dataset-fashion-mnist is not installed")
        self.check_resumes(name="fashion", epochs=1, killed_at=1)


class Tracking(ExampleTest):
    program = "tracking"

    def setUp(self):
        super().setUp()
        if not DATA.exists():
            self.skipTest("the package dataset-fashion-mnist is not installed")

    def track(self, tracker, **environment):
        out, _ = self.run_example("--tracker", tracker, "--limit", 640, "--epochs", 2, "--name", "seen",
                                  environment=environment)
        path = self.storage / "seen"
        self.assertIn(f"report.html and metrics.csv are in {path}", out)
        return path

    def test_leaves_a_table_and_a_page(self):
        path = self.track("csv")
        with open(path / "metrics.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        losses = [float(x["train/loss"]) for x in rows if x["train/loss"]]
        self.assertEqual(len(losses), 2)
        self.assertLess(losses[1], losses[0])
        self.assertTrue(any(x["batch/loss"] for x in rows))
        page = (path / "report.html").read_text()
        self.assertIn("train/loss", page)
        (image,) = (path / "media").iterdir()
        self.assertEqual(image.read_bytes()[:8], b"\x89PNG\r\n\x1a\n")

    def test_writes_the_file_store_of_mlflow(self):
        self.track("mlflow")
        (curve,) = (self.storage / "mlruns").glob("*/*/metrics/train/loss")
        self.assertEqual(len(curve.read_text().splitlines()), 2)
        (value,) = (self.storage / "mlruns").glob("*/*/params/batch_size")
        self.assertEqual(value.read_text(), "64")

    def test_writes_event_files_of_tensorboard(self):
        path = self.track("tensorboard")
        events = list((path / "tensorboard").glob("events.out.tfevents.*"))
        self.assertTrue(any(b"train/loss" in x.read_bytes() for x in events))

    def test_writes_the_files_of_wandb(self):
        path = self.track("wandb", WANDB_MODE="offline", HOME=str(self.folder))
        (written,) = path.glob("wandb/offline-run-*/run-*.wandb")
        self.assertIn(b"train/loss", written.read_bytes())

    def test_packs_an_archive_for_comet(self):
        path = self.track("comet", COMET_API_KEY="", HOME=str(self.folder))
        (packed,) = path.glob("comet/*.zip")
        with zipfile.ZipFile(packed) as archive:
            self.assertIn(b"train/loss", archive.read("messages.json"))

    def test_serves_a_page_for_prometheus(self):
        with subprocess.Popen([PROGRAMS / self.program, "--tracker", "prometheus", "--limit", "640", "--epochs", "1000000"],
                              cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as program:
            try:
                said = next((x for x in program.stderr if "Prometheus finds the run at" in x), "")
                self.assertRegex(said, r"http://\S+/metrics")
                page = ""
                while 'name="train_loss"' not in page:
                    with urllib.request.urlopen(said.split()[-1], timeout=LIMIT_S) as answer:
                        page = answer.read().decode()
                self.assertRegex(page, r'troupe_run_state\{run="[^"]+",state="running"\} 1')
                program.send_signal(signal.SIGINT)
                _, said = program.communicate(timeout=LIMIT_S)
            finally:
                program.kill()
        self.assertEqual(program.returncode, 1, said)
        self.assertIn("the run was stopped by SIGINT", said)

    def test_resumes_from_its_checkpoint(self):
        self.check_resumes("--limit", 640, "--epochs", 2, "--name", "seen", name="seen", epochs=2, killed_at=1)
        with open(self.storage / "seen" / "metrics.csv", newline="") as file:
            steps = [int(x["step"]) for x in csv.DictReader(file) if x.get("batch/loss")]
        self.assertEqual(steps, sorted(set(steps)))

    def test_shows_what_a_tracker_has_not_taken(self):
        # The place in the journal cannot be read.
        (self.storage / "seen" / "sinks" / "csv.offset").mkdir(parents=True)
        _, err = self.run_example("--limit", 640, "--epochs", 1, "--name", "seen")
        self.assertIn("metrics.csv may be incomplete", err.splitlines()[-1])

    def test_refuses_an_unknown_tracker(self):
        _, err = self.run_example("--tracker", "abacus", code=2)
        self.assertIn("--tracker: expected csv|tensorboard|mlflow|wandb|comet|prometheus, got 'abacus'", err)


class LightningStyle(ExampleTest):
    program = "lightning_style"

    def test_prints_each_epoch_and_where_its_files_are(self):
        if not DATA.exists():
            self.skipTest("the package dataset-fashion-mnist is not installed")
        out, _ = self.run_example("--limit", 1024, "--epochs", 2, "--name", "small")
        path = self.storage / "small"
        *epochs, last = out.splitlines()[-3:]
        self.assertEqual(last, f"files are in {path}")
        self.assertEqual(config_names(path), ["data", "lr", "epochs", "limit"])
        batches = batches_of(path)
        self.assertEqual(len(batches), 2)
        for epoch, (line, batch) in enumerate(zip(epochs, batches)):
            first, second = batch["values"]
            self.assertEqual(first, second)  # means over both ranks
            self.assertEqual((first["epoch"], first["step"]), (epoch, 8 * (epoch + 1)))
            self.assertIn(f"epoch={epoch} ", line)
            self.assertIn("lr-fused_adam=", line)
            self.assertIn("val/accuracy=", line)
        self.assertLess(batches[1]["values"][0]["val/loss"], batches[0]["values"][0]["val/loss"])
        (kept,) = (path / "checkpoints").iterdir()
        self.assertTrue((kept / "model.safetensors").exists())


class FashionMnist(ExampleTest):
    program = "fashion_mnist"

    def test_trains_and_resumes_from_its_checkpoint(self):
        if not DATA.exists():
            self.skipTest("the package dataset-fashion-mnist is not installed")
        quick = ["--limit", 512, "--workers", 2, "--batch-size", 32]
        out, err = self.run_example(*quick, "--name", "first")
        first = self.storage / "first"
        self.assertRegex(out, r"validation accuracy 0\.\d+; files are in " + re.escape(str(first)))
        self.assertIn("finished", err)
        self.assertEqual(config_names(first), ["data", "resume", "lr", "seed", "epochs", "batch_size", "limit"])
        (batch,) = batches_of(first)
        values = batch["values"][0]
        self.assertEqual(values["epoch"], 0)
        self.assertEqual(batch["values"][1], values)  # summed over all ranks
        self.assertGreater(values["val/accuracy"], 0.05)
        self.assertLess(values["train/loss"], 5)
        self.assertTrue((first / "checkpoints" / "checkpoint_000000" / "model.safetensors").exists())
        # The name of a finished run is taken.
        _, err = self.run_example(*quick, "--name", "first", code=1)
        self.assertIn("has finished", err)
        self.run_example(*quick, "--name", "second", "--epochs", 2, "--resume", first)
        (batch,) = batches_of(self.storage / "second")
        self.assertEqual(batch["values"][0]["epoch"], 1)
        self.assertLess(batch["values"][0]["train/loss"], values["train/loss"])
        out, _ = self.run_example(*quick, "--name", "third", "--epochs", 2, "--resume", self.storage / "second")
        self.assertIn("no epoch was left to train", out)

    def test_refuses_wrong_options_in_one_sentence(self):
        for arguments, says in ((["--lerning-rate", "1"], "there is no option '--lerning_rate'"),
                                (["--epochs"], "--epochs has no value"),
                                (["--epochs", "1.5"], "--epochs: expected integer, got '1.5'"),
                                (["--epochs", "1e10"], "--epochs: 1e10 is out of range"),
                                (["--storage", "--epochs"], "--storage has no value"),
                                (["--limit", "-5"], "epochs and limit are at least 0"),
                                (["--lr=1", "--lr=2"], "--lr is given twice"),
                                (["--workers=two"], "--workers: expected integer or FEWEST:MOST, got 'two'"),
                                (["epochs", "1"], "'epochs' is not an option")):
            out, err = self.run_example(*arguments, code=2)
            self.assertEqual(out, "")
            self.assertTrue(err.startswith("fashion_mnist: " + says), err)
            self.assertEqual(len(err.splitlines()), 1, err)
        self.assertFalse(self.storage.exists())

    def test_lists_its_options(self):
        out, err = self.run_example("--help")
        self.assertTrue(out.startswith("usage: fashion_mnist [options]\nResNet-18 on FashionMNIST"), out)
        self.assertEqual(err, "")

    def test_finds_the_users_home_itself(self):
        home = {"HOME": str(self.folder)}
        _, err = self.run_example("--data=~/images", "--workers=0", code=1, environment=home)
        self.assertIn(str(self.folder / "images"), err)
        _, err = self.run_example("--data=~/images", "--workers=0", code=1, environment={"HOME": ""})
        self.assertIn(str(Path(pwd.getpwuid(os.getuid()).pw_dir) / "images"), err)

    def test_names_the_package_of_missing_data(self):
        _, err = self.run_example("--data", self.folder, "--workers", 2, code=1)
        self.assertIn("dataset-fashion-mnist", err)
        self.assertIn(str(self.folder), err)

    def test_refuses_to_resume_from_a_folder_that_is_not_a_run(self):
        out, err = self.run_example("--resume", self.folder / "nothing", code=1)
        self.assertIn("--resume: ", err)
        self.assertIn(str(self.folder / "nothing"), err)
        self.assertEqual(out, "")


class DecidingCallback(ExampleTest):
    program = "deciding_callback"

    def test_ends_the_run_as_finished_once_the_mean_over_all_ranks_is_low_enough(self):
        out, err = self.run_example("--name", "line", "--target", "0.05")
        self.assertIn("the mean loss of all ranks is low enough", out)
        self.assertIn("finished", err)
        means = [sum(x["loss"] for x in batch["values"]) / 2 for batch in batches_of(self.storage / "line")]
        decided = next(i for i, x in enumerate(means) if x < 0.05)
        self.assertLess(len(means), 1000)
        kept = (self.storage / "line/callbacks/loss_judge/losses.txt").read_text().splitlines()
        self.assertGreater(len(kept), decided)
        for line, mean in zip(kept, means):
            self.assertAlmostEqual(float(line.split()[1]), mean, delta=1e-4 * mean)

    def test_aborts_a_run_whose_loss_is_not_a_number(self):
        out, err = self.run_example("--lr", "300", code=1)
        self.assertEqual(out, "")
        self.assertRegex(err, r"the loss is not a number after report \d+")


class SurvivingKill(ExampleTest):
    program = "surviving_kill"

    def test_has_each_report_once_after_a_rank_and_the_driver_were_killed(self):
        self.run_example(code=-9)
        reached = [x["values"][0]["step"] for x in batches_of(self.storage / "sum")]
        self.assertGreaterEqual(reached[-1], 40)
        out, _ = self.run_example()
        self.assertEqual(out, "60 reports in 3 attempts, each there once; the sum is 1830\n")
        batches = batches_of(self.storage / "sum")
        self.assertEqual([x["values"][0]["step"] for x in batches], list(range(1, 61)))
        self.assertEqual([x["values"][0]["step"] for x in batches][:len(reached)], reached)
        self.assertEqual([x["values"][0]["sum"] for x in batches], [n * (n + 1) // 2 for n in range(1, 61)])
        self.run_example(code=-9)  # The first run stays; this one has the next name.
        self.assertGreaterEqual(len(batches_of(self.storage / "sum-2")), 40)


class ReadingResults(ExampleTest):
    program = "reading_results"

    def test_shows_a_run_that_it_made(self):
        out, _ = self.run_example("--name", "curve")
        self.assertIn("curve: finished after 1 attempt(s), last epoch=5 loss=0.15\n", out)
        self.assertRegex(out, r"loss +mean 0\.905, from 0\.9 to 0\.91\n")
        self.assertEqual(out.splitlines()[-1], "the best checkpoint is checkpoint_000004, with epoch=4 loss=0.1")
        again, _ = self.run_example("--read", self.storage / "curve")
        self.assertEqual(again, out)

    def test_names_a_folder_that_is_not_a_run(self):
        out, err = self.run_example("--read", self.folder / "nothing", code=1)
        self.assertEqual(out, "")
        self.assertTrue(err.startswith("reading_results: "), err)
        self.assertIn(str(self.folder / "nothing"), err)

    def test_shows_a_run_of_another_program(self):
        run("minimal", "--name", "count", folder=self.folder)
        out, _ = self.run_example("--read", self.storage / "count")
        self.assertIn("count: finished after 1 attempt(s), last rank=0 step=5\n", out)
        self.assertEqual(out.splitlines()[-1], "the best checkpoint is checkpoint_000004, with rank=0 step=5")

    def read_by_pandas(self, *arguments, code=0):
        python = os.environ.get("TROUPE_PEERS_PYTHON")
        if not python:
            self.skipTest("TROUPE_PEERS_PYTHON, a Python with pandas, is not set")
        done = subprocess.run([python, EXAMPLES / "reading_results/read_results.py", *map(str, arguments)],
                              capture_output=True, text=True, timeout=LIMIT_S)
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stdout, done.stderr

    def test_is_read_by_pandas_as_well(self):
        self.run_example("--name", "curve")
        out, _ = self.read_by_pandas(self.storage / "curve")
        self.assertRegex(out, r"\n4 +0\.105 +0\.1[0 ]* +0\.11")
        self.assertEqual(out.splitlines()[-1], "the lowest loss is 0.1, in report 4")

    def test_pandas_reads_runs_of_other_programs(self):
        run("minimal", "--name", "count", folder=self.folder)
        out, _ = self.read_by_pandas(self.storage / "count", "step")
        self.assertEqual(out.splitlines()[-1], "the lowest step is 1, in report 0")
        self.read_by_pandas(self.storage / "count", "rank")  # is a metric of that program
        _, err = self.read_by_pandas(self.storage / "count", code=1)
        self.assertRegex(err, r"^read_results.py: \S+ has no metric loss; its columns are .*\n$")
        # A loss that becomes infinite, then NaN, and no checkpoints; a line that is still being written.
        run("deciding_callback", "--lr", 300, "--name", "nan", folder=self.folder, code=1)
        with open(self.storage / "nan/journal.jsonl", "a") as journal:
            journal.write('{"batch":')
        out, _ = self.read_by_pandas(self.storage / "nan")
        self.assertRegex(out, r"\binf\b")
        self.assertEqual(out.splitlines()[-1], "no checkpoint has a number loss")


class OwnSink(ExampleTest):
    program = "own_sink"

    def test_writes_each_report_once_even_if_the_driver_is_killed(self):
        self.run_example(code=-9, environment={"TROUPE_FAILPOINT": "commit.state_saved:10"})
        out, _ = self.run_example()
        path = self.storage / "curve/points.txt"
        self.assertEqual(out, f"points are in {path}\n")
        points = [re.fullmatch(r"curve,rank=(\d) loss=\S+,step=(\d+) \d{19}", x).groups()
                  for x in path.read_text().splitlines()]
        self.assertEqual(points, [(str(rank), str(step)) for step in range(1, 21) for rank in (0, 1)])
        out, _ = self.run_example()  # The first run stays; this one has the next name.
        self.assertEqual(out, f"points are in {self.storage / 'curve-2/points.txt'}\n")


class OwnDataset(ExampleTest):
    program = "own_dataset"

    def train(self, name, *arguments):
        out, _ = self.run_example("--name", name, *arguments)
        seen, found = map(int, re.search(r"(\d+) % of the samples were of the outer ring; (\d+) %", out).groups())
        return seen, found, [x["values"][0] for x in batches_of(self.storage / name)]

    def test_sees_the_rare_ring_as_often_as_the_other_by_its_weights(self):
        seen, found, _ = self.train("balanced")
        self.assertLess(abs(seen - 50), 5)
        self.assertGreater(found, 80)
        seen, _, _ = self.train("as_it_is", "--balanced=false", "--epochs", 1)
        self.assertEqual(seen, 2)

    def test_makes_the_same_points_in_any_number_of_threads(self):
        *_, none = self.train("none", "--readers", 0, "--epochs", 2)
        *_, three = self.train("three", "--readers", 3, "--epochs", 2)
        self.assertEqual(none, three)


class EpochLoopTracking(ExampleTest):
    program = "epoch_loop_tracking"

    def setUp(self):
        super().setUp()
        if not DATA.exists():
            self.skipTest("the package dataset-fashion-mnist is not installed")

    def test_shows_what_module_loop_and_callback_log(self):
        out, _ = self.run_example("--limit", 1024, "--name", "seen")
        self.assertRegex(out, r"validation accuracy 0\.\d+; files are in " + re.escape(str(self.storage / "seen")))
        events = b"".join(x.read_bytes() for x in (self.storage / "seen/tensorboard").glob("events.out.tfevents.*"))
        for name in (b"train/loss", b"val/loss", b"val/accuracy", b"largest_weight"):
            self.assertIn(name, events)

    def test_continues_its_curves_after_a_kill(self):
        arguments = ["--limit", 1024, "--name", "seen", "--tracker", "mlflow"]
        self.check_resumes(*arguments, name="seen", epochs=2, killed_at=1)
        (run,) = (self.storage / "mlruns").glob("*/*/metrics")
        for name in ("val/loss", "largest_weight"):
            self.assertEqual([int(x.split()[2]) for x in (run / name).read_text().splitlines()],
                             [0, 1] if name == "val/loss" else [8, 16])
class LanguageModel(ExampleTest):
    program = "language_model"
    parts = (("the cat", "a dog", "the old man", "my sister", "our king"),
             ("sees", "likes", "follows", "paints", "forgets"),
             ("the sea", "a red house", "the moon", "an apple", "the long road"))

    def setUp(self):
        super().setUp()
        numbers = random.Random(7)
        self.text = self.folder / "sentences"
        self.text.write_text("".join(" ".join(map(numbers.choice, self.parts)) + ".\n" for _ in range(1000)))
        self.small = ("--text", self.text, "--model.layers", 1, "--model.heads", 2, "--model.width", 64,
                      "--model.context", 32, "--epochs", 4, "--lr", 0.006)

    def train(self, name, *arguments, **options):
        """What was printed, and the values of all reports."""
        out, _ = self.run_example(*self.small, "--name", name, *arguments, **options)
        return out, [x["values"] for x in batches_of(self.storage / name)]

    def test_learns_to_write_and_prints_samples(self):
        out, reports = self.train("writer")
        self.assertEqual([x[0]["epoch"] for x in reports], [0, 1, 2, 3])
        for report in reports:
            first, second = ({k: v for k, v in x.items() if k != "tokens_per_s"} for x in report)
            self.assertEqual(first, second)  # means over both ranks
        last = reports[-1][0]
        # One of 256 by chance is 5.5, by how frequent a byte is 2.8; who knows the sentences gets to 0.2.
        self.assertLess(last["val/loss"], 0.6)
        self.assertLess(last["train/loss"], reports[0][0]["train/loss"] - 1.5)
        self.assertAlmostEqual(last["lr"], 0.0006)  # the end of the cosine
        self.assertGreater(last["tokens_per_s"], 0)
        *epochs, end = out.split("--- ")[1:]
        self.assertEqual([x.split(",")[0] for x in epochs], [f"after epoch {x}" for x in range(4)])
        written = re.fullmatch(r"in the end:\n(.{601})\n---\nfiles are in (\S+)\n", end, re.DOTALL)
        self.assertIsNotNone(written, end)
        self.assertEqual(written[2], str(self.storage / "writer"))
        known = set(" ".join(sum(self.parts, ())).split())
        words = re.findall(r"[a-z]+", written[1])
        self.assertGreater(sum(x in known for x in words), 0.6 * len(words), written[1])
        (kept,) = (self.storage / "writer" / "checkpoints").iterdir()
        self.assertLessEqual({"model.safetensors", "optimizer.safetensors", "schedule.bin", "epoch.bin"},
                             {x.name for x in kept.iterdir()})

    def test_learns_the_same_from_a_batch_as_from_its_parts(self):
        losses = []
        for workers, batch_size, accumulate in ((2, 8, 1), (2, 2, 4), (0, 4, 4)):
            _, reports = self.train(f"of-{workers}-{accumulate}", "--limit", 64, "--workers", workers, "--batch-size",
                                    batch_size, "--accumulate", accumulate, environment={"OMP_NUM_THREADS": "1"})
            losses.append(reports[-1][0]["val/loss"])
        for loss in losses[1:]:
            self.assertAlmostEqual(loss, losses[0], places=3)

    def test_resumes_from_its_checkpoint(self):
        _, whole = self.train("whole", "--limit", 256)
        cut = self.check_resumes(*self.small, "--limit", 256, "--name", "cut", name="cut", epochs=4, killed_at=2)
        # The same weights, moments, rates and order of windows: the curve of a run that was not cut off.
        for report, batch in zip(whole, cut):
            for name in ("train/loss", "val/loss", "lr"):
                self.assertAlmostEqual(batch["values"][0][name], report[0][name], places=4)

    def test_says_in_one_sentence_what_it_cannot_learn_from(self):
        missing = self.folder / "nothing"
        _, err = self.run_example("--text", missing, code=2)
        self.assertTrue(err.startswith(f"language_model: {missing} is not a file"), err)
        self.assertEqual(len(err.splitlines()), 1, err)
        _, err = self.run_example("--text", self.text, "--model.context", 8192, code=1)
        self.assertIn("the text is too short: a step takes 16 windows of 8192 bytes", err)

    def test_learns_from_fortunes_or_names_their_package(self):
        if Path("/usr/share/games/fortunes/people").exists():
            out, _ = self.run_example("--limit", 32, "--epochs", 1, "--model.layers", 1, "--model.width", 32)
            self.assertIn("--- after epoch 0", out)
        else:
            _, err = self.run_example(code=2)
            self.assertIn("install Debian's package fortunes", err)


class RayTrainPort(ExampleTest):
    program = "ray_train_port"

    def test_reports_a_loss_and_a_checkpoint_per_epoch(self):
        if not DATA.exists():
            self.skipTest("the package dataset-fashion-mnist is not installed")
        self.run_example("--limit", 512, "--epochs", 2, "--name", "port")
        batches = batches_of(self.storage / "port")
        self.assertEqual([list(x["values"][0]) for x in batches], [["loss"], ["loss"]])
        for batch in batches:
            self.assertTrue(0 < batch["values"][0]["loss"] < 10)
            model = self.storage / "port/checkpoints" / batch["checkpoint"] / "model.safetensors"
            self.assertIn(b'"layer1.0.conv1.weight"', model.read_bytes()[:65536])  # as torchvision names it

    def test_resumes_on_a_second_start(self):
        if not DATA.exists():
            self.skipTest("the package dataset-fashion-mnist is not installed")
        arguments = ["--limit", 256, "--epochs", 2]
        self.run_example(*arguments, code=-9, environment={"TROUPE_FAILPOINT": "commit.state_saved:1"})
        self.run_example(*arguments)
        path = self.storage / "ray_train_port"
        self.assertEqual([x["batch"] for x in batches_of(path)], [0, 1])
        self.assertTrue((path / "checkpoints/checkpoint_000001/optimizer.safetensors").exists())


class CommandLine(unittest.TestCase):
    def test_an_argument_that_makes_no_sense_is_refused_in_one_sentence(self):
        lr = ["--lr nan", "--lr inf", "--lr 0", "--lr -1"]
        for program, wrong in {"minimal": ["--steps 0", "--steps -1"],
                               "own_sink": ["--steps 0"],
                               "deciding_callback": ["--epochs 0", "--target nan", "--target 0", *lr],
                               "surviving_kill": ["--steps 0", "--kill_rank_at -1", "--kill_driver_at -1"],
                               "linear_regression": ["--epochs 0", "--samples 0", "--samples 2000000000", *lr],
                               "torchmetrics": ["--epochs 0", "--samples 0", "--batch_size 0", "--batch_size 101", *lr],
                               "own_dataset": ["--epochs 0", "--rare 0", "--rare 1", "--rare nan", "--points 10",
                                               "--points 2000000000", "--readers -1", "--readers 65", *lr],
                               "epoch_loop_tracking": ["--epochs 0", "--limit 0", *lr],
                               "lightning_style": ["--epochs 0", "--limit 0", *lr],
                               "tracking": ["--epochs 0", "--batch_size 0", "--limit -1", *lr],
                               "fashion_mnist": ["--epochs -1", "--batch_size 0", *lr],
                               "ray_train_port": ["--epochs 0", "--limit 0"],
                               "language_model": [f"--text file {x}" for x in (
                                   "--epochs -1", "--limit -1", "--accumulate 0", "--clip nan", "--temperature inf",
                                   "--weight_decay nan", "--weight_decay -1", "--model.heads 3", "--model.width 1000000000",
                                   "--model.context 0", *lr)],
                               "sweep": ["--trials 0", "--trials -1", "--epochs 0", "--momentum 1", "--momentum nan", *lr],
                               "service": ["--workers 0", "--epochs 0", "--shard_size 0", "--storage file",
                                           "--storage /proc/runs"],
                               "service_client": ["--rate 0", "--samples 0", "--samples 2000000000", "--limit_s -1",
                                                  "--checkpoints 0"],
                               "actor_learner": ["--goal nan", "--goal -1", "--goal 501", "--environments 0",
                                                 "--environments 1000000", "--updates 0", "--storage file",
                                                 "--storage /proc/runs"]}.items():
            if not (PROGRAMS / program).exists():
                continue
            for arguments in wrong:
                with self.subTest(f"{program} {arguments}"), tempfile.TemporaryDirectory() as folder:
                    (Path(folder) / "file").write_text("x")
                    out, err = run(program, *arguments.split(), folder=folder, code=1 if "storage" in arguments else 2)
                    self.assertEqual(out, "")
                    self.assertRegex(err, rf"^{program}: [^\n]+\n$")
                    self.assertEqual(os.listdir(folder), ["file"])

    def test_help_says_what_a_program_does(self):
        programs = [name for x in EXAMPLES.glob("*/CMakeLists.txt")
                    for name in re.findall(r"add_executable\((\w+)", x.read_text()) if (PROGRAMS / name).exists()]
        self.assertIn("minimal", programs)
        for program in programs:
            with self.subTest(program), tempfile.TemporaryDirectory() as folder:
                out, _ = run(program, "--help", folder=folder)
                self.assertRegex(out, rf"^usage: {program} \[options\]\n\S.*\.\n\n")


class Gpu(unittest.TestCase):
    def test_is_refused_before_anything_starts_where_there_is_none(self):
        with_torch = [x.parent.name for x in EXAMPLES.glob("*/CMakeLists.txt") if "COMPONENTS torch" in x.read_text()]
        built = [x for x in with_torch if (PROGRAMS / x).exists()]
        if not built:
            self.skipTest("no example that takes --gpu is built here")
        for program in built:
            with self.subTest(program), tempfile.TemporaryDirectory() as folder:
                out, err = run(program, "--gpu", folder=folder, code=2, environment={"CUDA_VISIBLE_DEVICES": ""})
                self.assertEqual(out, "")
                self.assertRegex(err, "--gpu: (LibTorch|CUDA) shows this process no GPU")
                self.assertEqual(os.listdir(folder), [])


if __name__ == "__main__":
    unittest.main()
