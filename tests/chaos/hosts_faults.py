"""What a campaign does to trainings on several hosts, and when: everything follows from the seed and the number of the case.

Plans and faults are those of faults.py. A plan has besides who starts the agents of the hosts (`agents`).
"""
import random

import faults

HOSTS = ["h1", "h2", "h3"]  # The driver is on one of them.
BY_HAND, OVER_SSH = "by hand", "over ssh"
# Share of the cases, if nothing else is asked for.
SSH_SHARE = 0.4
# How long a host stays that is about to leave.
GRACE_MS = 4000


def some_ms(random_: random.Random) -> int:
    """How long a fault lasts: sometimes so long that the host is lost."""
    return random_.choice([random_.randint(100, 2000), random_.randint(2000, 5000), random_.randint(11_000, 14_000)])


def of_host(how, first=1, **more):
    """A fault of one of the hosts from number *first* on: *host* says which. The driver's is number 0."""
    def family(random_, plan):
        host = random_.randrange(first, len(HOSTS))
        fault = {"do": "host", "how": how, "host": host, "ms": some_ms(random_), **more}
        if how == "mute":
            fault["hears"] = random_.random() < 0.5  # The driver hears the host, and not the other way round.
        return fault | faults.moment(random_, plan)
    return family


def kill(whom, first=0):
    def family(random_, plan):
        return of_host("kill", first, whom=whom)(random_, plan) | {"nth": random_.randrange(plan["workers"]), "ms": 0}
    return family


def leave(random_, plan):
    """The agent of the host gets a signal, as before a preemption, and the host leaves."""
    return of_host("leave")(random_, plan) | {"signal": random_.choice(["TERM", "USR1"]), "ms": plan["grace_ms"]}


def late(random_, plan):
    """The host is not there when the driver starts."""
    return of_host("crash")(random_, plan) | {"at": "ms", "count": 0, "wait_us": 0}


def of_driver_host(how):
    def family(random_, plan):
        return {"do": "host", "how": how, "host": 0, "ms": some_ms(random_)} | faults.moment(random_, plan)
    return family


def driver_host_crash(random_, plan):
    """The next driver starts on the host `then` places further."""
    return of_driver_host("crash")(random_, plan) | {
        "then": random_.choice([0, 1, 1, 2]), "at_once": random_.random() < 0.5}


FAMILIES = {"agent-kill": kill("agent", first=1), "host-spawner-kill": kill("spawner"), "host-rank-kill": kill("rank"),
            "host-crash-boot": of_host("crash"), "host-cut": of_host("cut"), "host-part": of_host("part"),
            "host-mute": of_host("mute"), "host-freeze-thaw": of_host("freeze"), "host-leave": leave, "host-late": late,
            "driver-host-crash": driver_host_crash, "driver-host-cut": of_driver_host("cut"),
            "driver-host-freeze-thaw": of_driver_host("freeze")}


def make_case(seed: int, number: int, families: list, torch_share: float = 0, ssh_share: float = SSH_SHARE) -> tuple:
    """Plan and drivers of case *number*: one driver or two with one or two faults each; the last one has none."""
    def own(what):
        """A generator of its own, so that the other cases of a seed stay as they are if a share changes."""
        return random.Random(f"{what} {seed}/{number}")

    random_ = random.Random(f"hosts {seed}/{number}")
    plan = faults.make_plan(random_) | {"workers": len(HOSTS), "step_us": random_.randint(20_000, 150_000),
                                        "grace_ms": GRACE_MS}
    plan["agents"] = OVER_SSH if own("agents").random() < ssh_share else BY_HAND
    if own("learner").random() < torch_share:  # All alike, so that one undisturbed run serves many cases.
        plan |= {"learner": "torch", "seed": 1, "steps": 12}
    starts = []
    for _ in range(random_.choice([1, 1, 2])):
        names = [random_.choice(families) for _ in range(random_.choice([1, 1, 2]))]
        starts.append([{"family": name, **FAMILIES[name](random_, plan)} for name in names])
    return plan, starts


def describe(plan: dict) -> list:
    """What is special about a plan, in a few words each."""
    return [OVER_SSH] * (plan["agents"] == OVER_SSH)
