#!/usr/bin/python3
"""Runs trainings under a seeded schedule of faults and has the checker look at each.

  campaign.py --program FILE --shim FILE [--seed N] [--faults M] [--case K] [--families A,B | --families all]
  campaign.py --program FILE --shim FILE --points

Prints the schedule and the verdict of every case, then the sum. A failure is repeated by its seed and case.
"""
import argparse
import collections
import concurrent.futures
import dataclasses
import os
import resource
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import checker
import faults
import run_reader
from run_reader import Case

# Families that are known to pass; `--families all` runs the others, too.
CLEAN = ["rank-kill", "rank-kill-again", "all-ranks-kill", "rank-pause", "rank-point", "rank-io", "rank-io-delay",
         "loop-fails", "spawner-kill", "spawner-pause", "driver-kill", "driver-killed-by-rank", "driver-point",
         "driver-pause", "driver-signal", "driver-stopped-by-rank", "driver-io-delay", "two-drivers", "lock-removed",
         "runtime-removed", "stdout-closed", "stdout-closed-signal", "rot", "rot-point", "torn", "full-disk",
         "preempt", "preempt-again", "preempt-driver-kill", "preempt-rank-kill", "preempt-spawner-kill", "rank-stop",
         "loop-throws", "spawner-stop", "driver-hangup", "driver-point-fails", "driver-io", "lock-removed-two",
         "folder-renamed", "folder-replaced"]
# A run with LibTorch takes a second to start: there are few of these cases.
TORCH_SHARE = 0.1
# The remains of a run may take 2 s to disappear (N7). Where other programs share these cores, five times that is a
# violation.
GONE_ALONE_S, GONE_S = 2.0, 10.0
# The time a driver may take on top of its own limits; on an idle host it needs a second.
ALLOWANCE_S = 40.0
# A family with that many misses and no hit is broken.
CHANCES = 20


@dataclasses.dataclass
class Setting:
    program: str
    shim: str
    root: Path
    torch_program: str = ""
    lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)
    undisturbed: dict = dataclasses.field(default_factory=dict)  # by plan: what rank 0 recorded
    driver: type = None  # a Driver
    families: dict = dataclasses.field(default_factory=lambda: faults.FAMILIES)
    make_case: object = faults.make_case
    describe: object = lambda plan: []  # What else is special about a plan.
    gone_s: float = GONE_S


def processes_of(marker: str) -> list:
    """Processes of one's own whose environment has *marker*."""
    result = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                with open(f"/proc/{entry.name}/environ", "rb") as file:
                    if marker.encode() in file.read().split(b"\0") and state_of(int(entry.name)) not in "ZX":
                        result.append(int(entry.name))
            except OSError:
                pass
    return result


def state_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return "X"


def wait_for_an_end(pids: list, seconds: float) -> None:
    """Waits up to *seconds* until one of *pids* has ended; not at all if there are none."""
    if not pids:
        return
    poll, opened = select.poll(), []
    try:
        for pid in pids:
            opened.append(os.pidfd_open(pid))
            poll.register(opened[-1], select.POLLIN)
        poll.poll(max(seconds, 0) * 1e3)
    except ProcessLookupError:
        pass
    finally:
        for x in opened:
            os.close(x)


def children_of(pid: int) -> list:
    result = []
    try:
        for task in os.scandir(f"/proc/{pid}/task"):
            result += [int(x) for x in Path(f"{task.path}/children").read_text().split()]
    except OSError:
        pass
    return result


def kill(pid: int, number: int) -> bool:
    try:
        os.kill(pid, number)
        return True
    except (ProcessLookupError, PermissionError):
        return False


class Driver:
    """One start of the trainee's driver and the faults that hit it."""

    def __init__(self, setting: Setting, case: Case, number: int, planned: list):
        self.setting, self.case, self.number = setting, case, number
        self.faults = [dict(x, delivered=False) for x in planned]
        self.marker = f"CHAOS_CASE={case.folder}"
        self.killed = self.disk_works = False
        self.beside = None  # a second driver
        self.to_do = []  # (time, what): second parts of faults
        self.gone_s = 0.0  # how long processes were left after its end
        self.words_before = {x: path.stat().st_size if (path := case.expected / x).exists() else 0
                             for x in ("output.txt", "results.jsonl")}
        self.acks_before = self.acks()
        self.failed_before = len(self.own_failures())

    @staticmethod
    def end_case(case: Case) -> None:
        """Ends what the drivers of a case have shared."""

    # -- before the start

    def program(self) -> str:
        return self.setting.torch_program if self.case.plan["learner"] == "torch" else self.setting.program

    def command(self) -> list:
        plan, folder = self.case.plan, self.case.folder
        workers = 0 if plan["placement"] == "inline" else plan["workers"]
        options = {"storage": folder / "s", "expected": folder / "x", "seed": plan["seed"], "steps": plan["steps"],
                   "workers": workers, "every": plan["every"], "keep": plan["keep"],
                   "step-us": plan["step_us"], "bytes": plan["bytes"], "report-timeout-ms": plan["report_timeout_ms"],
                   "tensorboard": plan["tensorboard"], "report-page": plan["report_page"],
                   "placement": plan["placement"], "max-failures": plan["max_failures"],
                   "leaves": plan["leaves"], "stop-grace-ms": plan["grace_ms"], "samples": plan.get("samples", 0),
                   "token": folder / "x" / f"token_{self.number}"}
        for x in self.faults:
            if x["do"] == "driver-failpoint":
                options["driver-failpoint"] = x["spec"]
            if x["do"] == "rank-failpoint":
                options["rank-failpoint"] = x["spec"]
            if "by" in x:
                options["fails-at"] = x["step"]
                options["fails-by"] = faults.trainee_word(x["by"])
            if x["do"] == "close-stdout":
                options["quiet"] = 0
                options["ignore-sigpipe"] = x["ignored"]
        return [self.program()] + [str(y) for k, v in options.items() for y in (f"--{k}", v)]

    def environment(self) -> dict:
        folder = self.case.folder
        result = {"PATH": os.environ.get("PATH", ""), "HOME": str(folder), "XDG_RUNTIME_DIR": str(folder / "r"),
                  "TMPDIR": str(folder / "t"), "CHAOS_CASE": str(folder), "OMP_NUM_THREADS": "1",
                  "TROUPE_FAILPOINT_LOG": str(self.failpoint_log())}
        for name in ("LD_LIBRARY_PATH", "ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS"):
            if name in os.environ:
                result[name] = os.environ[name]
        for x in self.faults:
            if x["do"] == "shim":
                fields = {"calls": x["calls"], "path": folder / "s", "file": x["file"], "nth": x["nth"],
                          "errno": x["errno"], "delay_us": x["delay_us"], "for_good": x["for_good"],
                          "role": x["role"], "once": folder / "x" / f"once_{self.number}",
                          "log": folder / "x" / f"shim_{self.number}.log"}
                result["LD_PRELOAD"] = self.setting.shim
                result["CHAOS_SHIM"] = ";".join(f"{k}={v}" for k, v in fields.items())
        return result

    def failpoint_log(self) -> Path:
        return self.case.expected / f"failpoints_{self.number}.log"

    def start(self, output) -> subprocess.Popen:
        def prepare():
            os.setpgid(0, 0)
            for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
                signal.signal(number, signal.SIG_DFL)  # A background campaign ignores them, and would pass that on.
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

        return subprocess.Popen(self.command(), env=self.environment(), cwd=self.case.folder, stdin=subprocess.DEVNULL,
                                stdout=output, stderr=subprocess.STDOUT, preexec_fn=prepare)

    # -- while it runs

    def acks(self) -> int:
        path = self.case.expected / "rank_0.jsonl"
        return path.read_bytes().count(b'"what":"acked"') if path.exists() else 0

    def own_failures(self) -> list:
        """What rank 0 wrote down before it failed as planned."""
        return [x for x in run_reader.read_records(self.case.expected / "rank_0.jsonl") if x["what"] == "fault"]

    def run(self) -> dict:
        for name in ("token", "once"):
            (self.case.expected / f"{name}_{self.number}").touch()
        output = open(self.case.expected / "output.txt", "ab")
        if any(x["do"] == "close-stdout" for x in self.faults):
            reader, output_end = os.pipe()
            self.process = self.start(output_end)
            os.close(output_end)
        else:
            reader = -1
            self.process = self.start(output)
        self.reader = reader
        begin = time.monotonic()
        bound = self.bound()
        pending = [x for x in self.faults if "at" in x]
        timed_out, stuck = False, ""
        while self.process.poll() is None or self.beside and self.beside.poll() is None:
            now = time.monotonic()
            if now - begin > bound:
                timed_out, stuck = True, self.diagnosis()
                break
            pending = [x for x in pending if not self.deliver_if_due(x, now - begin)]
            self.do_due(now)
            wait_for_an_end([x.pid for x in (self.process, self.beside) if x and x.poll() is None],
                            min([begin + bound, *self.due(pending, begin)]) - time.monotonic())
        if timed_out:
            for pid in processes_of(self.marker):
                kill(pid, signal.SIGKILL)
        rc = self.process.wait()
        if self.beside:
            self.beside.wait()
        if self.reader >= 0:
            os.close(self.reader)
        output.close()
        self.finish_folder()
        return self.record(rc, timed_out, stuck, time.monotonic() - begin, bound)

    def bound(self) -> float:
        """Seconds within which fit() must return: the limits it was given and what the campaign itself holds up."""
        plan = self.case.plan
        result = ALLOWANCE_S + plan["steps"] * plan["step_us"] * 1e-6 * (1 + len(self.faults))
        result += 20 + 5  # start_timeout, stop_timeout
        result += plan["report_timeout_ms"] * 1e-3 * (1 + len(self.faults))
        for x in self.faults:
            result += plan["grace_ms"] * 1e-3 if x["do"] == "preempt" else 0
            result += max(x.get("then_continue_ms", 0), 0) * 1e-3
            result += x.get("delay_us", 0) * 1e-6 * (self.delayed_calls() if x.get("for_good") else 1)
        return result

    def delayed_calls(self) -> int:
        """How many calls one after another a delay that stays can meet: the commit of a checkpoint opens its parts."""
        plan = self.case.plan
        return 100 + plan["steps"] * (20 + 8 * plan["workers"])

    def diagnosis(self) -> str:
        found = []
        for pid in processes_of(self.marker):
            try:
                where = Path(f"/proc/{pid}/wchan").read_text()
            except OSError:
                where = "?"
            found.append(f"{pid} {state_of(pid)} {where}")
        return "; ".join(found)

    def deliver_if_due(self, fault: dict, elapsed: float) -> bool:
        """Whether nothing remains to be done for *fault*."""
        if fault["at"] == "acks":
            if "seen" not in fault:
                if self.acks() - self.acks_before < fault["count"]:
                    return False
                fault["seen"] = elapsed
        elif "seen" not in fault:
            fault["seen"] = 0.0
        if elapsed < fault["seen"] + fault["wait_us"] * 1e-6:
            return False
        fault["delivered"] = self.deliver(fault)
        return True

    def due(self, pending: list, begin: float) -> list:
        """When to look again if no driver ends before: at planned times, and soon where a fault waits for a report."""
        return [x[0] for x in self.to_do] + [
            begin + x["seen"] + x["wait_us"] * 1e-6 if "seen" in x else time.monotonic() + 0.002 for x in pending]

    def do_due(self, now: float) -> None:
        for x in [x for x in self.to_do if now >= x[0]]:
            self.to_do.remove(x)
            x[1]()

    # -- the faults

    def deliver(self, fault: dict) -> bool:
        if self.process.poll() is not None:
            return False
        return getattr(self, fault["do"].replace("-", "_"))(fault)

    def signal(self, fault: dict) -> bool:
        number = signal.Signals["SIG" + fault["signal"]]
        if fault["target"] == "ranks":
            return any([kill(x, number) for x in self.rank_processes()])
        if "again_ms" in fault:
            self.to_do.append((time.monotonic() + fault["again_ms"] * 1e-3,
                               lambda: any([kill(x, number) for x in self.rank_processes()[:1]])))
        target = self.target(fault)
        fault["attempt"] = target[1]
        if not target[0] or not kill(target[0], number):
            return False
        if fault["target"] == "driver" and fault["signal"] in ("KILL", "SEGV", "ABRT"):
            self.killed = True
        if fault["then_continue_ms"] >= 0:
            self.to_do.append((time.monotonic() + fault["then_continue_ms"] * 1e-3,
                               lambda: kill(target[0], signal.SIGCONT)))
        return True

    def preempt(self, fault: dict) -> bool:
        def hit(second: dict) -> None:
            pid = self.target(second)[0] if self.process.poll() is None else 0
            second["delivered"] = pid > 0 and kill(pid, signal.Signals["SIG" + second["signal"]])

        if not kill(self.process.pid, signal.Signals["SIG" + fault["signal"]]):
            return False
        if second := fault["second"]:
            second["delivered"] = False
            self.to_do.append((time.monotonic() + second["after_us"] * 1e-6, lambda: hit(second)))
        return True

    def target(self, fault: dict) -> tuple:
        """(pid, attempt); pid 0 if there is no such process, attempt -1 if its rank is not known to run its loop."""
        if fault["target"] == "driver":
            return self.process.pid, -1
        if fault["target"] == "spawner":
            return next(iter(children_of(self.process.pid)), 0), -1
        ranks = self.rank_processes()
        records = run_reader.read_records(self.case.expected / f"rank_{fault['rank']}.jsonl")
        for x in reversed(records):
            if x["what"] in ("returned", "stopped", "failed"):
                break
            if x["what"] == "begun" and x["pid"] in ranks:
                return x["pid"], x["attempt"]
        return (ranks[fault["rank"] % len(ranks)] if ranks else 0), -1

    def rank_processes(self) -> list:
        return [x for spawner in children_of(self.process.pid) for x in children_of(spawner)]

    def remove_lock(self, fault: dict) -> bool:
        (self.case.run / "lock").unlink(missing_ok=True)
        return not fault["beside"] or self.second_driver(fault)

    def second_driver(self, fault: dict) -> bool:
        with open(self.case.expected / "output.txt", "ab") as output:
            self.beside = self.start(output)
        return True

    def rename_folder(self, fault: dict) -> bool:
        if not self.case.run.is_dir():
            return False
        os.rename(self.case.run, self.case.run.with_name("moved"))
        return fault["back"] or self.second_driver(fault)

    def remove_runtime(self, fault: dict) -> bool:
        shutil.rmtree(self.case.folder / "r", ignore_errors=True)
        return True

    def close_stdout(self, fault: dict) -> bool:
        os.close(self.reader)
        self.reader = -1
        return True

    def finish_folder(self) -> None:
        """What a fault leaves to be done when the driver has ended."""
        for fault in self.faults:
            if fault["do"] == "signal" and fault["delivered"] and fault["target"] == "driver":
                self.killed = self.killed or self.ended_beside_fit(fault["signal"])
            if fault["do"] == "preempt" and fault["delivered"]:
                second = fault["second"] or {"signal": ""}
                late = [fault["signal"]] + [second["signal"]] * (second.get("target") == "driver")
                self.killed = (self.killed or any(self.ended_beside_fit(x) for x in late)
                               or second["signal"] == "KILL" and self.process.returncode == -signal.SIGKILL)
            if fault["do"] == "rename-folder" and fault["delivered"]:
                moved = self.case.run.with_name("moved")
                if fault["back"] and moved.exists() and not (self.case.run / "run.json").exists():
                    shutil.rmtree(self.case.run, ignore_errors=True)  # The loop created folders under the old path.
                if not self.case.run.exists() and moved.exists():
                    os.rename(moved, self.case.run)
            if fault["do"] == "remove-runtime":
                (self.case.folder / "r").mkdir(mode=0o700, exist_ok=True)
            if fault["do"] == "shim":
                log = self.case.expected / f"shim_{self.number}.log"
                fault["delivered"] = log.exists()
                fault["calls_hit"] = log.read_text().splitlines()[:5] if log.exists() else []
            if fault["do"] == "full-disk":
                fault["delivered"] = self.disk_works and "No space left" in self.words()
            if fault["do"] == "loop-fails":
                hits = self.own_failures()[self.failed_before:]  # None if another fault came first.
                fault["delivered"] = bool(hits)
                fault["attempt"] = hits[-1]["attempt"] if hits else -1
                self.killed = self.killed or fault["delivered"] and fault["by"] in ("driver KILL", "driver SEGV")
            if fault["do"] in ("driver-failpoint", "rank-failpoint"):
                name = fault["spec"].split(":")[0]
                log = self.failpoint_log()
                fault["delivered"] = log.exists() and any(x.split()[1] == name for x in log.read_text().splitlines())
            if fault["do"] == "driver-failpoint":
                self.killed = self.killed or fault["kills"] and fault["delivered"]
            if fault["do"] == "close-stdout" and not fault["ignored"]:
                self.killed = self.killed or self.process.returncode == -signal.SIGPIPE
            if fault["do"] in ("rot", "tear"):
                self.killed = self.killed or self.process.returncode == -signal.SIGKILL
                fault["delivered"] = self.spoil(fault) if fault["do"] == "rot" else self.tear(fault)

    def ended_beside_fit(self, name: str) -> bool:
        """Whether the signal came before fit() could handle it, or after: then it does what signals do."""
        calls = [x["what"] for x in run_reader.read_records(self.case.expected / "callbacks.jsonl")
                if x["pid"] == self.process.pid]
        return self.process.returncode == -signal.Signals["SIG" + name] and (not calls or calls[-1] == "after_run")

    def words(self) -> str:
        """What the program printed and what fit() returned, from this driver on."""
        result = ""
        for name, begin in self.words_before.items():
            path = self.case.expected / name
            result += path.read_text(errors="replace")[begin:] if path.exists() else ""
        return result

    def spoil(self, fault: dict) -> bool:
        """Damages the newest checkpoint of a run that is to continue."""
        state = run_reader.read_document(self.case.run / "state.json")
        found = [x for x in run_reader.read_checkpoints(self.case.run).values() if x.manifest and not x.problems]
        if len(found) < 2 or not state or state["status"] == "finished":
            return False
        newest = max(found, key=lambda x: x.index)
        path = self.case.run / "checkpoints" / newest.name / "model.bin"
        data = path.read_bytes()
        if fault["how"] == "remove":
            path.unlink()
        else:
            path.write_bytes(data[:-1] if fault["how"] == "cut" else data[:-1] + bytes([data[-1] ^ 1]))
        fault["name"] = newest.name
        return True

    def tear(self, fault: dict) -> bool:
        """Leaves the beginning of a line at the journal's end."""
        path = self.case.run / "journal.jsonl"
        if not path.exists() or self.process.returncode != -signal.SIGKILL:
            return False
        line = path.read_bytes().splitlines(keepends=True)[-1]
        with path.open("ab") as file:
            file.write(line[:min(fault["bytes"], len(line) - 1)])
        return True

    # -- afterwards

    def record(self, rc: int, timed_out: bool, stuck: str, seconds: float, bound: float) -> dict:
        left = self.leftovers()
        journal = run_reader.read_journal(self.case.run / "journal.jsonl")
        whole = [x.index for x in run_reader.read_checkpoints(self.case.run).values() if x.manifest and not x.problems]
        attempts = [x["attempt"] for x in journal.events("attempt_begun")]
        return {"pid": self.process.pid, "rc": rc, "run_id": self.run_id(), "timed_out": timed_out, "stuck": stuck,
                "seconds": round(seconds, 3), "bound_s": bound, "gone_s": self.gone_s, "killed": self.killed,
                "faults": self.faults, "left": left, "last": not self.faults, "newest": max(whole, default=-1), "rows": len(journal.batches),
                "rank_failures": self.rank_failures(), "attempt_after": max(attempts, default=-1),
                "beside": self.beside.returncode if self.beside else None}

    def run_id(self) -> str:
        try:
            return (run_reader.read_document(self.case.run / "run.json") or {}).get("id", "")
        except run_reader.Damaged:
            return ""

    def rank_failures(self) -> int:
        try:
            return (run_reader.read_document(self.case.run / "state.json") or {}).get("rank_failures", 0)
        except run_reader.Damaged:
            return 0

    def leftovers(self) -> dict:
        begin = time.monotonic()
        deadline = begin + self.setting.gone_s
        while (left := processes_of(self.marker)) and time.monotonic() < deadline:
            wait_for_an_end(left, deadline - time.monotonic())
        self.gone_s = max(self.gone_s, time.monotonic() - begin)
        names = [f"{x} in state {state_of(x)}" for x in left]
        for x in left:
            kill(x, signal.SIGKILL)
        sockets = [x.split()[-1] for x in Path("/proc/net/unix").read_text().splitlines()
                   if str(self.case.folder) in x or f"/troupe-" in x and f"-{self.process.pid}-" in x]
        files = []
        if not self.killed:
            folder = self.case.folder
            files = [str(x.relative_to(folder)) for name in "rt" for x in (folder / name).rglob("*")]
            files += [str(x) for x in Path("/tmp").glob(f"troupe-*-{self.process.pid}-*")]
        if self.process.returncode != 0:  # It may have ended before it could clean up after those that were killed.
            files = [x for x in files if not any(f"-{start['pid']}-" in x for start in self.case.starts)]
        return {"processes": names, "sockets": sockets, "files": files}


# -- cases


class SmallDisk:
    """A file system of a few hundred KiB at *folder*; `works` is false where none may be mounted."""

    def __init__(self, folder: Path, kib: int):
        self.folder = folder
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kib}k,mode=700", "chaos", folder],
                              capture_output=True, check=False)
        self.works = done.returncode == 0

    def grow(self) -> None:
        subprocess.run(["mount", "-o", "remount,size=64m", self.folder], capture_output=True, check=True)

    def end(self) -> None:
        if self.works:
            subprocess.run(["umount", "-l", self.folder], capture_output=True, check=False)


@dataclasses.dataclass
class Outcome:
    number: int
    text: list
    violations: list
    delivered: collections.Counter
    skipped: collections.Counter
    seconds: float
    gone_s: float
    place: str


def make_folders(case: Case) -> None:
    for name in ("s", "x", "r", "t"):
        (case.folder / name).mkdir(parents=True, mode=0o700)


def undisturbed(setting: Setting, plan: dict) -> bytes:
    """What rank 0 of a run of *plan* writes down when nothing happens to it."""
    key = f"{plan['learner']}-{plan['seed']}-{plan['workers']}-{plan['steps']}"
    with setting.lock:
        if key not in setting.undisturbed:
            case = Case(setting.root / f"undisturbed-{key}", plan | {"placement": "processes", "max_failures": 0})
            make_folders(case)
            driver = setting.driver or Driver
            try:
                start = driver(setting, case, 0, []).run()
            finally:
                driver.end_case(case)
            if start["rc"] != 0:
                raise RuntimeError(f"a run that nothing disturbed ended with {start['rc']}: {case.folder}")
            setting.undisturbed[key] = (case.expected / "rank_0.jsonl").read_bytes()
    return setting.undisturbed[key]


def run_case(setting: Setting, number: int, plan: dict, starts: list) -> Outcome:
    begin = time.monotonic()
    case = Case(setting.root / str(number), plan)
    make_folders(case)
    if plan["learner"] == "torch":
        (case.expected / "undisturbed.jsonl").write_bytes(undisturbed(setting, plan))
    disk = None
    text, violations, delivered, skipped = [], [], collections.Counter(), collections.Counter()
    try:
        for planned in [*starts, []]:
            full = next((x for x in planned if x["do"] == "full-disk"), None)
            if full and not disk and not any((case.folder / "s").iterdir()):
                disk = SmallDisk(case.folder / "s", full["kib"])
            driver = (setting.driver or Driver)(setting, case, len(case.starts), planned)
            driver.disk_works = bool(disk and disk.works)
            start = driver.run()
            if disk and disk.works:
                disk.grow()
            for x in start["faults"]:
                (delivered if x["delivered"] else skipped)[x["family"]] += 1
            case.starts.append(start)
            case.save()
            words = ", ".join(faults.describe(x) + ("" if x["delivered"] else " (not hit)") for x in start["faults"])
            worlds = f", {'-'.join(map(str, x))} ranks" if len(set(x := start.get("worlds", []))) > 1 else ""
            text.append(f"{words or 'no fault'} -> {start['rc']} after {start['seconds']:.1f} s, "
                        f"{start['rows']} reports{worlds}")
            over = is_over(case)
            violations = checker.check(case, over)
            if start["last"] and not over:
                text_ = f"a driver that nothing disturbed ended with {start['rc']}: {last_error(case)}"
                violations.append(("N7", text_))
            violations += [("points", f"no driver came to {x['spec']}") for x in start["faults"]
                           if x["family"] == "points" and not x["delivered"]]
            if violations or over:
                break
    finally:
        (setting.driver or Driver).end_case(case)
        if disk:
            disk.end()
    special = {plan["learner"], plan["placement"]} - {"counting", "processes"}
    special |= set(setting.describe(plan))
    return Outcome(number, text, violations, delivered, skipped, time.monotonic() - begin,
                   max(x["gone_s"] for x in case.starts), "".join(f", {x}" for x in sorted(special)))


def is_over(case: Case) -> bool:
    """Whether the run has finished, though its driver may have been killed right after."""
    if case.starts[-1]["rc"] not in (0, 5):
        return False
    try:
        return (run_reader.read_document(case.run / "state.json") or {}).get("status") == "finished"
    except run_reader.Damaged:
        return case.starts[-1]["rc"] == 0


def last_error(case: Case) -> str:
    results = run_reader.read_records(case.expected / "results.jsonl")
    return results[-1].get("error") or results[-1].get("text", "") if results else "no result"


def print_outcome(x: Outcome, options: argparse.Namespace, folder: Path) -> None:
    print(f"case {x.number}{x.place}: {'VIOLATED' if x.violations else 'ok'} ({x.seconds:.1f} s)")
    for line in x.text:
        print(f"  {line}")
    for clause, text in x.violations:
        print(f"  {clause}: {text}")
    if x.violations:
        chosen = f"--seed {options.seed}"
        if options.points:
            chosen = "--points"
        elif options.families != ",".join(CLEAN):
            chosen += f" --families {options.families}"
        if options.torch_share != TORCH_SHARE:
            chosen += f" --torch-share {options.torch_share}"
        print(f"  again: ./dev chaos {options.prefix}{chosen} --case {x.number}; its files: {folder}")
    sys.stdout.flush()


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Trainings under a seeded schedule of faults.")
    parser.add_argument("--program", required=True)
    parser.add_argument("--shim", required=True)
    parser.add_argument("--torch-program", default="", help="the training with LibTorch, if there is one")
    parser.add_argument("--torch-share", type=float, default=TORCH_SHARE, help="of cases that train with it")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", type=int, default=100, help="faults that hit something, before the campaign ends")
    parser.add_argument("--case", type=int, help="run this case only")
    parser.add_argument("--families", default=",".join(CLEAN), help="comma-separated, or all")
    parser.add_argument("--points", action="store_true", help="kill a driver at each failpoint, and nothing else")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--alone", action="store_true", help="nothing else runs here: one case at a time, and its processes "
                        f"must be gone after {GONE_ALONE_S:.0f} s, not {GONE_S:.0f} s; on hosts 10 s later")
    parser.add_argument("--keep", action="store_true", help="keep the files of cases without violations, too")
    parser.set_defaults(prefix="")
    return parser


def campaign(options: argparse.Namespace, **special) -> int:
    root = Path(tempfile.mkdtemp(prefix="chaos-"))
    torch_program = str(Path(options.torch_program).resolve()) if options.torch_program else ""
    setting = Setting(str(Path(options.program).resolve()), str(Path(options.shim).resolve()), root, torch_program,
                      gone_s=GONE_ALONE_S if options.alone else GONE_S, **special)
    families = list(setting.families) if options.families == "all" else options.families.split(",")
    for name in families:
        if name not in setting.families:
            sys.exit(f"chaos: there is no family {name}; there are {', '.join(setting.families)}")
    share = options.torch_share if torch_program else 0
    delivered, skipped, failed, cases, gone_s = collections.Counter(), collections.Counter(), [], 0, 0.0
    jobs = 1 if options.alone else options.jobs
    points = faults.points()[0] if options.points else []
    most = len(points) if options.points else options.faults * 20
    numbers = iter([options.case] if options.case is not None else range(most))
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        running = set()

        def more():
            number = next(numbers, None)
            if number is not None:
                plan, starts = (faults.make_point_case(points[number]) if options.points
                               else setting.make_case(options.seed, number, families, share))
                running.add(pool.submit(run_case, setting, number, plan, starts))

        for _ in range(jobs):
            more()
        while running:
            done, running = concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED)
            for x in (future.result() for future in done):
                cases += 1
                delivered += x.delivered
                skipped += x.skipped
                gone_s = max(gone_s, x.gone_s)
                print_outcome(x, options, root / str(x.number))
                if x.violations:
                    failed.append(x.number)
                elif not options.keep:
                    shutil.rmtree(root / str(x.number), ignore_errors=True)
                if options.points or sum(delivered.values()) < options.faults:
                    more()
    never = [] if options.points else never_hit(families, delivered, skipped)
    by_family = ", ".join(f"{n} {name}" for name, n in sorted(delivered.items()))
    print(f"{f'{len(points)} failpoints' if options.points else f'seed {options.seed}'}: "
          f"{cases} cases, {sum(delivered.values())} faults ({by_family}); "
          f"{sum(skipped.values())} hit nothing; processes were gone {gone_s:.1f} s after their driver or sooner; "
          f"{len(failed)} cases violated{': ' if failed else ''}"
          f"{', '.join(map(str, sorted(failed)))}")
    if never:
        print(f"no fault of these families hit, though each had {CHANCES} chances or more: {', '.join(never)}")
    if not failed and not options.keep:
        shutil.rmtree(root, ignore_errors=True)
    return 1 if failed or never else 0


def never_hit(families: list, delivered: dict, skipped: dict) -> list:
    """Families whose faults cannot hit as it seems: a campaign without them shows less than it says."""
    return [name for name in families if delivered[name] == 0 and skipped[name] >= CHANCES]


if __name__ == "__main__":
    sys.exit(campaign(make_parser().parse_args()))
