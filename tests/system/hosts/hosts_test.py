"""Trains with one command on several hosts, over the real sshd and mpirun, and in jobs of the real Slurm.

  hosts_test.py HOSTS_RUN TRAINING_RUN [unittest arguments]

The hosts are namespaces, made by the scripts in tests/hosts (or TROUPE_HOST_TOOLS). Each class is skipped with a reason
where its engine or the rights for such hosts are missing; if all are skipped, this ends with 77.
"""
import os
import re
import select
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

HOSTS_RUN = Path(sys.argv.pop(1)).resolve()
TRAINING_RUN = Path(sys.argv.pop(1)).resolve()
TOOLS = Path(os.environ.get("TROUPE_HOST_TOOLS") or Path(__file__).resolve().parents[2] / "hosts")
LIMIT_S = 150  # of one program; none comes near it


def look_for_hosts():
    """Where hosts of namespaces cannot be made, skips the tests; in CI fails them unless the kernel forbids it."""
    check = subprocess.run([TOOLS / "hosts.sh", "check"], capture_output=True, text=True, check=False)
    if check.returncode == 0:
        return
    if os.environ.get("CI") == "true" and check.returncode != 77:
        raise AssertionError(check.stderr)
    raise unittest.SkipTest(check.stderr)


class OnHosts(unittest.TestCase):
    """Hosts h1, h2 and h3 with an engine on them."""
    PROGRAMS = []

    @classmethod
    def setUpClass(cls):
        if os.geteuid() != 0:
            raise unittest.SkipTest("only root may start daemons on such hosts")
        for program in cls.PROGRAMS:  # Missing in CI, too: their packages start services.
            if not os.access(program, os.X_OK):
                raise unittest.SkipTest(f"there is no {program}")
        look_for_hosts()
        cls.folder = Path(tempfile.mkdtemp(prefix="troupe-hosts-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder, True)
        cls.environment = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}
        cls.environment["TROUPE_HOSTS"] = str(cls.folder / "hosts")
        cls.environment["SLURM_CONF"] = str(cls.folder / "hosts.slurm/slurm.conf")
        cls.bring_up()

    @classmethod
    def tool(cls, *arguments):
        done = subprocess.run([TOOLS / arguments[0], *arguments[1:]], capture_output=True, text=True, timeout=LIMIT_S,
                              env=cls.environment, stdin=subprocess.DEVNULL)
        if done.returncode:
            raise AssertionError(f"{arguments} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
        return done.stdout

    def setUp(self):
        self.work = Path(tempfile.mkdtemp(dir=self.folder))
        os.mkfifo(self.work / "events")
        os.mkfifo(self.work / "go")
        self.events = os.open(self.work / "events", os.O_RDWR)
        self.addCleanup(os.close, self.events)
        self.program = HOSTS_RUN
        self.started = []

    def start(self, *arguments, prefix=(), host="h1", variables=()):
        """Starts the program on *host*, in the work folder, as a command of *prefix*."""
        return self.start_command(self.program, self.work, *arguments, prefix=prefix, host=host, variables=variables)

    def start_command(self, *command, prefix=(), host="h1", variables=()):
        command = [TOOLS / "hosts.sh", "run", host, "env", *variables, *prefix, *command]
        running = subprocess.Popen([str(x) for x in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                   stdin=subprocess.DEVNULL, env=self.environment, cwd=self.work)
        self.addCleanup(running.stdout.close)
        self.addCleanup(running.wait)
        self.addCleanup(running.kill)
        self.started.append(running)
        return running

    def fail_with_output(self, problem):
        """Ends all that was started, and says what it printed."""
        for running in self.started:
            running.kill()
        self.fail("\n".join([problem, *(x.communicate(timeout=LIMIT_S)[0] for x in self.started if not x.stdout.closed)]))

    def output_of(self, running, code=0):
        try:
            output = running.communicate(timeout=LIMIT_S)[0]
        except subprocess.TimeoutExpired:
            self.fail_with_output(f"still running after {LIMIT_S} s")
        self.assertEqual(running.returncode, code, output)
        return output

    def next_line(self):
        line = b""
        while not line.endswith(b"\n"):
            if not select.select([self.events], [], [], LIMIT_S)[0]:
                self.fail_with_output(f"no rank in {LIMIT_S} s")
            line += os.read(self.events, 1)
        return line.decode().split()

    def ranks_of(self, count, attempt=0):
        """Node, local rank and host of each rank, in order of rank."""
        found = {}
        while len(found) < count:
            number, rank, node, local, host, _, folder = self.next_line()
            if int(number) == attempt:
                self.assertEqual(Path(folder).resolve(), self.work.resolve())
                found[int(rank)] = (int(node), int(local), host)
        return [found[rank] for rank in sorted(found)]

    def go(self):
        """Ranks that hold continue."""
        self.addCleanup(os.close, os.open(self.work / "go", os.O_RDWR))

    def run_on(self, ranks, *arguments, **options):
        """Runs to the end; returns where the ranks were, and the output."""
        running = self.start(*arguments, **options)
        found = self.ranks_of(ranks)
        return found, self.output_of(running)

    def expect_nothing_left(self, hosts=("h1", "h2", "h3"), program="hosts_run"):
        """Waits until no process of the program is left on *hosts*; the test's limit is the bound."""
        for host in hosts:
            self.tool("hosts.sh", "run", host, "sh", "-c",
                      f"while ps -e -o stat=,args= | grep -v '^Z' | grep -q '[{program[0]}]{program[1:]}'; do sleep 0.1; done")

    def refused(self, *arguments, **options):
        return self.output_of(self.start(*arguments, **options), code=3)

    def other_build(self):
        """The program with another build id."""
        notes = subprocess.run(["readelf", "-n", HOSTS_RUN], capture_output=True, text=True, check=True).stdout
        build_id = bytes.fromhex(re.search("Build ID: ([0-9a-f]+)", notes)[1])
        other = self.work / "hosts_run"
        other.write_bytes(HOSTS_RUN.read_bytes().replace(build_id, bytes(reversed(build_id))))
        other.chmod(0o700)
        return other


class WithSsh(OnHosts):
    PROGRAMS = ["/usr/sbin/sshd", "/usr/bin/ssh"]

    @classmethod
    def bring_up(cls):
        cls.addClassCleanup(cls.tool, "hosts.sh", "down")
        cls.tool("hosts.sh", "up", "3")
        cls.addClassCleanup(cls.tool, "ssh.sh", "down")
        cls.tool("ssh.sh", "up")
        cls.ssh_folder = cls.folder / "hosts.ssh"
        cls.use_ssh("")

    @classmethod
    def use_ssh(cls, options):
        """What is called `ssh` uses the hosts' keys."""
        path = cls.folder / "bin" / "ssh"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\nexec /usr/bin/ssh {options} -F '{cls.ssh_folder}/config' \"$@\"\n")
        path.chmod(0o700)
        cls.environment["PATH"] = f"{path.parent}:{os.environ['PATH']}"


class OverSsh(WithSsh):
    def test_one_command_trains_on_all_hosts_of_a_list(self):
        ranks, output = self.run_on(6, "--hosts", "h1,h2,h3", "--workers", "6")
        self.assertEqual(ranks, [(0, 0, "h1"), (0, 1, "h1"), (1, 0, "h2"), (1, 1, "h2"), (2, 0, "h3"), (2, 1, "h3")])
        self.assertIn("troupe: 3 hosts (h1-h3) over ssh, because hosts are given; this is h1\n", output)
        for host in ("h1", "h2", "h3"):  # No agent stays.
            self.assertNotIn("hosts_run", self.tool("hosts.sh", "run", host, "ps", "-e", "-o", "args"))

    def test_the_hosts_of_a_file_have_their_slots(self):
        hosts = self.work / "hosts"
        hosts.write_text("# mine\nh2 slots=1\nh1 slots=4\n")
        self.assertEqual(self.run_on(3, "--hosts", hosts, "--workers", "3")[0], [(0, 0, "h1"), (0, 1, "h1"), (1, 0, "h2")])

    def test_workers_may_be_counted_for_each_host(self):
        self.assertEqual(self.run_on(4, "--hosts", "h[1-2]", "--per-host", "2")[0],
                         [(0, 0, "h1"), (0, 1, "h1"), (1, 0, "h2"), (1, 1, "h2")])

    def test_a_driver_may_be_elsewhere(self):
        ranks, output = self.run_on(2, "--hosts", "h2,h3", "--workers", "2")
        self.assertEqual(ranks, [(0, 0, "h2"), (1, 0, "h3")])
        self.assertIn("rank 0 says hello from h2\n", output)
        self.assertNotIn("rank 1 says", output)

    def test_fewer_workers_than_hosts_use_the_first_hosts(self):
        self.assertEqual(self.run_on(1, "--hosts", "h2,h1,h3", "--workers", "1")[0], [(0, 0, "h1")])

    def test_lists_with_mistakes_are_refused(self):
        (self.work / "empty").write_text("# none\n")
        for hosts, says in (("h1,h2,h1", "twice"), (self.work / "empty", "no host"), ("h[1-", "character"),
                            (self.work / "missing", "missing")):
            with self.subTest(hosts=hosts):
                self.assertIn(says, self.refused("--hosts", hosts))
        self.assertIn("slots", self.refused("--hosts", self.file("h1 slots=1\nh2 slots=1\n"), "--workers", "3"))

    def file(self, text):
        path = self.work / "list"
        path.write_text(text)
        return path

    def test_names_an_unknown_host(self):
        output = self.refused("--hosts", "h1,h9", "--workers", "2", "--join-ms", "2500")
        self.assertIn("1 of 2 hosts is missing", output)
        self.assertRegex(output, "h9: .*Could not resolve hostname h9")

    def test_a_terminal_a_command_and_forwardings_of_the_user_do_no_harm(self):
        config = self.ssh_folder / "config"
        before = config.read_text()
        self.addCleanup(config.write_text, before)
        config.write_text("RequestTTY force\nRemoteCommand exit 1\nExitOnForwardFailure yes\n"
                          f"LocalForward 198.18.0.99:4444 127.0.0.1:1\n{before}")  # An address of no host.
        self.assertEqual(self.run_on(2, "--hosts", "h1,h2", "--workers", "2")[0], [(0, 0, "h1"), (1, 0, "h2")])

    def test_a_host_that_lets_no_one_in_is_named_at_once(self):
        self.use_ssh("-o PubkeyAuthentication=no")
        try:
            output = self.refused("--hosts", "h1,h2", "--workers", "2")
        finally:
            self.use_ssh("")
        self.assertRegex(output, "h2: .*Permission denied")

    def test_a_host_that_cannot_reach_the_driver_says_so_before_the_run_ends(self):
        self.tool("hosts.sh", "run", "h2", "nft", "add table inet firewall; add chain inet firewall out { type filter hook output "
                  "priority 0; }; add rule inet firewall out tcp flags & (syn|ack) == syn drop")
        self.addCleanup(self.tool, "hosts.sh", "run", "h2", "nft", "delete table inet firewall")
        output = self.refused("--hosts", "h1,h2", "--workers", "2", "--join-ms", "30000")
        self.assertRegex(output, "host h2: troupe: the agent of this host ends: no driver of run .* accepted this host at port ")
        self.assertIn("198.18.0.1: no answer within 3 s", output)

    def on_own_disk(self, host, program):
        """Each host has a /dev/shm of its own."""
        path = f"/dev/shm/{self.work.name}"
        self.tool("hosts.sh", "run", host, "cp", program, path)
        return path

    def test_a_host_without_the_program_is_named_at_once(self):
        self.program = self.on_own_disk("h1", HOSTS_RUN)
        output = self.refused("--hosts", "h1,h2", "--workers", "2")
        self.assertRegex(output, f"h2: .*{self.program}: (No such file|not found)")

    def test_a_host_with_another_build_is_named_at_once(self):
        self.program = self.on_own_disk("h1", HOSTS_RUN)
        self.on_own_disk("h2", self.other_build())
        self.assertRegex(self.refused("--hosts", "h1,h2", "--workers", "2"), "h2: .*build id")

    def test_a_host_that_lost_its_power_gets_another_agent(self):
        running = self.start("--hosts", "h1,h3", "--workers", "2", "--waits", "1")
        self.ranks_of(2)
        self.tool("hosts.sh", "crash", "h3")
        self.tool("hosts.sh", "boot", "h3")
        self.tool("ssh.sh", "start", "h3")
        self.assertEqual(self.ranks_of(2, attempt=1), [(0, 0, "h1"), (1, 0, "h3")])
        self.assertIn("host h3 is lost", self.output_of(running))

    def test_nothing_is_left_of_a_driver_that_is_killed(self):
        self.start("--hosts", "h1,h2", "--workers", "2", "--waits", "1")
        self.ranks_of(2)
        self.tool("hosts.sh", "run", "h1", "pkill", "-KILL", "-f", "--", "--waits")
        self.expect_nothing_left()

    def test_an_agent_outlives_its_ssh(self):
        running = self.start("--hosts", "h1,h2", "--workers", "2", "--holds", "1")
        self.ranks_of(2)
        self.tool("hosts.sh", "run", "h1", "pkill", "-KILL", "-x", "ssh")
        self.tool("hosts.sh", "run", "h1", "sh", "-c", "while pgrep -x ssh; do sleep 0.1; done")
        self.go()
        self.assertRegex(self.output_of(running), r"finished, attempt 0, 2 ranks\n")
        self.expect_nothing_left()

    def test_an_agent_that_is_killed_is_replaced(self):
        running = self.start("--hosts", "h1,h2", "--workers", "2", "--waits", "1")
        self.ranks_of(2)
        self.tool("hosts.sh", "run", "h2", "pkill", "-KILL", "-f", "--", "--node-agent=")
        self.assertEqual(self.ranks_of(2, attempt=1), [(0, 0, "h1"), (1, 0, "h2")])
        self.output_of(running)


class OverMpi(WithSsh):
    PROGRAMS = [*WithSsh.PROGRAMS, "/usr/bin/mpirun"]
    MPIRUN = ["mpirun", "--allow-run-as-root", "-H", "h1:2,h2:2,h3:2"]

    def start_command(self, *command, variables=(), **where):
        # Hosts have one folder of temporary files, and the same names and process ids in each test and run: what one mpirun
        # leaves or removes there would be of another one.
        folders = [f"OMPI_MCA_orte_tmpdir_base={self.work}", f"PRTE_MCA_prte_tmpdir_base={self.work}"]
        return super().start_command(*command, variables=[*variables, *folders], **where)

    def expect_six_ranks(self, ranks):
        """Two on each host; agents come in any order."""
        self.assertEqual([x[:2] for x in ranks], [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)])
        self.assertEqual([x[2] for x in ranks][:2], ["h1", "h1"])
        self.assertEqual(sorted(x[2] for x in ranks[2:]), ["h2", "h2", "h3", "h3"])

    def test_the_first_process_of_each_host_is_its_agent(self):
        running = self.start("--workers", "6", "--waits", "1", prefix=self.MPIRUN)
        self.expect_six_ranks(self.ranks_of(6))
        for host in ("h1", "h2", "h3"):
            seen = self.tool("hosts.sh", "run", host, "sh", "-c",
                             "cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ || true")  # A process may end meanwhile.
            self.assertIn("hosts_run", seen)
            self.assertNotIn("troupe-ticket", seen)  # The first line of each ticket.
        self.tool("hosts.sh", "run", "h1", "pkill", "-INT", "-o", "-x", "hosts_run")
        self.output_of(running, code=3)
        self.expect_nothing_left()

        # The run resumes, and the launcher ends with its driver's code.
        running = self.start("--workers", "6", "--waits", "1", prefix=self.MPIRUN)
        self.expect_six_ranks(self.ranks_of(6, attempt=1))
        output = self.output_of(running)
        self.assertIn("mpirun: this is rank 0 of 6, the driver; the first ranks of other hosts are its agents\n", output)
        self.assertIn("mpirun: this is rank 3 of 6, which ends: its host has a task already\n", output)
        self.expect_nothing_left()

    def test_hosts_without_ranks_are_spares(self):
        ranks, output = self.run_on(1, "--workers", "1", prefix=self.MPIRUN)
        self.assertEqual(ranks, [(0, 0, "h1")])
        self.assertIn("2 hosts have no ranks, because the run has only 1 rank", output)
        self.expect_nothing_left()

    def test_an_agent_that_is_killed_ends_everything_and_the_next_start_resumes(self):
        running = self.start("--workers", "6", "--waits", "1", prefix=self.MPIRUN)
        self.expect_six_ranks(self.ranks_of(6))
        self.tool("hosts.sh", "run", "h2", "pkill", "-KILL", "-o", "-x", "hosts_run")
        running.communicate(timeout=LIMIT_S)
        self.assertNotEqual(running.returncode, 0)
        self.expect_nothing_left()
        output = self.output_of(self.start("--workers", "6", "--waits", "1", prefix=self.MPIRUN))
        self.assertRegex(output, r"finished, attempt [1-9], 6 ranks\n")  # The first driver may have begun another one.

    def test_nothing_is_left_of_a_launcher_that_is_killed(self):
        running = self.start("--workers", "6", "--waits", "1", prefix=self.MPIRUN)
        self.expect_six_ranks(self.ranks_of(6))
        self.tool("hosts.sh", "run", "h1", "pkill", "-KILL", "-x", "mpirun|prterun")
        running.communicate(timeout=LIMIT_S)
        self.expect_nothing_left()

    def run_parts(self, driver, agent):
        """Ends with all output of a run whose driver, on h1, and agent, on h2, are these commands; and with its code."""
        of_rank = "if [ $PMIX_RANK = 0 ]; then exec {}; fi; exec {}".format(*(shlex.join(map(str, x)) for x in (driver, agent)))
        running = self.start_command("mpirun", "--allow-run-as-root", "-H", "h1,h2", "-n", "2", "sh", "-c", of_rank)
        output = running.communicate(timeout=LIMIT_S)[0]
        self.expect_nothing_left()
        return output, running.returncode

    def test_a_driver_or_an_agent_without_the_library_ends_everything(self):
        (self.work / "libpmix.so.2").touch()
        without = ["env", f"LD_LIBRARY_PATH={self.work}"]
        # Of a program that takes no notice of what fit() returns.
        careless = ["sh", "-c", '"$@"; code=$?; [ $code = 3 ] || exit $code', "careless"]
        program = [HOSTS_RUN, self.work, "--workers", "2"]
        for driver, agent in (([*careless, *without, *program], program), (program, [*without, *program])):
            output, code = self.run_parts(driver, agent)
            self.assertEqual(code, 78, output)
            self.assertIn("mpirun needs libpmix.so.2 on each host: ", output)

    def test_an_agent_of_another_build_ends_everything(self):
        other = self.other_build()
        output, code = self.run_parts([HOSTS_RUN, self.work, "--workers", "2"], [other, self.work])
        self.assertEqual(code, 78, output)
        self.assertRegex(output, "h2: .*build id|h2 .*build id")

    def test_agents_end_with_a_driver_that_starts_no_run(self):
        self.assertIn("workers_per_host", self.refused("--per-host", "-1", prefix=self.MPIRUN))
        self.expect_nothing_left()


class InSlurm(OnHosts):
    PROGRAMS = ["/usr/bin/srun", "/usr/sbin/slurmctld", "/usr/sbin/slurmd"]
    BOTH = [(0, 0, "h1"), (0, 1, "h1"), (1, 0, "h2"), (1, 1, "h2")]

    @classmethod
    def bring_up(cls):
        cls.environment["SLURM_BINDS"] = "1"
        cls.addClassCleanup(cls.tool, "slurm.sh", "down")
        cls.tool("slurm.sh", "up", "3")

    def cores_of(self, host, process="self"):
        return self.tool("hosts.sh", "run", host, "sed", "-n", "s/^Cpus_allowed_list:[[:space:]]*//p",
                         f"/proc/{process}/status").strip()

    def cores_of_ranks(self, *prefix, variables=()):
        """The cores of a rank on h1, those of one on h2, and all of a host."""
        if "task/affinity" not in self.tool("slurm.sh", "run", "scontrol", "show", "config"):
            self.skipTest("Slurm binds nothing on a machine with one core, or of which only a part may be used")
        running = self.start("--workers", "2", "--holds", "1", prefix=[*prefix, "-N2", "-w", "h[1-2]"], variables=variables)
        found = {}
        while len(found) < 2:
            *_, host, process, _ = self.next_line()
            found[host] = self.cores_of(host, process)
        self.go()
        self.output_of(running)
        return found["h1"], found["h2"], self.cores_of("h1")

    def test_an_agent_has_all_cores_of_its_node_in_the_job(self):
        _, beside_agent, every = self.cores_of_ranks("salloc", "--exclusive", variables=["SLURM_CPU_BIND=cores"])
        self.assertEqual(beside_agent, every)

    def test_an_agent_has_no_cores_that_are_not_of_the_job(self):
        _, beside_agent, every = self.cores_of_ranks("salloc", "-n2", "-c1")
        self.assertNotEqual(beside_agent, every)

    def test_only_ranks_beside_a_driver_that_is_a_task_are_bound_as_it_is(self):
        beside_driver, beside_agent, every = self.cores_of_ranks("srun", "--wait=0", "--exclusive")
        self.assertNotEqual(beside_driver, every)
        self.assertEqual(beside_agent, every)

    def test_ranks_beside_a_driver_that_is_a_task_may_have_all_cores(self):
        beside_driver, beside_agent, every = self.cores_of_ranks("srun", "--wait=0", "--exclusive", "--cpu-bind=none")
        self.assertEqual((beside_driver, beside_agent), (every, every))

    def test_a_command_of_salloc_uses_the_nodes_of_the_job(self):
        ranks, output = self.run_on(4, "--workers", "4", prefix=["salloc", "-N2", "-w", "h[1-2]"])
        self.assertEqual(ranks, self.BOTH)
        self.assertRegex(output, r"troupe: Slurm job \d+: 2 hosts \(h1, h2\), this is a command of salloc\n")

    def test_agents_get_no_options_from_variables_of_the_job(self):
        # No node has as many. Which of the first two srun reads depends on its version.
        variables = ["SLURM_CPUS_PER_TASK=99", "SRUN_CPUS_PER_TASK=99", "SLURM_GPUS_PER_TASK=99"]
        ranks, _ = self.run_on(4, "--workers", "4", prefix=["salloc", "-N2", "-w", "h[1-2]"], variables=variables)
        self.assertEqual(ranks, self.BOTH)

    def test_agents_have_the_variables_of_the_driver_although_the_job_exports_none(self):
        running = self.start("--workers", "2", "--holds", "1", prefix=["salloc", "-N2", "-w", "h[1-2]"],
                             variables=["SLURM_EXPORT_ENV=NONE", "WORD_OF_DRIVER=here"])
        self.ranks_of(2)
        seen = self.tool("hosts.sh", "run", "h2", "sh", "-c", "cat /proc/[0-9]*/environ || true")  # A process may end meanwhile.
        self.go()
        self.output_of(running)
        self.assertIn("WORD_OF_DRIVER=here", seen)

    def test_a_batch_script_uses_the_nodes_of_the_job(self):
        script = self.work / "job.sh"
        script.write_text(f"#!/bin/sh\nexec '{HOSTS_RUN}' '{self.work}' --per-host 2\n")
        self.program = script
        running = self.start(prefix=["sbatch", "--wait", "-N2", "-w", "h[1-2]", "-o", self.work / "output"])
        self.assertEqual(self.ranks_of(4), self.BOTH)
        self.output_of(running)
        self.assertRegex((self.work / "output").read_text(), "2 hosts .*, this is its batch script\n")

    def test_the_first_task_of_srun_is_the_driver_and_the_others_end(self):
        ranks, output = self.run_on(4, "--workers", "4", prefix=["srun", "-N2", "-n3", "-w", "h[1-2]"])
        self.assertEqual(ranks, self.BOTH)
        for task in (1, 2):
            self.assertIn(f"this is task {task} of srun, which ends", output)

    def test_tasks_of_srun_may_have_the_variables_of_pmi(self):
        ranks, output = self.run_on(4, "--workers", "4", prefix=["srun", "--mpi=pmi2", "-N2", "-n3", "-w", "h[1-2]"])
        self.assertEqual(ranks, self.BOTH)
        for task in (1, 2):
            self.assertIn(f"this is task {task} of srun, which ends", output)

    def test_a_node_of_which_nothing_is_left_gets_another_agent(self):
        running = self.start("--workers", "2", "--waits", "1", prefix=["salloc", "-N2", "-w", "h[1-2]"])
        self.ranks_of(2)
        self.tool("hosts.sh", "run", "h2", "pkill", "-KILL", "-f", "--", "--node-agent=")
        self.assertEqual(self.ranks_of(2, attempt=1), [(0, 0, "h1"), (1, 0, "h2")])
        self.output_of(running)

    def test_a_run_outlives_its_srun(self):
        running = self.start("--workers", "2", "--holds", "1", prefix=["salloc", "-N2", "-w", "h[1-2]"])
        self.ranks_of(2)
        self.tool("hosts.sh", "run", "h1", "pkill", "-KILL", "-x", "srun")
        self.tool("hosts.sh", "run", "h1", "sh", "-c", "while pgrep -x srun; do sleep 0.1; done")
        self.go()
        # A helper of srun, if it is there a moment longer, ends the step, and the agent with it. Else that stays.
        self.assertRegex(self.output_of(running), r"finished, attempt [01], 2 ranks\n")
        self.expect_nothing_left()

    def test_a_driver_may_be_on_a_host_that_is_not_of_the_job(self):
        ranks, output = self.run_on(2, "--workers", "2", prefix=["salloc", "-N2", "-w", "h[1-2]"], host="h3")
        self.assertEqual(ranks, [(0, 0, "h1"), (1, 0, "h2")])
        self.assertIn("a command of salloc, on a host that is not one of them", output)

    def test_nothing_is_left_of_a_driver_that_is_killed(self):
        self.start("--workers", "2", "--waits", "1", prefix=["salloc", "-N2", "-w", "h[1-2]"])
        self.ranks_of(2)
        self.tool("hosts.sh", "run", "h1", "pkill", "-KILL", "-f", "--", "--waits")
        self.expect_nothing_left()
        self.tool("slurm.sh", "run", "scancel", "--user=root")  # Its salloc was killed, too, and the job keeps its cores.

    def test_hosts_that_are_not_of_the_job_are_refused(self):
        output = self.refused("--hosts", "h1,h3", "--workers", "2", prefix=["salloc", "-N2", "-w", "h[1-2]"])
        self.assertIn("host h3 is given, but Slurm job", output)


class WaitTimeOfSlurm(OnHosts):
    """Slurm ends a step soon after its first task."""
    PROGRAMS = InSlurm.PROGRAMS

    @classmethod
    def bring_up(cls):
        cls.environment["SLURM_WAIT_TIME"] = "2"
        cls.addClassCleanup(cls.tool, "slurm.sh", "down")
        cls.tool("slurm.sh", "up", "2")

    def start_to_hold(self, *prefix):
        """Starts a run on both hosts, whose ranks wait until the test says go."""
        running = self.start("--workers", "2", "--holds", "1", prefix=[*prefix, "-N2"])
        self.ranks_of(2)
        return running

    def expect_to_outlive_a_step(self, running):
        """Slurm ends another step, which has begun later."""
        step = self.start_command("srun", "-N2", "-n2", "sh", "-c", "[ $SLURM_PROCID != 0 ] || exec sleep infinity")
        self.assertIn("srun: First task exited 2s ago", step.communicate(timeout=LIMIT_S)[0])
        self.go()
        self.output_of(running)

    def test_a_run_of_two_tasks_is_ended_and_the_second_one_has_said_what_to_do(self):
        running = self.start_to_hold("srun")
        output = running.communicate(timeout=LIMIT_S)[0]
        self.assertNotEqual(running.returncode, 0, output)
        self.assertIn("if the cluster has a WaitTime, it begins now: use srun --wait=0\n", output)
        self.assertIn("srun: First task exited 2s ago\n", output)
        self.expect_nothing_left(("h1", "h2"))

    def test_a_run_of_two_tasks_with_any_time_outlives_it(self):
        self.expect_to_outlive_a_step(self.start_to_hold("srun", "--wait=0"))

    def test_a_run_that_is_not_a_step_outlives_it(self):
        self.expect_to_outlive_a_step(self.start_to_hold("salloc"))


class DeadNodesOfSlurm(OnHosts):
    """Nodes h3 and h4 lose their power, and Slurm does not know it yet."""
    PROGRAMS = InSlurm.PROGRAMS

    @classmethod
    def bring_up(cls):
        cls.environment["SLURM_DEAD"] = "3000"
        cls.addClassCleanup(cls.tool, "slurm.sh", "down")
        cls.tool("slurm.sh", "up", "4")
        for host in ("h3", "h4"):
            cls.tool("hosts.sh", "crash", host)

    def test_a_node_that_is_dead_when_srun_starts_is_named_with_its_words(self):
        output = self.refused("--workers", "2", "--join-ms", "15000", prefix=["salloc", "-N2", "-w", "h[1,3]"])
        # Another launch may be under way by then.
        self.assertRegex(output, r"1 of 2 hosts is missing after 15 s, and 2 are needed:\n"
                                 r" +h3: (?:launched, .*; (?:before that|its launcher says): )?(?:srun: cluster .*; )?srun: error: .* node h3: ")

    def test_an_elastic_run_starts_without_a_node_that_is_dead(self):
        running = self.start("--workers", "2", "--fewest", "1", "--join-ms", "15000", prefix=["salloc", "-N2", "-w", "h[1,4]"])
        self.assertEqual(self.ranks_of(1), [(0, 0, "h1")])
        self.assertRegex(self.output_of(running), "finished, attempt 0, 1 rank")


class ElasticInSlurm(OnHosts):
    """A run on four nodes that loses one of them."""
    PROGRAMS = InSlurm.PROGRAMS

    @classmethod
    def bring_up(cls):
        cls.environment["SLURM_KILL_WAIT"] = "30"  # As by default: slurm.sh makes it shorter.
        cls.addClassCleanup(cls.tool, "slurm.sh", "down")
        cls.tool("slurm.sh", "up", "4")

    def event(self, first):
        """The next line that begins with *first*."""
        while True:
            word, *rest = self.next_line()
            if word == first:
                return rest

    def worlds_of(self, count, attempt):
        """The hosts of the *count* ranks of an attempt, in order of rank, and the step that they begin with."""
        hosts, steps = {}, set()
        while len(hosts) < count:
            number, rank, world, host, step = self.event("rank")
            if int(number) == attempt:
                self.assertEqual(int(world), count)
                hosts[int(rank)] = host
                steps.add(int(step))
        self.assertEqual(len(steps), 1, steps)
        return [hosts[rank] for rank in sorted(hosts)], steps.pop()

    def options(self):
        return [TRAINING_RUN, "--folder", self.work, "--storage", self.work / "storage"]

    def weights_of_one_host(self):
        """The weights, and the accuracy, to which two ranks on one host come."""
        alone = self.start_command(*self.options(), "--name", "alone", "--workers", "2")
        world, *result = self.event("final")
        self.assertEqual(world, "2")
        self.assertGreater(float(result[-1]), 0.9)
        self.output_of(alone)
        return result

    def test_a_run_outlives_a_node_and_takes_it_again_and_ends_like_one_on_one_host(self):
        options = self.options()
        expected = self.weights_of_one_host()
        ticket = self.work / "ticket"
        running = self.start_command(*options, "--name", "run", "--workers", "2:8", "--agent_ticket", ticket, "--pause_at",
                                     "5", "--hold_at", "10", prefix=["salloc", "-N4", "--no-kill"])
        hosts, step = self.worlds_of(8, attempt=0)
        self.assertEqual((hosts, step), (["h1", "h1", "h2", "h2", "h3", "h3", "h4", "h4"], 0))
        self.event("pauses")
        self.tool("hosts.sh", "crash", "h4")
        self.assertEqual(self.worlds_of(6, attempt=1), (["h1", "h1", "h2", "h2", "h3", "h3"], 5))
        self.event("holds")

        # Until Slurm knows, a node that is back is still of the job, and the driver launches its agent again.
        self.tool("slurm.sh", "run", "sh", "-c", "until sinfo -h -n h4 -o %t | grep -q down; do sleep 0.2; done")
        self.tool("hosts.sh", "boot", "h4")
        self.tool("slurm.sh", "node", "h4")
        agent = self.start_command("sbatch", "-N1", "-w", "h4", "-o", self.work / "agent", "--wrap",
                                   f"TROUPE_TICKET='{ticket}' exec '{TRAINING_RUN}' --node-agent")
        self.output_of(agent)
        self.assertEqual(self.worlds_of(8, attempt=2), (hosts, 10))
        self.assertEqual(self.event("final"), ["8", *expected])
        output = self.output_of(running)
        self.assertIn("host h4 is lost", output)
        self.assertIn("host h4 has joined", output)
        self.assertFalse(ticket.exists())

    def submit(self, script, *options):
        """The number of a job of all nodes, whose output goes to the file `output`."""
        path = self.work / "job.sh"
        path.write_text(f"#!/bin/sh\n{script}\n")
        submitted = self.start_command("sbatch", "--parsable", "-N4", "--requeue", "--open-mode=append", "-o",
                                       self.work / "output", *options, path)
        return self.output_of(submitted).strip()

    def command_that_holds(self, starts):
        """A line of a job's script: the run holds at step 10 until the job was requeued that often."""
        options = " ".join(f"'{x}'" for x in self.options())
        return f"{options} --name run --workers 8 --hold_at 10 --full $(({8 + starts} - ${{SLURM_RESTART_COUNT:-0}}))"

    def end_after(self, job, seconds):
        """Moves the time limit of a job, which Slurm checks twice a minute."""
        self.tool("slurm.sh", "run", "sh", "-c",
                  f"scontrol update JobId={job} EndTime=$(date -d '+{seconds} seconds' +%FT%T)")

    def await_state(self, job, state):
        self.tool("slurm.sh", "run", "sh", "-c", f"until scontrol show job {job} | grep -q {state}; do sleep 0.1; done")

    def requeue(self, job):
        """Ends a job, or takes one that has ended, and lets it start again."""
        self.tool("slurm.sh", "run", "scontrol", "requeue", job)
        self.start_again(job)

    def start_again(self, job):
        """Lets a job start that is about to be requeued."""
        # Slurm lets it wait for two minutes, also from the end of its last process on, when it waits already. Its nodes
        # refuse a job that starts in the second in which its last processes were ended.
        is_pending = f"scontrol show job {job} | grep -q JobState=PENDING"
        self.tool("slurm.sh", "run", "sh", "-c", f"until {is_pending}; do sleep 0.1; done; ended=$(date +%s); "
                  f"while {is_pending}; do [ $(date +%s) -lt $((ended + 3)) ] || "
                  f"scontrol update JobId={job} StartTime=now; sleep 0.2; done")

    def test_an_agent_of_an_array_leaves_with_grace_and_comes_again_with_its_job(self):
        ticket = self.work / "ticket"
        # No failure is allowed; three hosts, and even two, train no further than to step 10.
        running = self.start_command(*self.options(), "--name", "run", "--workers_per_host", "1", "--host_count", "2:3",
                                     "--agent_ticket", ticket, "--hold_at", "10", "--full", "4",
                                     prefix=["salloc", "-N2", "-w", "h[1-2]"])
        self.assertEqual(self.worlds_of(2, attempt=0), (["h1", "h2"], 0))
        self.event("holds")
        submitted = self.start_command("sbatch", "--parsable", "--array=0-0", "-N1", "-w", "h3", "--requeue",
                                       "--open-mode=append", "-o", self.work / "agent", "--wrap",
                                       f"TROUPE_TICKET='{ticket}' srun '{TRAINING_RUN}' --node-agent; "
                                       "[ $? -ne 75 ] || scontrol requeue $SLURM_JOB_ID")
        element = self.output_of(submitted).strip() + "_0"
        self.assertEqual(self.worlds_of(3, attempt=1), (["h1", "h2", "h3"], 10))
        self.tool("slurm.sh", "run", "scancel", "--signal=USR1", element)  # To its step.
        self.assertEqual(self.worlds_of(2, attempt=2), (["h1", "h2"], 10))
        self.start_again(element)
        self.assertEqual(self.worlds_of(3, attempt=3), (["h1", "h2", "h3"], 10))
        self.tool("hosts.sh", "run", "h1", "pkill", "-INT", "-o", "-x", "training_run")
        self.assertIn("is about to leave: its agent got SIGUSR1", self.output_of(running, code=3))
        self.expect_nothing_left(program="training_run")

    def test_a_job_that_is_requeued_resumes_its_run(self):
        expected = self.weights_of_one_host()
        job = self.submit("exec " + self.command_that_holds(1))
        self.worlds_of(8, attempt=0)
        self.event("holds")
        self.requeue(job)
        text = self.expect_end(1, expected)
        self.assertIn(f"Slurm job {job}: 4 hosts", text)
        self.assertIn(f"Slurm job {job} (restart 1): 4 hosts", text)

    def expect_end(self, attempt, expected):
        """The last attempt of a job's run resumes from step 10 and comes to the *expected* weights. Returns the output."""
        self.assertEqual(self.worlds_of(8, attempt), (["h1", "h1", "h2", "h2", "h3", "h3", "h4", "h4"], 10))
        self.assertEqual(self.event("final"), ["8", *expected])
        self.expect_nothing_left(("h1", "h2", "h3", "h4"), "training_run")
        return (self.work / "output").read_text()

    def test_a_job_asks_to_be_requeued_when_it_is_preempted_or_its_time_limit_is_near(self):
        expected = self.weights_of_one_host()
        job = self.submit(f"{self.command_that_holds(2)}\n[ $? -ne 75 ] || scontrol requeue $SLURM_JOB_ID",
                          "--time=10", "--signal=USR1@60")
        self.worlds_of(8, attempt=0)
        self.event("holds")
        # Slurm tells the steps, which are the agents, and would requeue only a job that waits for its end.
        self.output_of(self.start_command("sbatch", "--wait", "-p", "urgent", "--exclusive", "-N4", "-o", self.work / "urgent",
                                          "--wrap", "true"))
        self.start_again(job)
        self.assertEqual(self.worlds_of(8, attempt=1)[1], 10)
        self.end_after(job, 50)
        self.start_again(job)
        text = self.expect_end(2, expected)
        for signal in ("SIGTERM", "SIGUSR1"):
            self.assertIn(f"is about to leave: its agent got {signal}; ranks have", text)
        self.assertEqual(text.count("run preempted: "), 2)

    def test_a_run_saves_what_it_has_when_the_time_limit_of_its_job_comes(self):
        expected = self.weights_of_one_host()
        job = self.submit("exec " + self.command_that_holds(1), "--time=10")
        self.worlds_of(8, attempt=0)
        self.event("holds")
        self.end_after(job, 1)
        self.await_state(job, "JobState=TIMEOUT")
        self.await_state(job, "ExitCode=75:0")
        self.assertIn("run preempted: ", (self.work / "output").read_text())
        self.requeue(job)
        self.expect_end(1, expected)


if __name__ == "__main__":
    outcome = unittest.main(verbosity=2, exit=False).result
    begun = outcome.testsRun - sum(isinstance(test, unittest.TestCase) for test, _ in outcome.skipped)
    sys.exit(77 if outcome.wasSuccessful() and outcome.skipped and not begun else not outcome.wasSuccessful())
