#!/usr/bin/python3
"""Runs trainings on several hosts under a seeded schedule of faults of hosts, and has the checker look at each.

  hosts_campaign.py --program FILE --shim FILE [--tools DIR] [options of campaign.py]

The hosts are namespaces, made by the hosts.sh in DIR (or TROUPE_HOST_TOOLS, or tests/hosts). The first driver is on h1. It
launches the agents of the others over the real ssh, or they come by themselves and are started again when they end, as an
engine would do it. If the driver's host loses power, the next driver is there again or on another host, at once or after
everything of the previous one has ended. Only root may make such hosts and look at all of their processes.
"""
import functools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import campaign
import hosts_faults
import run_reader
from campaign import Driver, kill, processes_of
from hosts_faults import GUESTS, HOSTS, OVER_SSH

TREE = Path(__file__).resolve().parents[2]
# A host counts as lost after 10 s, and an agent ends its ranks as long after its driver is out of reach. What an end
# takes (`gone_s`) comes on top.
HOST_TIMEOUT_S = 10.0
# How long an agent that was launched looks for its driver.
LAUNCH_TIMEOUT_S = 20.0
SSH = ["/usr/sbin/sshd", "/usr/bin/ssh"]
# How many processes of the program are above one: above a driver or an agent, above its spawner, above a rank.
ROOT, SPAWNER, RANK = range(3)


class HostDriver(Driver):
    """One start of the driver on the first of `hosts`, with the agents of the others."""
    tools = ""
    handed_over: dict = {}  # by folder of a case: the driver whose host lost power while others still have its agents

    def __init__(self, setting, case, number, planned):
        super().__init__(setting, case, number, planned)
        self.ticket = case.folder / "r" / f"ticket_{number}"
        self.agents, self.old_agents, self.down, self.gave_up = {}, [], set(), []
        guests = GUESTS[:case.plan["guests"]]
        if not number:
            self.make_hosts(len(HOSTS) + len(guests))
        first = sum(x["then"] for start in case.starts for x in start["faults"] if x["delivered"] and "then" in x)
        planned_hosts = [HOSTS[(first + i) % len(HOSTS)] for i in range(len(HOSTS))]
        self.hosts = planned_hosts + guests
        self.by_hand = guests if self.launches() else planned_hosts[1:]  # Hosts whose agents come by themselves.
        if before := self.handed_over.pop(case.folder, None):
            self.to_do, self.down = before.to_do, before.down
            self.old_agents = [*before.old_agents, *before.agents.values()]
            if self.hosts[0] in self.down:
                self.repair_all()
        # A host that was booted numbers its processes from 1; the checker tells drivers apart by their numbers.
        self.tool(case, "hosts.sh", "run", self.hosts[0], "sh", "-c",
                  f"echo {(number + 1) * 8000} >/proc/sys/kernel/ns_last_pid")

    @classmethod
    def tool(cls, case, script, *arguments) -> None:
        """Has a script of the hosts do something; its processes do not count as those of the case."""
        done = subprocess.run([cls.tools / script, *arguments], capture_output=True, text=True, check=False,
                              stdin=subprocess.DEVNULL, env={**os.environ, "TROUPE_HOSTS": str(case.folder / "h")})
        if done.returncode:
            raise RuntimeError(f"{script} {' '.join(arguments)}: {done.stdout}{done.stderr}")

    def launches(self) -> bool:
        return self.case.plan["agents"] == OVER_SSH

    def make_hosts(self, count: int) -> None:
        self.tool(self.case, "hosts.sh", "up", str(count))
        if self.launches():
            # What a login has, so that agents and their ranks are found.
            login = {k: v for k, v in super().environment().items() if k not in ("PATH", "TROUPE_FAILPOINT_LOG")}
            self.tool(self.case, "ssh.sh", "up", *(f"{k}={v}" for k, v in login.items()))
            command = self.case.folder / "bin" / "ssh"
            command.parent.mkdir()
            command.write_text(f"#!/bin/sh\nexec {SSH[1]} -F '{self.case.folder}/h.ssh/config' \"$@\"\n")
            command.chmod(0o700)

    @classmethod
    def end_case(cls, case) -> None:
        cls.tool(case, "hosts.sh", "down")

    # -- the processes

    def command(self) -> list:
        plan = self.case.plan
        options = {"fewest": plan["fewest"]}
        if self.launches():
            options["hosts"] = ",".join(HOSTS)
        else:
            options["agents"] = len(self.by_hand)
        if self.by_hand:
            options["ticket"] = self.ticket
        if each := plan.get("per_host"):
            options |= {"per-host": each, "fewest-hosts": plan["fewest_hosts"]}
            options |= {"most-hosts": len(self.hosts)} if plan["guests"] else {}
        for name in ("resize", "join_timeout_ms"):
            if name in plan:
                options[name.replace("_", "-")] = plan[name]
        return [self.tools / "hosts.sh", "run", self.hosts[0], *super().command(),
                *(str(y) for k, v in options.items() for y in (f"--{k}", v))]

    def environment(self) -> dict:
        own = super().environment()
        return own | {"TROUPE_HOSTS": str(self.case.folder / "h"), "PATH": f"{self.case.folder}/bin:{own['PATH']}"}

    def start_agent(self, host: str) -> None:
        with open(self.case.expected / "agents.txt", "ab") as output:
            self.agents[host] = subprocess.Popen(
                [self.tools / "hosts.sh", "run", host, self.program(), "--node-agent"], cwd=self.case.folder,
                env=self.environment() | {"TROUPE_TICKET": str(self.ticket)}, stdin=subprocess.DEVNULL, stdout=output,
                stderr=output, start_new_session=True)

    def do_due(self, now: float) -> None:
        super().do_due(now)
        for host in self.by_hand:
            agent = self.agents.get(host)
            code = agent.poll() if agent else 75
            if code == 78:
                self.gave_up.append(f"the agent of {host}, which ended with 78")
            if host not in self.down and code not in (None, 0, 78):  # 0: the run is over.
                self.start_agent(host)

    def due(self, pending: list, begin: float) -> list:
        return [*super().due(pending, begin), time.monotonic() + 0.1]

    def programs(self) -> dict:
        """Processes of the program, with their parents."""
        result = {}
        for pid in processes_of(self.marker):
            try:
                if os.readlink(f"/proc/{pid}/exe") == self.program():
                    result[pid] = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
            except OSError:
                pass
        return result

    def ranks(self) -> list:
        """Processes of ranks: those below a spawner, which is below an agent or a driver."""
        return self.at_depth(RANK)

    def at_depth(self, depth: int, host: str = "") -> list:
        """Processes of the program, on *host* if it is given, that are roots, spawners or ranks."""
        programs = self.programs()

        def depth_of(pid: int) -> int:
            return 1 + depth_of(programs[pid]) if programs[pid] in programs else ROOT

        return [x for x in programs if min(depth_of(x), RANK) == depth and (not host or self.is_on(x, host))]

    def launched_agents(self) -> list:
        """Agents that a driver has launched."""
        def is_launched(pid: int) -> bool:
            try:
                return b"\0--node-agent=" in Path(f"/proc/{pid}/cmdline").read_bytes()
            except OSError:
                return False

        return [x for x in self.at_depth(ROOT) if is_launched(x)]

    def is_on(self, pid: int, host: str) -> bool:
        first = (self.case.folder / "h" / host).read_text().strip()
        try:
            return os.readlink(f"/proc/{pid}/ns/net") == os.readlink(f"/proc/{first}/ns/net")
        except OSError:
            return False

    # -- the faults

    def host(self, fault: dict) -> bool:
        driver, how = self.hosts[0], fault["how"]
        host = self.hosts[fault["host"]]
        if host in self.down:
            return False
        if how == "kill":
            found = self.at_depth({"agent": ROOT, "spawner": SPAWNER, "rank": RANK}[fault["whom"]], host)
            return bool(found) and kill(found[fault["nth"] % len(found)], signal.SIGKILL)
        if how == "leave":
            return any(kill(x, signal.Signals["SIG" + fault["signal"]]) for x in self.at_depth(ROOT, host))
        ways = {"crash": (["crash", host], ["boot", host]), "cut": (["cut", host], ["plug", host]),
                "part": (["part", driver, host], ["heal"]), "freeze": (["freeze", host], ["thaw", host]),
                "mute": (["mute", *([driver, host] if fault.get("hears") else [host, driver])], ["heal"])}
        broken, repaired = ways[how]
        self.down.add(host)
        self.killed = self.killed or how == "crash" and host == driver
        self.tool(self.case, "hosts.sh", *broken)
        self.to_do.append((time.monotonic() + fault["ms"] * 1e-3, lambda: self.repair(host, repaired), host))
        return True

    def repair(self, host: str, how: list) -> None:
        self.tool(self.case, "hosts.sh", *how)
        if how[0] == "boot" and self.launches():
            self.tool(self.case, "ssh.sh", "start", host)
        self.down.discard(host)

    def repair_all(self, but: str = "") -> None:
        """Repairs what is still to be repaired, except the host *but*."""
        for _, repair, host in self.to_do:
            if host != but:
                repair()
        self.to_do = [x for x in self.to_do if x[2] == but]

    def bound(self) -> float:
        late = max((x[0] - time.monotonic() for x in self.to_do), default=0)
        return super().bound() + late + sum(2 * HOST_TIMEOUT_S + x["ms"] * 1e-3 for x in self.faults)

    # -- afterwards

    def leftovers(self) -> dict:
        """Ranks end with their agents, those by themselves, also while the driver's host is gone without a packet. Agents
        that wait for another driver are asked to end."""
        if self.killed:
            self.ticket.unlink(missing_ok=True)
        if any(x.get("at_once") and x["delivered"] for x in self.faults):
            self.handed_over[self.case.folder] = self
            return {}
        self.repair_all(but=self.hosts[0])
        begin = time.monotonic()
        ranks = wait_until_gone(self.ranks, HOST_TIMEOUT_S + self.setting.gone_s)
        self.gone_s = time.monotonic() - begin
        if self.killed:
            wait_until_gone(self.launched_agents, LAUNCH_TIMEOUT_S - HOST_TIMEOUT_S)
        self.repair_all()
        deadline = time.monotonic() + HOST_TIMEOUT_S + campaign.GONE_S
        agents = [*self.old_agents, *self.agents.values()]
        while (running := [x for x in agents if x.poll() is None]) and time.monotonic() < deadline:
            for pid in set(self.at_depth(ROOT)) - set(self.launched_agents()):  # One that starts now follows.
                kill(pid, signal.SIGTERM)
            campaign.wait_for_an_end([x.pid for x in running], 0.2)
        left = super().leftovers()
        for agent in agents:
            agent.wait()
        return left | {"agents": self.gave_up, "ranks": [str(x) for x in ranks]}

    def record(self, *arguments) -> dict:
        begin = self.words_before["results.jsonl"]
        path = self.case.expected / "results.jsonl"
        own = run_reader.read_records(path)[path.read_bytes()[:begin].count(b"\n"):] if path.exists() else []
        result = super().record(*arguments)
        # As its host numbers it.
        return result | {"pid": own[-1]["pid"] if own else 0, "worlds": self.worlds()}

    def worlds(self) -> list:
        """The number of ranks of each attempt of this driver."""
        before = max((x["attempt_after"] for x in self.case.starts), default=-1)
        records = run_reader.read_records(self.case.expected / "rank_0.jsonl")
        return [x["world"] for x in records if x["what"] == "begun" and x["attempt"] > before]


def wait_until_gone(find, seconds: float) -> list:
    """Waits up to *seconds* until *find* finds no process; returns those that are left."""
    deadline = time.monotonic() + seconds
    while (left := find()) and time.monotonic() < deadline:
        campaign.wait_for_an_end(left, deadline - time.monotonic())
    return left


def main() -> int:
    parser = campaign.make_parser()
    parser.add_argument("--tools", default=os.environ.get("TROUPE_HOST_TOOLS") or TREE / "tests/hosts")
    parser.add_argument("--ssh-share", type=float, default=hosts_faults.SSH_SHARE, help="of cases whose driver launches agents")
    parser.add_argument("--elastic-share", type=float, default=hosts_faults.ELASTIC_SHARE,
                        help="of cases without LibTorch whose world may change its size")
    parser.set_defaults(families="all", prefix="--hosts ", points=False)
    options = parser.parse_args()
    HostDriver.tools = Path(options.tools)
    if os.geteuid() != 0:
        print("chaos: only root may look at all processes of such hosts")
        return 77
    check = subprocess.run([HostDriver.tools / "hosts.sh", "check"], capture_output=True, text=True, check=False)
    if check.returncode:  # 77: the kernel forbids them. Else, in CI, they are missed by mistake.
        print(f"chaos: {check.stderr}", end="")
        return 1 if os.environ.get("CI") == "true" and check.returncode != 77 else 77
    for program in SSH:  # In CI, too: its package starts a service.
        if options.ssh_share and not os.access(program, os.X_OK):
            print(f"chaos: there is no {program}: agents come by themselves in all cases")
            options.ssh_share = 0.0
    make_case = functools.partial(hosts_faults.make_case, ssh_share=options.ssh_share, elastic_share=options.elastic_share)
    options.prefix += f"--ssh-share {options.ssh_share} --elastic-share {options.elastic_share} "
    return campaign.campaign(options, driver=HostDriver, families=hosts_faults.FAMILIES, make_case=make_case,
                             describe=hosts_faults.describe)


if __name__ == "__main__":
    sys.exit(main())
