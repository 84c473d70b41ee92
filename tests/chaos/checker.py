#!/usr/bin/python3
"""Decides whether a case kept the contract N1-N10: compares what the trainee was promised with what is on the disk.

  checker.py CASE_FOLDER

Each clause is a function that yields sentences, one for each violation.
"""
import collections
import math
import os
import sys
from pathlib import Path

import faults
import run_reader
from run_reader import Case, Damaged


# Signals with which a run leaves its host, with a last checkpoint.
LEAVE = {"SIGTERM", "SIGUSR1", "SIGHUP"}
WRITE_FAULTS = {"shim", "full-disk", "driver-failpoint", "rename-folder"}


class Evidence:
    """What is on the disk and in the records, read once."""

    def __init__(self, case: Case, over: bool, run: Path):
        self.case, self.plan, self.run = case, case.plan, run
        # A run frees its name for another one only if its folder was renamed.
        self.replaced = any(x["do"] == "rename-folder" and x["delivered"] for start in case.starts
                            for x in start["faults"])
        try:
            self.id = run_reader.run_id(run)
        except Damaged:
            self.id = ""
        self.starts = case.starts if run == case.run else []  # of a folder that was replaced, no driver is at fault
        self.over = over  # whether the run has finished
        # The last driver's writes were undisturbed, so that the files of trackers on disk are complete.
        self.trackers_whole = over and self.starts[-1]["rc"] == 0 and not (
            {x["do"] for x in self.starts[-1]["faults"]} & WRITE_FAULTS)
        self.journal = run_reader.read_journal(run / "journal.jsonl")
        self.rows = {x["batch"]: x for x in self.journal.batches}
        self.checkpoints = run_reader.read_checkpoints(run)
        self.learns = self.plan["learner"] == "torch"  # and has weights, which only another run can compute
        self.states = (run_reader.recorded_states(run_reader.read_records(case.expected / "undisturbed.jsonl"))
                       if self.learns else run_reader.states(self.plan["seed"], self.plan["steps"],
                                                             self.plan.get("samples", 0)))
        self.ranks = [self.own(run_reader.read_records(case.expected / f"rank_{r}.jsonl"))
                      for r in range(self.plan["workers"])]
        self.fewest = self.plan.get("fewest", self.plan["workers"])
        self.is_elastic = self.fewest < self.plan["workers"]
        self.worlds = {x["attempt"]: x["world"] for _, x in self.begun()}
        records = run_reader.read_records(case.expected / "callbacks.jsonl")
        self.callback_calls = self.own(records)
        self.results = run_reader.read_records(case.expected / "results.jsonl")
        self.last_result = self.last_of_run(records)
        self.state, self.state_problem = None, ""
        try:
            self.state = run_reader.read_document(run / "state.json")
        except Damaged as problem:
            self.state_problem = str(problem)

    def own(self, records: list) -> list:
        """Those of this folder's run: after the folder was renamed, another run may have taken its name."""
        if not self.replaced:
            return records
        if not self.id:  # Another driver has refused the folder that took the name, or died before it made a run.
            moved = self.case.run.with_name("moved")
            return [] if self.run == self.case.run and moved.is_dir() else records
        runs = {x["pid"]: x["run"] for x in records if "run" in x}
        return [x for x in records if runs.get(x["pid"]) == self.id]

    def last_of_run(self, records: list) -> dict:
        """What the last fit() of this folder's run returned: once the folder was renamed, a driver that ran as the
        case's last may be of the run that was moved away."""
        if self.replaced:
            drivers = {x["pid"] for x in records if x.get("run") == self.id}
        else:
            drivers = {x["pid"] for x in self.starts[-1:]}
        return next((x for x in reversed(self.results) if x["pid"] in drivers), {})

    def acked(self):
        """(rank, record) of each report() that returned."""
        return [(r, x) for r, records in enumerate(self.ranks) for x in records if x["what"] == "acked"]

    def begun(self):
        return [(r, x) for r, records in enumerate(self.ranks) for x in records if x["what"] == "begun"]

    def heard(self) -> dict:
        """By attempt and rank, the index of the report before which the rank was asked to leave."""
        result: dict = {}
        for r, records in enumerate(self.ranks):
            for x in records:
                if x["what"] == "heard":
                    result.setdefault(x["attempt"], {})[r] = x["index"]
        return result

    def promised(self) -> dict:
        """Name and attempt of the checkpoint of each index that report() or a callback vouched for."""
        result = {}
        for _, x in self.acked():
            if x["saves"]:
                result[x["index"]] = (name_of(x["index"]), x["attempt"])
        for x in self.callback_calls:
            if x["what"] == "after_report" and x["checkpoint"]:
                result[x["index"]] = (x["checkpoint"], x["attempt"])
        return result

    def spoiled(self) -> set:
        """Names of the checkpoints that the campaign itself has damaged."""
        starts = [x for x in self.case.starts if not self.replaced or x["run_id"] == self.id]
        return {x["name"] for start in starts for x in start["faults"] if x["do"] == "rot" and x["delivered"]}

    def world_of(self, attempt: int) -> int:
        """How many ranks an attempt has."""
        return self.worlds.get(attempt, self.plan["workers"])

    def start_of(self, attempt: int) -> dict | None:
        return next((x for x in self.starts if x["attempt_after"] >= attempt), None)


def name_of(index: int) -> str:
    return f"checkpoint_{index:06}"


def index_of(name: str) -> int:
    return int(name.rsplit("_", 1)[1])


def same_run(e: Evidence) -> list:
    """The drivers of the run that the last one left."""
    return [x for x in e.starts if not e.replaced or x["run_id"] == e.starts[-1]["run_id"]]


def kept_of(indices: list, keep: int, spoiled: set) -> list:
    """What retention keeps: the newest *keep* (0: all). A spoiled checkpoint is set aside while it is the newest."""
    kept: list = []
    for index in indices:
        kept = (kept + [index])[-keep:]
        kept = [x for x in kept if x not in spoiled]
    return kept


# -- the clauses


def n1_durable(e: Evidence):
    ids = [x["run_id"] for x in e.starts if x["run_id"]]
    if len(set(ids)) > 1 and not e.replaced:
        yield f"drivers of one run gave it the ids {ids}"
    whole = {x.index: x for x in e.checkpoints.values() if x.manifest and not x.problems}
    spoiled = e.spoiled()
    promised = {i: name for i, (name, _) in e.promised().items()}
    kept = kept_of(sorted(set(promised) | set(whole)), e.plan["keep"], {index_of(x) for x in spoiled})
    for index in kept:
        if index in promised and index not in whole:
            yield f"checkpoint {promised[index]} was promised and is not there, or not whole"
    for event in e.journal.events("checkpoint_rotten"):
        if event["fields"]["name"] not in spoiled:
            yield f"checkpoint {event['fields']['name']}, which nothing had damaged, was set aside: " \
                  f"{event['fields']['reason']}"
    if not e.over or not e.state:
        return
    named = {x["name"] for x in e.state["checkpoints"]}
    for index in kept:
        if name_of(index) not in named:
            yield f"state.json does not name checkpoint {name_of(index)}"
    for name in sorted(named - {name_of(i) for i in kept}):
        yield f"state.json names {name}, which retention let go"


def n2_atomic(e: Evidence):
    for x in e.checkpoints.values():
        if x.name in e.spoiled():
            continue
        for problem in x.problems:
            yield f"a reader finds {x.name}: {problem}"
        if not x.manifest or x.problems:
            continue
        attempt, step = x.manifest["attempt"], x.manifest["metrics"]["step"]
        world = e.world_of(attempt)
        names = {"model.bin": -1} | {f"ranks/{r}.bin": r for r in range(world)}
        weights = {"weights.bin"} if e.learns else set()
        if {f["path"] for f in x.manifest["files"]} != set(names) | weights:
            yield f"{x.name} has not the files that the ranks added"
            continue
        for name in weights:
            if run_reader.sum_of((e.run / "checkpoints" / x.name / name).read_bytes()) != e.states[step]:
                yield f"{x.name}: {name} are not those of step {step}"
        for name, rank in names.items():
            data = (e.run / "checkpoints" / x.name / name).read_bytes()
            head = data.split(b"\n")[0].split()
            if int(head[0]) != attempt:
                yield f"{x.name}, of attempt {attempt}, holds {name} of attempt {int(head[0])}"
            elif data != run_reader.content_of(step, e.states[step], attempt, world, rank, e.plan["bytes"]):
                yield f"{x.name}: {name} is not what rank {rank} saved at step {step}"
    for rank, x in e.begun():
        if x["problem"]:
            yield f"rank {rank} of attempt {x['attempt']} was given a checkpoint that mixes: {x['problem']}"


def n3_monotonic(e: Evidence):
    spoiled = e.spoiled()
    promised = e.promised()
    for rank, x in e.begun():
        before = [i for i, (name, attempt) in promised.items() if attempt < x["attempt"] and name not in spoiled]
        got = index_of(x["resume"]) if x["resume"] else -1
        if before and got < max(before):
            yield f"attempt {x['attempt']} of rank {rank} began with {x['resume'] or 'nothing'}, although " \
                  f"{promised[max(before)][0]} had been promised"
    newest = -1
    for number, start in enumerate(same_run(e)):
        if start["newest"] < newest and not spoiled:
            yield f"driver {number} left checkpoint {start['newest']} as the newest, the one before had left {newest}"
        newest = max(newest, start["newest"])
    noted = {x["fields"]["name"] for x in e.journal.events("checkpoint_rotten")}
    if e.over:
        for name in sorted(spoiled - noted):
            yield f"{name} has rotted and no event says so"


def n4_callbacks(e: Evidence):
    highest = -1
    rotten = e.spoiled()  # The next driver sets them aside, then replays the reports that no callback has got.
    calls_by_driver: dict = {}
    for x in e.callback_calls:
        calls_by_driver.setdefault(x["pid"], []).append(x)
    for pid, calls in calls_by_driver.items():
        if calls[0]["what"] != "before_run":
            yield f"driver {pid} called {calls[0]['what']} before before_run"
        reports = [x for x in calls if x["what"] == "after_report"]
        for before, after in zip(reports, reports[1:]):
            if after["index"] != before["index"] + 1:
                yield f"driver {pid} delivered report {after['index']} after report {before['index']}"
        if reports and reports[0]["index"] > highest + 1:
            yield f"driver {pid} began with report {reports[0]['index']}; {highest + 1} was delivered to no callback"
        highest = max([highest] + [x["index"] for x in reports])
        for x in reports:
            row = e.rows.get(x["index"])
            if not row:
                yield f"callbacks received report {x['index']}, which is not in the journal"
                continue
            stored = row.get("checkpoint", "")
            # Only one that is damaged is missing, and an event says so: retention leaves it to the replay.
            names = {stored, ""} if stored in rotten else {stored}
            if x["checkpoint"] not in names or (x["attempt"], x["states"]) != (
                    row["attempt"], [v["state"] for v in row["values"]]):
                yield f"callbacks received other values of report {x['index']} than the journal has"
        ends = [i for i, x in enumerate(calls) if x["what"] == "after_run"]
        if len(ends) > 1 or ends and ends[0] != len(calls) - 1:
            yield f"driver {pid} called after_run {len(ends)} times, or not last"
        start = next((x for x in e.starts if x["pid"] == pid), None)
        if start and start["rc"] in (0, 3, 4) and not ends:
            yield f"driver {pid} ended without after_run"
    if e.over and e.rows and highest != max(e.rows):
        yield f"callbacks received reports up to {highest}, the journal has {max(e.rows)}"


def n5_metrics(e: Evidence):
    for number in e.journal.damaged:
        yield f"line {number} of the journal is damaged"
    if e.over and e.journal.torn:
        yield "the journal ends with a torn line, although the run has finished"
    if e.starts and not e.journal.lines and e.acked():
        yield "the journal has no line"
    for expected, row in enumerate(e.journal.batches):
        if row["batch"] != expected:
            yield f"the journal has report {row['batch']} where {expected} should be"
            break
    for rank, x in e.acked():
        row = e.rows.get(x["index"])
        if not row:
            yield f"report {x['index']} of rank {rank} returned and is not in the journal"
        elif rank >= len(row["values"]) or (row["attempt"], row["values"][rank]["state"]) != (x["attempt"], x["state"]):
            yield f"report {x['index']} of rank {rank} has other values in the journal than were reported"
        elif bool(x["saves"]) != ("checkpoint" in row):
            yield f"report {x['index']} of rank {rank}: the journal is wrong about its checkpoint"
    rows = 0
    for number, start in enumerate(same_run(e)):
        if start["rows"] < rows:
            yield f"driver {number} left {start['rows']} reports in the journal, the one before had left {rows}"
        rows = start["rows"]
    if e.trackers_whole:
        yield from tracked_otherwise(e)


def tracked_otherwise(e: Evidence):
    found = run_reader.tracker_losses(e.run)
    for name, losses in found.items():
        indices = [x for x, _ in losses]
        if indices != sorted(e.rows):
            missing = sorted(set(e.rows) - set(indices))
            twice = sorted({x for x in indices if indices.count(x) > 1})
            yield f"{name} lacks reports {missing} and has {twice} twice"
        for index, loss in losses:
            reported = e.rows[index]["values"][0]["loss"] if index in e.rows else loss
            if not math.isclose(loss, reported, rel_tol=1e-5):  # Some keep six digits.
                yield f"{name} has the loss {loss} of report {index}, {reported} was reported"
    expected = {"metrics.csv", "result.json", "mlruns"}
    expected |= {"tensorboard"} if e.plan["tensorboard"] else set()
    expected |= {"report.html"} if e.plan["report_page"] else set()
    for name in sorted(expected - set(found)):
        yield f"{name} is missing"


def n6_fencing(e: Evidence):
    attempt, begun = -1, set()
    for x in e.journal.lines:
        if "batch" not in x and x.get("event") != "attempt_begun":
            continue  # Events of the driver have the attempt that it is preparing.
        if x.get("event") == "attempt_begun":
            if x["attempt"] in begun:
                yield f"attempt {x['attempt']} began twice"
            begun.add(x["attempt"])
        if "batch" in x and x["attempt"] < attempt:
            yield f"report {x['batch']} of attempt {x['attempt']} came after attempt {attempt} had begun"
        if "batch" in x and x["attempt"] not in begun:
            yield f"report {x['batch']} is of attempt {x['attempt']}, which had not begun"
        attempt = max(attempt, x["attempt"])
    for x in e.checkpoints.values():
        if x.manifest and x.index in e.rows and e.rows[x.index]["attempt"] != x.manifest["attempt"]:
            yield f"{x.name} is of attempt {x.manifest['attempt']}, its report of {e.rows[x.index]['attempt']}"
    # A group that failed to start is started again under the same number; its ranks may have begun.
    group_starts = collections.Counter(x["attempt"] for x in e.journal.events("ranks_failed"))
    seen: collections.Counter = collections.Counter()
    for rank, x in e.begun():
        seen[rank, x["attempt"]] += 1
        if seen[rank, x["attempt"]] > 1 + group_starts[x["attempt"]]:
            yield f"rank {rank} of attempt {x['attempt']} began twice"
        if x["alive"]:
            yield f"rank {rank} of attempt {x['attempt']} began while there was {x['alive']}"
    if e.over and e.state:
        if e.state["next_attempt"] <= attempt:
            yield f"state.json gives attempt {e.state['next_attempt']} out again"
        if e.rows and e.state["next_report"] <= max(e.rows):
            yield f"state.json gives report {e.state['next_report']} out again"


def n7_bounded(e: Evidence):
    ended = {x["pid"]: x for x in e.results}
    for number, start in enumerate(e.starts):
        who = f"driver {number}"
        if start["timed_out"]:
            yield f"{who} did not return within {start['bound_s']:.0f} s: {start['stuck']}"
        elif not start["killed"]:
            result = ended.get(start["pid"])
            if not result:
                yield f"{who} ended with {start['rc']} and without a result"
            elif result["what"] == "threw":
                yield f"{who}: fit() threw: {result['text']}"
        for kind, names in start["left"].items():
            for name in names:
                yield f"{who} left {kind} behind: {name}"
    if not e.over or e.starts[-1]["rc"] != 0:
        return  # A driver that was killed after the end can no longer clean up, and none follows.
    # A folder that the disk fails to remove is an event, and the next start removes it.
    excused = [str(x["fields"]) for kind in ("checkpoint_not_removed", "staging_not_removed")
               for x in e.journal.events(kind)]
    # Trackers use paths: if its folder was renamed, a tracker cannot remove the file with which it was replacing
    # another.
    renamed = any(x["do"] == "rename-folder" and x["delivered"] for x in e.starts[-1]["faults"])
    unfinished = {f"{x}.new" for x in ("metrics.csv", "report.html")} if renamed else set()
    for path in sorted(e.run.rglob("*")):
        name = path.relative_to(e.run).as_posix()
        if path.name.startswith(".") and any(path.name.removeprefix(".evicted-") in x for x in excused):
            continue
        if name in unfinished:
            continue
        if ".rotten-" not in name and (path.name.startswith(".") or path.name.endswith((".new", ".tmp"))):
            yield f"the finished run has a temporary file: {name}"


def n8_same_answer(e: Evidence):
    def is_right(step, state):
        return 0 <= step <= e.plan["steps"] and state == f"{e.states[step]:016x}"

    for rank, records in enumerate(e.ranks):
        for x in records:
            if x["what"] in ("begun", "sent", "acked") and not is_right(x["step"], x["state"]):
                yield f"rank {rank} of attempt {x['attempt']} had state {x['state']} at step {x['step']}"
    yield from other_worlds(e)
    step, attempt = 0, -1
    first = {x["attempt"]: x["step"] for _, x in e.begun()}
    for row in e.journal.batches:
        values = row["values"]
        if len(values) != e.world_of(row["attempt"]):
            yield f"report {row['batch']} has the values of {len(values)} ranks"
            continue
        if samples := e.plan.get("samples"):
            trained = sorted(int(i) for x in values for i in x["samples"].split())
            if trained != list(range(samples)):
                yield f"ranks trained samples {trained} in report {row['batch']}, not each of {samples} once"
        for rank, x in enumerate(values):
            if x["rank"] != rank or not is_right(x["step"], x["state"]) or x["step"] != values[0]["step"]:
                yield f"report {row['batch']} of rank {rank} is not what an undisturbed run reports at step {x['step']}"
        expected = (first.get(row["attempt"], 0) if row["attempt"] != attempt else step) + 1
        step, attempt = values[0]["step"], row["attempt"]
        if step != expected:
            yield f"report {row['batch']} is step {step}, {expected} should come here"
    yield from left_apart(e)
    if e.over and step != e.plan["steps"]:
        yield f"the run has finished at step {step} of {e.plan['steps']}"
    last = e.last_result
    if last.get("status") != "finished" and (not e.over or e.starts[-1]["rc"] != 0):
        return  # The run has not finished, or the last driver was refused: there is no result of the run.
    if last.get("state") != f"{e.states[-1]:016x}":
        yield f"fit() returned state {last.get('state') or 'none'} of the model"
    newest = max((x.index for x in e.checkpoints.values()), default=-1)
    if newest >= 0 and last.get("checkpoint") != name_of(newest):
        yield f"fit() returned {last.get('checkpoint') or 'none'} as the latest checkpoint, which is {name_of(newest)}"


def other_worlds(e: Evidence):
    """Numbers of ranks that an attempt may not have."""
    for attempt, world in e.worlds.items():
        if not e.fewest <= world <= e.plan["workers"]:
            yield f"attempt {attempt} has {world} ranks, not {e.fewest} to {e.plan['workers']}"
    for rank, x in e.begun():
        if x["world"] != e.worlds[x["attempt"]] or rank >= x["world"]:
            yield f"rank {rank} of attempt {x['attempt']} is one of {x['world']}, others of {e.worlds[x['attempt']]}"


def left_apart(e: Evidence):
    """Ranks of a run that had to go leave at the same report."""
    left = {(r, x["attempt"]) for r, records in enumerate(e.ranks) for x in records if x["what"] == "returned"}
    for attempt, indices in e.heard().items():
        if len(set(indices.values())) > 1:
            yield f"ranks of attempt {attempt} were asked to leave before reports {indices}"
        if all((r, attempt) in left for r in range(e.world_of(attempt))):
            last: dict = {}
            for r, x in e.acked():
                if x["attempt"] == attempt:
                    last[r] = x["index"]
            if len(set(last.values())) > 1:
                yield f"ranks of attempt {attempt} left after reports {last}"


def n9_closed_door(e: Evidence):
    for path in [e.run, *sorted(e.run.rglob("*"))] if e.run.is_dir() else []:
        name = path.relative_to(e.run).as_posix()
        # Files of a checkpoint keep the mode that ranks gave them, in folders that no other user may enter.
        of_the_user = name.startswith("checkpoints/") and path.name != "manifest.json" and (
            path.is_file() or ".staging" in name)
        if path.is_symlink():
            yield f"{name} is a link"
        elif not of_the_user and path.stat().st_mode & 0o077:
            yield f"others may use {name}"


def n10_explains_itself(e: Evidence):
    if e.state_problem:
        yield e.state_problem
    if not e.starts:
        return
    begun = [x["attempt"] for x in e.journal.events("attempt_begun")]
    explained = {x["attempt"]: x["fields"].get("reason", "") for x in e.journal.events("ranks_failed")}
    left = {x["attempt"]: x["fields"].get("reason", "") for x in e.journal.events("attempt_left")}
    ended = {x["attempt"] for x in e.journal.events("run_ended")}
    lost = {x["attempt"] for x in e.journal.events("driver_lost")}
    for attempt in begun[:-1]:
        start = e.start_of(attempt)
        if attempt in {*explained, *left, *ended} or start and start["timed_out"]:
            continue
        if attempt in lost and start and (start["killed"] or {x["do"] for x in start["faults"]} & WRITE_FAULTS):
            continue  # That driver could not say so; the next one did.
        if start and any(x.get("beside") and x["delivered"] for x in start["faults"]):
            continue  # Another driver has taken over the run; the previous one may not record that.
        yield f"attempt {attempt} ended and no event says why"
    for attempt, reason in [*explained.items(), *left.items()]:
        if not reason:
            yield f"attempt {attempt} failed or was left without a reason"
    for start in e.starts:
        for x in start["faults"]:
            if len(start["faults"]) > 1 or not x["delivered"]:
                continue
            if x["do"] == "signal" and x["target"] == "rank" and x["then_continue_ms"] < 0 and "again_ms" not in x:
                yield from unexplained(x["rank"], x["signal"], explained.get(x["attempt"]))
            if x["do"] == "loop-fails" and not x["by"].startswith("driver"):
                yield from unexplained(0, x["by"], explained.get(x["attempt"], "no event"))
    if e.is_elastic:
        yield from charged_for_hosts(e)
    for number, start in enumerate(e.starts):
        result = next((x for x in e.results if x["pid"] == start["pid"] and x["what"] == "result"), None)
        if not result:
            continue
        yield from gave_up(f"driver {number}", e, start, result)
        if result["status"] != "finished" and not result["error"]:
            yield f"driver {number}: fit() returned {result['status']} without an error"
        yield from ended_otherwise(f"driver {number}", e, start, result)
        codes = {x["errno"] for x in start["faults"] if x["do"] == "shim" and x["delivered"] and x["errno"]}
        words = [str(e.case.folder), *map(os.strerror, codes)]
        if codes and result["status"] == "errored" and not any(x in result["error"] for x in words):
            yield f"driver {number}: the error names neither a path nor what the system said: {result['error']}"
    if e.over:
        if not e.state or e.state["status"] != "finished":
            yield f"state.json says {e.state['status'] if e.state else 'nothing'} of a run that has finished"
        last = e.journal.events("run_ended")
        if not last or last[-1]["fields"]["status"] != "finished":
            yield "the journal does not say that the run has finished"


def charged_for_hosts(e: Evidence):
    """An elastic run is charged for ranks that failed by themselves, and for nothing that befell hosts. Until its ranks
    have reported to a driver, a failed start may be the program's fault, and counts."""
    before = -1
    for number, start in enumerate(e.starts):
        def is_own(attempt: int) -> bool:
            return before < attempt <= start["attempt_after"]

        first = min((x["attempt"] for x in e.journal.batches if is_own(x["attempt"])), default=math.inf)
        reasons = [x["fields"]["reason"] for x in e.journal.events("ranks_failed")
                   if is_own(x["attempt"]) and (x["fields"].get("started", True) or x["attempt"] > first)]
        hits = sum(x["delivered"] and x["family"] in faults.CHARGED for x in start["faults"])
        if len(reasons) > hits:
            yield f"driver {number}: {hits} times a rank failed by itself, and {len(reasons)} failures count: " \
                  f"{'; '.join(reasons)}"
        before = max(before, start["attempt_after"])


def gave_up(who: str, e: Evidence, start: dict, result: dict):
    """A run outlives some faults if it may restart its ranks without limit, or is elastic."""
    befell = [x.get("family", x["do"]) for x in start["faults"] if x["delivered"]]
    is_limited = e.plan["max_failures"] >= 0 and not e.is_elastic  # That of an elastic run is what it needs.
    if not set(befell) <= faults.OUTLIVED or is_limited or start["rc"] == 5:
        return  # 5: the run was refused, as its name has finished or another driver has it.
    if result["status"] != "finished":
        yield f"{who}: the run outlives {', '.join(befell) or 'a driver that nothing disturbed'}, and fit() returned " \
              f"{result['status']}: {result['error']}"


def ended_otherwise(who: str, e: Evidence, start: dict, result: dict):
    """How a run that had to go has to end, and only that one."""
    asked, signals = [], set()
    for x in start["faults"]:
        second = x.get("second") or {}
        names = [x.get("signal", ""), second.get("signal", ""), *x.get("by", "").split()[1:]]
        signals |= {"SIG" + name for name in names}
        if x["delivered"] and (x["do"] == "preempt" or x.get("by") == "driver TERM"):
            asked.append(second)
    if result["status"] == "preempted" and not any(x in result["error"] for x in signals & LEAVE):
        yield f"{who}: fit() returned preempted, which no signal asked for: {result['error']}"
    if not asked or len(start["faults"]) > 1 or asked[0].get("signal") == "INT":
        return
    if result["status"] not in ("preempted", "finished"):
        yield f"{who}: the run had to go, and fit() returned {result['status']}: {result['error']}"
    if not asked[0] and start["rank_failures"] > failures_before(e, start):
        yield f"{who}: the run had to go, which was counted as a failure of its ranks"


def failures_before(e: Evidence, start: dict) -> int:
    """Failures of ranks that the driver of *start* found, in the journal if the state could not be saved."""
    before = [x for x in e.starts[:e.starts.index(start)] if not e.replaced or x["run_id"] == start["run_id"]]
    if not before:
        return 0
    noted = [x for x in e.journal.events("ranks_failed")
            if x["attempt"] <= before[-1]["attempt_after"] and x["fields"].get("started", True)]
    return max(before[-1]["rank_failures"], len(noted))


def unexplained(rank: int, what: str, reason: str | None):
    """Sentences for *what*, a signal or a way to fail, that befell *rank* and that *reason* does not explain."""
    if reason is None:
        return  # It hit nothing: the rank was leaving, or not a rank yet.
    words = {"throw": "asked to fail", "exit": "exit(3)", "STOP": "", "TERM": ""}
    expected = words.get(what, f"SIG{what}")
    if str(rank) not in reason.split(":")[0]:
        yield f"{what} befell rank {rank}, the event blames another: {reason}"
    if expected not in reason:
        yield f"{what} befell rank {rank}, the event does not say so: {reason}"


CLAUSES = {"N1": n1_durable, "N2": n2_atomic, "N3": n3_monotonic, "N4": n4_callbacks, "N5": n5_metrics,
           "N6": n6_fencing, "N7": n7_bounded, "N8": n8_same_answer, "N9": n9_closed_door, "N10": n10_explains_itself}


def check(case: Case, over: bool) -> list:
    """(clause, sentence) of each violation."""
    evidence = Evidence(case, over, case.run)
    result = [(clause, text) for clause, find in CLAUSES.items() for text in find(evidence)]
    moved = case.run.with_name("moved")
    if moved.is_dir():
        old = Evidence(case, False, moved)
        result += [(clause, f"the renamed folder: {text}") for clause, find in CLAUSES.items() for text in find(old)]
    return result


def main() -> int:
    case = Case.load(Path(sys.argv[1]))
    violations = check(case, over=bool(case.starts) and case.starts[-1]["rc"] in (0, 5))
    for clause, text in violations:
        print(f"{clause}: {text}")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
