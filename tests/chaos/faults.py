"""What a campaign does to a training, and when: everything follows from the seed and the number of the case.

A case is a plan for the trainee and a list of drivers. Each driver has faults; a last one, which has none, finishes the
run. A fault is a dict: `do` says what, `at` when ("acks": reports that rank 0 had acknowledged, or "ms": at the start),
`wait_us` how long after that.
"""
import errno
import functools
import random
import re
import signal
from pathlib import Path

TREE = Path(__file__).resolve().parents[2]


@functools.lru_cache
def points() -> tuple:
    """Failpoints of the sources: all of them, and those that can act as a system call that fails."""
    every, failing = set(), set()
    for layer in ("runtime", "callbacks", "actors", "trainers"):
        for path in (TREE / layer).rglob("*.cpp"):
            for before, name in re.findall(r'^(.*)\bfailpoint\("([^"]+)"\)', path.read_text("utf-8"), re.MULTILINE):
                every.add(name)
                if before.replace("(void)", "").strip():
                    failing.add(name)
    return sorted(every), sorted(failing)


# Failpoints that ranks pass, too.
RANK_POINTS = ["storage.sync_file"]
CALLS = ["open", "stat", "write", "fsync", "rename", "unlink", "mmap"]
CODES = [errno.EIO, errno.ENOSPC, errno.EACCES, errno.ESTALE, errno.EMFILE, errno.EINTR]


def make_plan(random_: random.Random) -> dict:
    return {"seed": random_.getrandbits(32), "steps": random_.randint(8, 16),
            "workers": random_.choice([1, 2, 2, 2, 3]), "every": random_.choice([1, 1, 2, 3]),
            "keep": random_.choice([0, 1, 2, 3]), "max_failures": -1,
            "step_us": random_.randint(500, 8000), "bytes": random_.randint(100, 2500), "report_timeout_ms": 0,
            "tensorboard": int(random_.random() < 0.25), "report_page": int(random_.random() < 0.2),
            "placement": "processes", "leaves": "saving", "grace_ms": 30_000, "learner": "counting"}


def moment(random_: random.Random, plan: dict) -> dict:
    """Some time in the run; now and then while it starts or ends."""
    which = random_.random()
    if which < 0.15:
        return {"at": "ms", "count": 0, "wait_us": random_.randint(0, 300_000)}
    if which < 0.25:
        return {"at": "acks", "count": plan["steps"], "wait_us": random_.randint(0, 30_000)}
    return {"at": "acks", "count": random_.randint(1, plan["steps"] - 2), "wait_us": random_.randint(0, 20_000)}


def to(target: str, signals: list):
    def family(random_, plan):
        return {"do": "signal", "target": target, "rank": random_.randrange(plan["workers"]),
                "signal": random_.choice(signals), "then_continue_ms": -1, **moment(random_, plan)}
    return family


def rank_stop(random_, plan):
    plan["report_timeout_ms"] = 1500
    plan["workers"] = max(plan["workers"], 2)
    fault = to("rank", ["STOP"])(random_, plan)
    return fault | {"at": "acks", "count": random_.randint(1, plan["steps"] - 2),
                    "then_continue_ms": random_.choice([-1, -1, random_.randint(1, 400), 2500])}


def kill_again(random_, plan):
    """A second rank dies while the group recovers from the death of the first."""
    return to("rank", ["KILL"])(random_, plan) | {"again_ms": random_.randint(0, 60)}


def stop(target, longest_ms):
    def family(random_, plan):
        return to(target, ["STOP"])(random_, plan) | {"then_continue_ms": random_.randint(1, longest_ms)}
    return family


def preempt(target, signals):
    """The run has to go; then *target* gets one of *signals* while its ranks leave."""
    def family(random_, plan):
        plan["leaves"] = random_.choice(["saving", "saving", "at once", "never"])
        plan["grace_ms"] = random_.choice([0, random_.randint(1, 60), 500, 5000])
        second = {"target": target, "rank": random_.randrange(plan["workers"]), "signal": random_.choice(signals),
                  "after_us": random_.randint(0, 25_000)} if target else None
        return {"do": "preempt", "signal": random_.choice(["TERM", "USR1"]), "second": second, **moment(random_, plan)}
    return family


def driver_point(random_, plan):
    return {"do": "driver-failpoint", "kills": True,
            "spec": f"{random_.choice(points()[0])}:{random_.choice([1, random_.randint(1, 12)])}"}


def driver_point_fails(random_, plan):
    for_good = random_.choice(["", "", "+"])
    return {"do": "driver-failpoint", "kills": False, "spec":
            f"{random_.choice(points()[1])}:{random_.randint(1, 20)}{for_good}={random_.choice(['eio', 'enospc'])}"}


def rank_point(random_, plan):
    action = random_.choice(["kill", "kill", "exit", "eio", "enospc"])
    return {"do": "rank-failpoint", "spec": f"{random_.choice(RANK_POINTS)}:{random_.randint(1, 8)}={action}"}


def loop_fails(ways):
    def family(random_, plan):
        return {"do": "loop-fails", "step": random_.randrange(plan["steps"]), "by": random_.choice(ways)}
    return family


def trainee_word(way: str) -> str:
    """How the trainee is asked to fail *way*."""
    *target, name = way.split()
    return way if name in ("throw", "exit") else " ".join([*target, str(int(signal.Signals["SIG" + name]))])


def shim(role, delays):
    def family(random_, plan):
        for_good = random_.random() < 0.3
        fault = {"do": "shim", "role": role, "calls": random_.choice(CALLS), "nth": random_.randint(1, 40),
                 "for_good": int(for_good), "errno": random_.choice(CODES), "delay_us": 0,
                 "file": random_.choice(["", "", "state.json", "journal.jsonl", "checkpoints", "manifest.json"])}
        if fault["file"]:
            fault["nth"] = random_.randint(1, 10)
        if role == "rank":  # Each rank counts its own passes, of which there are few.
            fault |= {"calls": random_.choice(["open", "open", "write", "fsync", "stat", "rename", "unlink", "mmap"]),
                      "nth": random_.randint(1, 8), "file": random_.choice(["", "checkpoints"])}
            if for_good and not delays:
                plan["max_failures"] = 2  # A restart does not repair it.
        if for_good and fault["errno"] == errno.EINTR:
            fault["errno"] = errno.EIO  # A call cannot be interrupted forever.
        if delays:
            fault |= {"errno": 0, "delay_us": random_.choice([20_000, 200_000] if for_good else [200_000, 1_500_000])}
        return fault
    return family


def simple(do, **more):
    def family(random_, plan):
        return {"do": do, **more, **moment(random_, plan), "at": "acks", "count": random_.randint(1, plan["steps"] - 3)}
    return family


def rot(random_, plan):
    plan["keep"] = random_.choice([0, 2, 3])
    plan["every"] = 1
    return {"do": "rot", "how": random_.choice(["flip", "cut", "remove"]), "by": "driver INT",
            "step": random_.randint(3, plan["steps"] - 1)}


def torn(random_, plan):
    """The driver is killed while it writes to the journal."""
    return {"do": "tear", "bytes": random_.randint(1, 60), "by": "driver KILL",
            "step": random_.randint(1, plan["steps"] - 1)}


def rot_point(random_, plan):
    """Rot that the next driver finds, which is killed while it deals with that."""
    then = {"family": "rot-point", "do": "driver-failpoint", "kills": True,
            "spec": f"{random_.choice(points()[0])}:{random_.randint(1, 4)}"}
    return rot(random_, plan) | {"then": then}


def full_disk(random_, plan):
    plan["bytes"] = random_.randint(20_000, 60_000)
    plan["max_failures"] = 2  # A restart does not free space.
    return {"do": "full-disk", "kib": random_.randint(120, 700)}


FAMILIES = {
    "rank-kill": to("rank", ["KILL", "SEGV", "ABRT", "TERM"]),
    "rank-stop": rank_stop,
    "rank-pause": stop("rank", 500),
    "all-ranks-kill": to("ranks", ["KILL", "SEGV"]),
    "rank-kill-again": kill_again,
    "rank-point": rank_point,
    "loop-throws": loop_fails(["throw"]),
    "loop-fails": loop_fails(["throw", "exit", "KILL", "SEGV", "ABRT"]),
    "driver-killed-by-rank": loop_fails(["driver KILL", "driver SEGV"]),
    "driver-stopped-by-rank": loop_fails(["driver INT", "driver TERM"]),
    "spawner-kill": to("spawner", ["KILL", "SEGV"]),
    "spawner-stop": to("spawner", ["STOP"]),
    "spawner-pause": stop("spawner", 500),
    "driver-kill": to("driver", ["KILL", "SEGV", "ABRT"]),
    "driver-pause": stop("driver", 700),
    "driver-signal": to("driver", ["INT", "TERM"]),
    "driver-hangup": to("driver", ["HUP"]),
    "preempt": preempt("", []),
    "preempt-again": preempt("driver", ["INT", "TERM", "USR1", "HUP"]),
    "preempt-driver-kill": preempt("driver", ["KILL"]),
    "preempt-rank-kill": preempt("rank", ["KILL", "SEGV"]),
    "preempt-spawner-kill": preempt("spawner", ["KILL"]),
    "driver-point": driver_point,
    "driver-point-fails": driver_point_fails,
    "driver-io": shim("driver", False),
    "driver-io-delay": shim("driver", True),
    "rank-io": shim("rank", False),
    "rank-io-delay": shim("rank", True),
    "lock-removed": simple("remove-lock", beside=False),
    "lock-removed-two": simple("remove-lock", beside=True),
    "two-drivers": simple("second-driver"),
    "folder-renamed": simple("rename-folder", back=True),
    "folder-replaced": simple("rename-folder", back=False),
    "runtime-removed": simple("remove-runtime"),
    "stdout-closed": simple("close-stdout", ignored=1),
    "stdout-closed-signal": simple("close-stdout", ignored=0),
    "rot": rot,
    "rot-point": rot_point,
    "torn": torn,
    "full-disk": full_disk,
}
# Families whose driver dies of the fault itself, or returns an error; the next driver resumes.
ALONE = {"preempt", "preempt-again", "preempt-driver-kill", "preempt-rank-kill", "preempt-spawner-kill", "rot",
         "rot-point", "torn", "full-disk", "folder-renamed", "folder-replaced", "two-drivers", "lock-removed-two"}


# Families that a run survives: it may restart its ranks without limit and runs to its end.
OUTLIVED = {
    "all-ranks-kill", "driver-io-delay", "driver-pause", "lock-removed", "loop-fails", "loop-throws", "rank-io",
    "rank-io-delay", "rank-kill", "rank-kill-again", "rank-pause", "rank-point", "rank-stop", "runtime-removed",
    "spawner-kill", "spawner-pause", "spawner-stop", "stdout-closed",
    "agent-kill", "host-spawner-kill", "host-rank-kill", "host-crash-boot", "host-cut", "host-part", "host-mute",
    "host-freeze-thaw", "host-leave", "host-late", "driver-host-cut", "driver-host-freeze-thaw"}


# Those for which a run on several hosts is charged although it could do without a host: a rank has failed by itself.
CHARGED = {"host-spawner-kill", "host-rank-kill"}


# Families that do not need ranks in processes.
WITHOUT_RANKS = {
    "driver-hangup", "driver-io", "driver-io-delay", "driver-kill", "driver-killed-by-rank", "driver-pause",
    "driver-point", "driver-signal", "driver-stopped-by-rank", "folder-renamed", "folder-replaced", "full-disk",
    "lock-removed", "lock-removed-two", "loop-throws", "preempt", "preempt-again", "preempt-driver-kill", "rot",
    "rot-point", "runtime-removed", "stdout-closed", "stdout-closed-signal", "torn", "two-drivers"}


def make_case(seed: int, number: int, families: list, torch_share: float = 0) -> tuple:
    """Plan and drivers (lists of faults) of case *number*."""
    random_ = random.Random(f"{seed}/{number}")
    plan = make_plan(random_)
    if random_.random() < torch_share:  # All alike, so that one undisturbed run serves many cases.
        plan |= {"learner": "torch", "seed": 1, "workers": 2, "steps": 12}
    starts = []
    for _ in range(random_.choice([1, 1, 2, 2, 3])):
        name = random_.choice(families)
        start = [{"family": name, **FAMILIES[name](random_, plan)}]
        if name not in ALONE and random_.random() < 0.2:
            other = random_.choice([x for x in families if x not in ALONE] or [name])
            more = {"family": other, **FAMILIES[other](random_, plan)}
            if more["do"] == "signal" or more["do"] != start[0]["do"]:
                start.append(more)
        starts += [start, [start[0].pop("then")]] if "then" in start[0] else [start]
    place(random_, plan, [x for start in starts for x in start])
    return plan, starts


def make_point_case(point: str) -> tuple:
    """Plan and drivers of the case in which a driver is killed at the failpoint *point*.

    It finds a dead driver's claim, a torn journal and a checkpoint that has rotted, so that it passes every point.
    """
    plan = {"seed": 1, "steps": 12, "workers": 2, "every": 1, "keep": 2, "max_failures": -1, "step_us": 1000,
            "bytes": 300, "report_timeout_ms": 0, "tensorboard": 1, "report_page": 1, "placement": "processes",
            "leaves": "saving", "grace_ms": 30_000, "learner": "counting"}
    before = [{"family": "rot", "do": "rot", "how": "flip", "by": "driver KILL", "step": 5},
              {"family": "torn", "do": "tear", "bytes": 9, "by": "driver KILL", "step": 5}]
    at_point = [{"family": "points", "do": "driver-failpoint", "kills": True, "spec": f"{point}:1"}]
    # Later drivers find the parameters as they are.
    return plan, [at_point] if point == "tensorboard.params_replaced" else [before, at_point]


def place(random_: random.Random, plan: dict, used: list) -> None:
    """Some runs have their ranks in the driver's process, as threads or inline."""
    families = {x["family"] for x in used}
    if plan["learner"] == "counting" and families <= WITHOUT_RANKS and random_.random() < 0.25:
        plan["placement"] = random_.choice(["in_process", "inline"])
        if plan["placement"] == "inline":
            plan["workers"] = 1
        if any(x.get("for_good") or "+" in x.get("spec", "") for x in used):
            plan["max_failures"] = 2  # It affects the ranks, too, and a restart does not repair it.


def describe(fault: dict) -> str:
    """One fault in a few words."""
    text = fault["family"]
    if fault["do"] == "signal":
        who = f"rank {fault['rank']}" if fault["target"] == "rank" else fault["target"]
        text += f" SIG{fault['signal']} {who}"
        if "again_ms" in fault:
            text += f" again +{fault['again_ms']} ms"
        if fault["then_continue_ms"] >= 0:
            text += f" SIGCONT +{fault['then_continue_ms']} ms"
    if fault["do"] == "preempt":
        text += f" SIG{fault['signal']}"
        if second := fault["second"]:
            text += f", SIG{second['signal']} to the {second['target']} +{second['after_us']} us"
    for key in ("spec", "by", "step", "role", "calls", "file", "nth", "how", "kib", "bytes", "host", "whom", "ms",
                "then", "at_once"):
        if fault.get(key):
            text += f" {key}={fault[key]}"
    if fault.get("errno"):
        text += f" {errno.errorcode[fault['errno']]}"
    if fault.get("delay_us"):
        text += f" delay={fault['delay_us']} us"
    if fault.get("for_good"):
        text += " for good"
    if "at" in fault:
        text += f" at {'start' if fault['at'] == 'ms' else 'report ' + str(fault['count'])} +{fault['wait_us']} us"
    return text
