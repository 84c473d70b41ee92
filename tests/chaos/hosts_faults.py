"""What a campaign does to trainings on several hosts, and when: everything follows from the seed and the number of the case.

Plans and faults are those of faults.py. A plan has besides: who starts the agents of the hosts (`agents`), hosts that come
unasked (`guests`), and how large the world of an elastic run may be.
"""
import random

import faults

HOSTS = ["h1", "h2", "h3"]  # The driver is on one of them.
GUESTS = ["h4"]
BY_HAND, OVER_SSH = "by hand", "over ssh"
# Shares of the cases, if nothing else is asked for.
SSH_SHARE, ELASTIC_SHARE = 0.4, 0.5
# How long a host stays that is about to leave.
GRACE_MS = 4000

# Worlds of elastic runs: fewest and most ranks on all hosts, or the ranks of each host and the fewest hosts.
WORLDS = [{"fewest": 1, "workers": 3}, {"fewest": 2, "workers": 3}, {"fewest": 3, "workers": 6},
          {"per_host": 1, "fewest_hosts": 1}, {"per_host": 2, "fewest_hosts": 2}]
# One host is a spare. Agents that come by themselves all have ranks.
SPARE = {"fewest": 1, "workers": 2}


def some_ms(random_: random.Random) -> int:
    """How long a fault lasts: sometimes so long that the host is lost."""
    return random_.choice([random_.randint(100, 2000), random_.randint(2000, 5000), random_.randint(11_000, 14_000)])


def of_host(how, first=1, **more):
    """A fault of one of the hosts from number *first* on: *host* says which. The driver's is number 0."""
    def family(random_, plan):
        host = random_.randrange(first, len(HOSTS) + plan["guests"])
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


def elastic(random_, plan) -> dict:
    """A world of a size that changes, and what else makes a plan elastic."""
    over_ssh = plan["agents"] == OVER_SSH
    world = dict(random_.choice([*WORLDS, SPARE] if over_ssh else WORLDS))
    guests = random_.randrange(len(GUESTS) + 1) if over_ssh else 0
    if each := world.get("per_host"):
        world |= {"fewest": each * world["fewest_hosts"], "workers": each * (len(HOSTS) + guests)}
    # The run may start before its hosts are there if that of the driver has room for the fewest ranks.
    may_start_alone = world["fewest"] <= (each or -(-world["workers"] // len(HOSTS)))
    return world | {"guests": guests, "samples": 12, "resize": random_.choice(["at once", "next checkpoint"]),
                    "leaves": random_.choice(["saving", "never"]),
                    "join_timeout_ms": random_.choice([120_000, 2000]) if may_start_alone else 120_000,
                    # Enough for a world that shrinks to grow again.
                    "steps": random_.randint(25, 50), "step_us": random_.randint(40_000, 120_000)}


def make_case(seed: int, number: int, families: list, torch_share: float = 0, ssh_share: float = SSH_SHARE,
              elastic_share: float = ELASTIC_SHARE) -> tuple:
    """Plan and drivers of case *number*: one driver or two with some faults each; the last one has none."""
    def own(what):
        """A generator of its own, so that the other cases of a seed stay as they are if a share changes."""
        return random.Random(f"{what} {seed}/{number}")

    random_ = random.Random(f"hosts {seed}/{number}")
    size = len(HOSTS)
    plan = faults.make_plan(random_) | {"workers": size, "fewest": size, "step_us": random_.randint(20_000, 150_000),
                                        "guests": 0, "grace_ms": GRACE_MS}
    plan["agents"] = OVER_SSH if own("agents").random() < ssh_share else BY_HAND
    if own("learner").random() < torch_share:  # All alike, so that one undisturbed run serves many cases.
        plan |= {"learner": "torch", "seed": 1, "steps": 12}
    elif own("size").random() < elastic_share:
        plan |= elastic(own("world"), plan)
    is_elastic = plan["fewest"] < plan["workers"]
    starts = []
    for _ in range(random_.choice([1, 1, 2])):
        names = [random_.choice(families) for _ in range(random_.choice([1, 2, 2, 3] if is_elastic else [1, 1, 2]))]
        starts.append([{"family": name, **FAMILIES[name](random_, plan)} for name in names])
    if is_elastic:  # As few as it needs: a change of size costs none.
        plan["max_failures"] = sum(x["family"] in faults.CHARGED for start in starts for x in start)
    return plan, starts


def describe(plan: dict) -> list:
    """What is special about a plan, in a few words each."""
    result = [OVER_SSH] * (plan["agents"] == OVER_SSH)
    if plan["fewest"] < plan["workers"]:
        each = plan.get("per_host")
        result.append(f"{plan['fewest']} to {plan['workers']} ranks" + (f" ({each} a host)" if each else ""))
    return result + ["a guest"] * (plan["guests"] > 0)
