#!/usr/bin/python3
"""Plants violations into what a good case left, and expects the checker to name the clause of each.

  checker_test.py TRAINEE [TORCH_TRAINEE] [unittest arguments]
"""
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import types
import unittest
import unittest.mock
from pathlib import Path

import campaign
import checker
import faults
import hosts_campaign
import hosts_faults
import run_reader
from run_reader import Case
from xxh3 import checksum_text

TRAINEE = str(Path(sys.argv.pop(1)).resolve())
TORCH_TRAINEE = str(Path(sys.argv.pop(1)).resolve()) if len(sys.argv) > 1 and Path(sys.argv[1]).exists() else ""

# By xxHash's own library, of bytes(131 * i + 7 & 255 for i in range(size)).
VECTORS = {
    0: "2d06800538d394c2", 1: "4c5cca45d0f4811f", 3: "6e3e2670e61106ac", 4: "5c4c63133443d03f",
    8: "f9fd4dd0b04d78f5", 9: "7c20df9712c26edf", 16: "86abf6baccea0858", 17: "b58bf5dc5022d071",
    32: "e3712ed84c04a66e", 64: "1291d2d4042330dd", 96: "81296929fc063365", 128: "10d17f72c0ccba41",
    129: "1648bdc3db49d1a2", 240: "b6cfaf343fab81e6", 241: "956cae592c67279e", 255: "64a6073025eb7929",
    1014: "7b2c3de7d8c73aa5", 1813: "8f55496a9f29c6c6", 2612: "385b8cfbcc4773f8", 3411: "fabe84ee2b1429c7",
    4210: "4b34d7a94cb31ea4",
}

PLAN = {"seed": 7, "steps": 16, "workers": 2, "every": 2, "keep": 3, "step_us": 5000, "bytes": 300,
        "report_timeout_ms": 0, "tensorboard": 1, "report_page": 1, "max_failures": -1,
        "placement": "processes", "leaves": "saving", "grace_ms": 30_000, "learner": "counting"}
STARTS = [[{"family": "driver-stopped-by-rank", "do": "loop-fails", "step": 5, "by": "driver INT"}],
         [{"family": "driver-stopped-by-rank", "do": "loop-fails", "step": 8, "by": "driver TERM"}],
         [{"family": "loop-fails", "do": "loop-fails", "step": 13, "by": "KILL"}]]


def make_good_case(folder: Path, plan: dict, starts: list) -> Case:
    case = Case(folder, plan)
    campaign.make_folders(case)
    setting = campaign.Setting(TRAINEE, "", folder.parent, TORCH_TRAINEE)
    if plan["learner"] == "torch":
        (case.expected / "undisturbed.jsonl").write_bytes(campaign.undisturbed(setting, plan))
    for planned in starts:
        case.starts.append(campaign.Driver(setting, case, len(case.starts), planned).run())
    case.save()
    return case


def with_sum(body: bytes) -> bytes:
    return body + b',"sum":"' + checksum_text(body).encode() + b'"}\n'


def encoded(x: dict) -> bytes:
    x = {k: v for k, v in x.items() if k != "sum"}
    return with_sum(json.dumps(x, separators=(",", ":")).encode()[:-1])


class Plants:
    """A copy of the good case, to be damaged."""

    def __init__(self, case: Case):
        self.case, self.run, self.expected = case, case.run, case.expected

    def newest(self) -> Path:
        return max((self.run / "checkpoints").glob("checkpoint_*"))

    def document(self, path: Path, change) -> None:
        x = json.loads(path.read_bytes())
        change(x)
        path.write_bytes(encoded(x))

    def state(self, change) -> None:
        self.document(self.run / "state.json", change)

    def manifest(self, change) -> None:
        self.document(self.newest() / "manifest.json", change)

    def journal(self, change) -> None:
        """Lets *change* edit the list of lines, dicts."""
        path = self.run / "journal.jsonl"
        lines = [json.loads(x) for x in path.read_bytes().splitlines()]
        lines = change(lines) or lines
        path.write_bytes(b"".join(encoded(x) for x in lines))

    def records(self, name: str, change) -> None:
        path = self.expected / name
        lines = run_reader.read_records(path)
        lines = change(lines) or lines
        path.write_text("".join(json.dumps(x) + "\n" for x in lines))

    def text(self, path: Path, change) -> None:
        path.write_text(change(path.read_text()))

    def replace_saved(self, name: str, data: bytes) -> None:
        """Puts *data* into the newest checkpoint as if it had been committed so."""
        (self.newest() / name).write_bytes(data)

        def change(x):
            entry = next(f for f in x["files"] if f["path"] == name)
            entry["size"], entry["checksum"] = len(data), checksum_text(data)
        self.manifest(change)


def batch(lines: list, index: int) -> dict:
    return next(x for x in lines if x.get("batch") == index)


def flip(path: Path, at: int = -1) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def without(lines: list, condition) -> list:
    return [x for x in lines if not condition(x)]


def edit(lines: list, condition, **values) -> None:
    """Changes the last line for which *condition* holds."""
    [x for x in lines if condition(x)][-1].update(values)


def is_delivered(x: dict) -> bool:
    return x["what"] == "after_report"


def left_early(case: Case) -> int:
    """The attempt that ended because the run had to go."""
    return next(x["attempt"] for x in run_reader.read_records(case.expected / "rank_0.jsonl") if x["what"] == "heard")


def second_driver(lines: list) -> int:
    """Where the records of the last driver begin."""
    return max(i for i, x in enumerate(lines) if x["what"] == "before_run")


PLANTED = {}


def planted(clause):
    def add(f):
        PLANTED[f.__name__] = (clause, f)
        return f
    return add


# -- N1


@planted("N1")
def the_newest_checkpoint_is_gone(p):
    shutil.rmtree(p.newest())


@planted("N1")
def an_older_checkpoint_is_gone(p):
    shutil.rmtree(min((p.run / "checkpoints").glob("checkpoint_*")))


@planted("N1")
def the_state_forgets_a_checkpoint(p):
    p.state(lambda x: x["checkpoints"].pop())


@planted("N1")
def the_state_names_what_retention_let_go(p):
    p.state(lambda x: x["checkpoints"].insert(0, x["checkpoints"][0] | {"name": "checkpoint_000001", "index": 1}))


@planted("N1")
def a_good_checkpoint_was_set_aside(p):
    p.journal(lambda x: x.insert(-1, {"event": "checkpoint_rotten", "attempt": 1, "time_us": 1,
                                      "fields": {"name": "checkpoint_000001", "reason": "gone"}}))


# -- N2


@planted("N2")
def a_byte_has_flipped(p):
    flip(p.newest() / "model.bin")


@planted("N2")
def a_file_is_short(p):
    path = p.newest() / "model.bin"
    path.write_bytes(path.read_bytes()[:-5])


@planted("N2")
def a_file_is_missing(p):
    (p.newest() / "ranks" / "1.bin").unlink()


@planted("N2")
def a_manifest_is_missing(p):
    (p.newest() / "manifest.json").unlink()


@planted("N2")
def a_manifest_has_rotted(p):
    flip(p.newest() / "manifest.json", 20)


@planted("N2")
def two_attempts_are_mixed(p):
    step = json.loads((p.newest() / "manifest.json").read_bytes())["metrics"]["step"]
    state = run_reader.states(PLAN["seed"], PLAN["steps"])[step]
    p.replace_saved("ranks/0.bin", run_reader.content_of(step, state, 0, PLAN["workers"], 0, PLAN["bytes"]))


@planted("N2")
def another_state_was_saved(p):
    data = (p.newest() / "model.bin").read_bytes()
    p.replace_saved("model.bin", data[:-1] + bytes([data[-1] ^ 1]))


@planted("N2")
def a_rank_has_no_file(p):
    (p.newest() / "ranks" / "1.bin").unlink()
    p.manifest(lambda x: x["files"].pop())


@planted("N2")
def a_rank_was_given_a_mixture(p):
    p.records("rank_1.jsonl", lambda x: edit(x, lambda y: y["what"] == "begun", problem="ranks/0.bin is another's"))


# -- N3


@planted("N3")
def an_attempt_begins_with_an_older_checkpoint(p):
    p.records("rank_0.jsonl", lambda x: edit(x, lambda y: y["what"] == "begun", resume="checkpoint_000000"))


@planted("N3")
def an_attempt_begins_with_nothing(p):
    p.records("rank_0.jsonl", lambda x: edit(x, lambda y: y["what"] == "begun", resume=""))


@planted("N3")
def the_newest_checkpoint_goes_back(p):
    p.case.starts[0]["newest"] = 99


@planted("N3")
def rot_has_no_event(p):
    p.case.starts[0]["faults"].append({"do": "rot", "delivered": True, "name": "checkpoint_000001"})


# -- N4


@planted("N4")
def an_index_is_delivered_to_no_callback(p):
    p.records("callbacks.jsonl", lambda x: x.pop(max(i for i, y in enumerate(x) if is_delivered(y)) - 1) and None)


@planted("N4")
def an_index_is_delivered_twice_by_one_driver(p):
    def twice(x):
        i = max(i for i, y in enumerate(x) if is_delivered(y))
        x.insert(i, x[i])
    p.records("callbacks.jsonl", twice)


@planted("N4")
def the_next_driver_begins_too_late(p):
    def late(x):
        x.pop(second_driver(x) + 1)
    p.records("callbacks.jsonl", late)


@planted("N4")
def a_callback_hears_of_what_is_not_stored(p):
    p.records("callbacks.jsonl", lambda x: edit(x, is_delivered, index=PLAN["steps"] * 9))


@planted("N4")
def a_callback_receives_other_values(p):
    p.records("callbacks.jsonl", lambda x: edit(x, is_delivered, states=["00", "11"]))


@planted("N4")
def a_callback_misses_a_checkpoint(p):
    p.records("callbacks.jsonl", lambda x: edit(x, lambda y: is_delivered(y) and y["checkpoint"], checkpoint=""))


@planted("N4")
def a_callback_receives_another_checkpoint_than_the_rotten_one(p):
    p.case.starts[0]["faults"].append({"do": "rot", "delivered": True, "name": p.newest().name})
    p.records("callbacks.jsonl", lambda x: edit(x, lambda y: y.get("checkpoint") == p.newest().name,
                                           checkpoint="checkpoint_000001"))


@planted("N4")
def after_run_is_missing(p):
    p.records("callbacks.jsonl", lambda x: x[:-1])


@planted("N4")
def before_run_is_missing(p):
    p.records("callbacks.jsonl", lambda x: x[1:])


@planted("N4")
def the_last_report_is_delivered_to_no_callback(p):
    p.records("callbacks.jsonl", lambda x: [*x[:-2], x[-1]])


# -- N5


@planted("N5")
def the_journal_skips_an_index(p):
    p.journal(lambda x: without(x, lambda y: y.get("batch") == 1))


@planted("N5")
def the_journal_has_an_index_twice(p):
    p.journal(lambda x: x.insert(x.index(batch(x, 1)), batch(x, 1)))


@planted("N5")
def the_journal_has_other_values(p):
    p.journal(lambda x: batch(x, 1)["values"][1].update(state="0123456789abcdef"))


@planted("N5")
def a_line_of_the_journal_has_rotted(p):
    flip(p.run / "journal.jsonl", 400)


@planted("N5")
def the_journal_of_a_finished_run_is_torn(p):
    with (p.run / "journal.jsonl").open("ab") as file:
        file.write(b'{"batch":99,"att')


@planted("N5")
def the_journal_forgets_a_checkpoint(p):
    p.journal(lambda x: batch(x, 1).pop("checkpoint") and None)


@planted("N5")
def the_journal_shrinks(p):
    p.case.starts[0]["rows"] = 99


@planted("N5")
def the_table_lacks_a_row(p):
    p.text(p.run / "metrics.csv", lambda x: "".join(x.splitlines(keepends=True)[:-1]))


@planted("N5")
def the_result_lines_have_one_twice(p):
    p.text(p.run / "result.json", lambda x: x + x.splitlines(keepends=True)[-1])


@planted("N5")
def the_file_store_lacks_a_value(p):
    path = next((p.run.parent / "mlruns").glob("*/*/metrics/loss"))
    p.text(path, lambda x: "".join(x.splitlines(keepends=True)[1:]))


@planted("N5")
def a_tracker_left_nothing(p):
    (p.run / "result.json").unlink()


@planted("N5")
def the_table_has_another_value(p):
    p.text(p.run / "metrics.csv", lambda x: x.replace(",0.25,", ",0.26,"))


@planted("N5")
def the_event_file_lacks_its_end(p):
    path = max((p.run / "tensorboard").glob("**/*tfevents*"), key=lambda x: x.stat().st_size)
    path.write_bytes(path.read_bytes()[:-200])


@planted("N5")
def the_page_lacks_a_report(p):
    p.text(p.run / "report.html", lambda x: x.replace('"mean":[1,0.5,', '"mean":[1,0.4,'))


@planted("N1")
def another_run_took_the_place_of_the_first(p):
    p.case.starts[0]["run_id"] = "0" * 32


# -- N6


@planted("N6")
def an_old_attempt_reports_after_a_new_one(p):
    def late(x):
        old = [y for y in x if "batch" in y and y["attempt"] == 0][-1]
        x.remove(old)
        x.insert(x.index([y for y in x if y.get("event") == "attempt_begun"][-1]) + 1, old)
    p.journal(late)


@planted("N6")
def an_attempt_begins_twice(p):
    def twice(x):
        x.insert(len(x) - 1, next(y for y in x if y.get("event") == "attempt_begun"))
    p.journal(twice)


@planted("N6")
def an_attempt_reports_without_having_begun(p):
    def forget(x):
        last = [y for y in x if y.get("event") == "attempt_begun"][-1]
        return without(x, lambda y: y is last)
    p.journal(forget)


@planted("N6")
def a_rank_runs_twice_in_one_attempt(p):
    p.records("rank_0.jsonl", lambda x: x.append([y for y in x if y["what"] == "begun"][-1]))


@planted("N6")
def two_attempts_run_at_once(p):
    p.records("rank_0.jsonl", lambda x: edit(x, lambda y: y["what"] == "begun", alive="4711 of attempt 0; "))


@planted("N6")
def a_checkpoint_is_of_another_attempt_than_its_report(p):
    p.manifest(lambda x: x.update(attempt=77))


@planted("N5")
def a_folder_that_was_renamed_lost_reports(p):
    """The run continues elsewhere; what was promised for the old folder is still looked for in it."""
    shutil.copytree(p.run, p.run.with_name("moved"))
    path = p.run.with_name("moved") / "journal.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:5]))


@planted("N6")
def an_attempt_number_would_be_used_again(p):
    p.state(lambda x: x.update(next_attempt=1))


@planted("N6")
def a_report_index_would_be_used_again(p):
    p.state(lambda x: x.update(next_report=3))


# -- N7


@planted("N7")
def fit_does_not_return(p):
    p.case.starts[1].update(timed_out=True, stuck="1 S futex")


@planted("N7")
def a_driver_dies_by_itself(p):
    p.records("results.jsonl", lambda x: x[1:])


@planted("N7")
def fit_throws(p):
    p.records("results.jsonl", lambda x: x[0].update(what="threw", text="bad_alloc"))


@planted("N7")
def a_process_is_left(p):
    p.case.starts[0]["left"]["processes"].append("4711 in state T")


@planted("N7")
def a_socket_is_left(p):
    p.case.starts[0]["left"]["sockets"].append("/r/troupe-1/group")


@planted("N7")
def a_private_folder_is_left(p):
    p.case.starts[1]["left"]["files"].append("r/troupe-1")


@planted("N7")
def a_staging_folder_is_left(p):
    (p.run / "checkpoints" / ".staging-0-3").mkdir()


@planted("N7")
def a_temporary_file_is_left(p):
    (p.run / "state.json.new").touch(mode=0o600)


# -- N8


@planted("N8")
def a_rank_computes_something_else(p):
    p.records("rank_1.jsonl", lambda x: edit(x, lambda y: y["what"] == "sent", state="00000000000000aa"))


@planted("N8")
def a_step_is_trained_twice(p):
    def again(x):
        states = run_reader.states(PLAN["seed"], PLAN["steps"])
        for y in [y for y in x if "batch" in y][-1]["values"]:
            y.update(step=y["step"] - 1, state=f"{states[y['step'] - 1]:016x}")
    p.journal(again)


@planted("N8")
def a_rank_is_missing_from_a_report(p):
    p.journal(lambda x: batch(x, 2)["values"].pop() and None)


@planted("N8")
def a_rank_thinks_that_there_are_more_ranks(p):
    p.records("rank_1.jsonl", lambda x: edit(x, lambda y: y["what"] == "begun", world=3))


@planted("N8")
def the_result_is_another_state(p):
    p.records("results.jsonl", lambda x: x[-1].update(state="00000000000000aa"))


@planted("N8")
def the_result_names_an_older_checkpoint(p):
    p.records("results.jsonl", lambda x: x[-1].update(checkpoint="checkpoint_000001"))


@planted("N8")
def ranks_are_asked_to_leave_at_different_reports(p):
    p.records("rank_1.jsonl", lambda x: edit(x, lambda y: y["what"] == "heard", index=1))


@planted("N8")
def ranks_leave_after_different_reports(p):
    attempt = left_early(p.case)
    last = max(x["index"] for x in run_reader.read_records(p.expected / "rank_1.jsonl")
               if x["what"] == "acked" and x["attempt"] == attempt)
    p.records("rank_1.jsonl", lambda x: without(x, lambda y: y["what"] == "acked" and y["index"] == last))


# -- N9


@planted("N9")
def others_may_write_the_journal(p):
    (p.run / "journal.jsonl").chmod(0o666)


@planted("N9")
def others_may_read_a_log(p):
    next((p.run / "logs").iterdir()).chmod(0o644)


@planted("N9")
def the_state_is_a_link(p):
    (p.run / "state.json").rename(p.run.parent / "elsewhere")
    (p.run / "state.json").symlink_to(p.run.parent / "elsewhere")


# -- N10


@planted("N10")
def a_failure_has_no_event(p):
    p.journal(lambda x: without(x, lambda y: y.get("event") == "ranks_failed"))


@planted("N10")
def an_event_has_no_reason(p):
    p.journal(lambda x: edit(x, lambda y: y.get("event") == "ranks_failed", fields={"reason": ""}))


@planted("N10")
def an_attempt_is_left_without_a_reason(p):
    p.journal(lambda x: edit(x, lambda y: y.get("event") == "ranks_failed", event="attempt_left", fields={"reason": ""}))


@planted("N10")
def an_event_blames_another_rank(p):
    p.journal(lambda x: edit(x, lambda y: y.get("event") == "ranks_failed",
                             fields={"reason": "Rank 1: killed by signal 9 (SIGKILL)"}))


@planted("N10")
def an_event_names_no_signal(p):
    p.journal(lambda x: edit(x, lambda y: y.get("event") == "ranks_failed", fields={"reason": "Rank 0: lost"}))


@planted("N10")
def a_run_that_had_to_go_ends_as_stopped(p):
    p.records("results.jsonl", lambda x: edit(x, lambda y: y["status"] == "preempted", status="aborted"))


@planted("N10")
def a_run_leaves_although_no_signal_came(p):
    p.case.starts[1]["faults"].clear()


@planted("N10")
def a_run_leaves_and_does_not_name_the_signal(p):
    p.records("results.jsonl", lambda x: edit(x, lambda y: y["status"] == "preempted", error="it had to go"))


@planted("N10")
def leaving_is_counted_as_a_failure(p):
    p.case.starts[1]["rank_failures"] += 1


@planted("N10")
def a_stopped_run_has_no_error(p):
    p.records("results.jsonl", lambda x: edit(x, lambda y: y["status"] == "aborted", error=""))


@planted("N10")
def an_error_of_the_disk_names_no_path(p):
    p.case.starts[0]["faults"].append({"do": "shim", "delivered": True, "errno": 5})
    p.records("results.jsonl", lambda x: x[0].update(status="errored", error="something went wrong"))


@planted("N10")
def the_state_of_a_finished_run_says_running(p):
    p.state(lambda x: x.update(status="running"))


@planted("N10")
def a_run_gives_up_where_it_was_to_restart(p):
    p.records("results.jsonl", lambda x: edit(x, lambda y: y["what"] == "result", status="errored", error="/x"))


@planted("N10")
def the_state_has_rotted(p):
    flip(p.run / "state.json", 30)


@planted("N10")
def the_journal_does_not_say_that_the_run_ended(p):
    p.journal(lambda x: without(x, lambda y: y.get("event") == "run_ended"))


class CheckerTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.root = tempfile.TemporaryDirectory(prefix="chaos-")
        cls.good = make_good_case(Path(cls.root.name) / "good", PLAN, STARTS)

    @classmethod
    def tearDownClass(cls):
        cls.root.cleanup()

    def test_a_good_case_has_no_violation(self):
        self.assertTrue(all(x["delivered"] for start in self.good.starts for x in start["faults"]), self.good.starts)
        self.assertEqual(checker.check(self.good, over=True), [])

    def test_an_unfinished_run_is_not_judged_by_what_only_its_end_shows(self):
        self.assertEqual(checker.check(self.good, over=False), [])

    def test_each_planted_violation_is_named(self):
        self.assertGreaterEqual(len(PLANTED), 40)
        for name, (clause, plant) in PLANTED.items():
            with self.subTest(name), tempfile.TemporaryDirectory(prefix="chaos-") as folder:
                shutil.copytree(self.good.folder, Path(folder) / "case")
                copy = Case.load(Path(folder) / "case")
                plant(Plants(copy))
                found = checker.check(copy, over=True)
                self.assertIn(clause, {x for x, _ in found}, found)

    def test_a_result_is_judged_by_the_folder_of_its_run(self):
        """The folder was renamed just before a driver ended, and another driver finished a run of the same name."""
        with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
            case = self.replaced_case(Path(folder))
            self.assertEqual(checker.check(case, over=True), [])
            plants = Plants(case)
            results = (case.expected / "results.jsonl").read_text()
            moved = case.run.with_name("moved")
            for where, line in ((case.run, -1), (moved, -2)):
                with self.subTest(where.name):
                    prefix = "the renamed folder: " if where == moved else ""
                    newest = max((where / "checkpoints").glob("checkpoint_*"))
                    shutil.move(newest, case.folder / "gone")
                    lost = f"{prefix}checkpoint {newest.name} was promised and is not there, or not whole"
                    self.assertIn(("N1", lost), checker.check(case, over=True))
                    shutil.move(case.folder / "gone", newest)
                    plants.records("results.jsonl", lambda x: x[line].update(checkpoint="checkpoint_000001"))
                    other = f"{prefix}fit() returned checkpoint_000001 as the latest checkpoint, which is {newest.name}"
                    self.assertEqual(checker.check(case, over=True), [("N8", other)])
                    (case.expected / "results.jsonl").write_text(results)
            plants.records("results.jsonl", lambda x: x[:-1])
            self.assertIn("N8", {x for x, _ in checker.check(case, over=True)})

    def test_a_folder_that_another_driver_refused_is_not_the_run(self):
        """A tracker wrote to the path of the folder that was moved, so that the next driver found a foreign file."""
        with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
            shutil.copytree(self.good.folder, Path(folder) / "case")
            case = Case.load(Path(folder) / "case")
            moved = case.run.rename(case.run.with_name("moved"))
            case.run.mkdir(mode=0o700)
            (case.run / "params.json").touch(mode=0o600)
            case.starts[-1]["faults"].append({"family": "folder-replaced", "do": "rename-folder", "delivered": True})
            case.starts[-1] |= {"rc": 3, "run_id": ""}
            self.assertEqual(checker.check(case, over=False), [])
            newest = max((moved / "checkpoints").glob("checkpoint_*"))
            shutil.rmtree(newest)
            lost = f"the renamed folder: checkpoint {newest.name} was promised and is not there, or not whole"
            self.assertIn(("N1", lost), checker.check(case, over=False))

    def test_only_a_tracker_whose_folder_was_renamed_may_leave_its_file_unfinished(self):
        with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
            shutil.copytree(self.good.folder, Path(folder) / "case")
            case = Case.load(Path(folder) / "case")
            (case.run / "metrics.csv.new").touch(mode=0o600)
            left = "the finished run has a temporary file:"
            self.assertEqual(checker.check(case, over=True), [("N7", f"{left} metrics.csv.new")])
            case.starts[-1]["faults"].append({"family": "folder-renamed", "do": "rename-folder", "delivered": True})
            self.assertEqual(checker.check(case, over=True), [])
            (case.run / "state.json.new").touch(mode=0o600)
            self.assertEqual(checker.check(case, over=True), [("N7", f"{left} state.json.new")])

    def replaced_case(self, root: Path) -> Case:
        """The good case, its folder renamed at the end of its last driver, and a second run under the name."""
        starts = [*STARTS[:-1], [*STARTS[-1], {"family": "folder-replaced", "do": "rename-folder", "back": False}]]
        case = make_good_case(root / "case", PLAN, starts)
        case.run.rename(case.run.with_name("moved"))
        case.starts[-1]["faults"][-1]["delivered"] = True
        beside = campaign.Driver(campaign.Setting(TRAINEE, "", root), case, len(STARTS), []).run()
        self.assertEqual(beside["rc"], 0)
        case.starts[-1] |= {x: beside[x] for x in ("run_id", "newest", "rows", "rank_failures", "attempt_after")}
        return case

    def test_failures_that_only_the_journal_has_are_the_next_drivers_to_count(self):
        with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
            shutil.copytree(self.good.folder, Path(folder) / "case")
            case = Case.load(Path(folder) / "case")
            case.starts[1]["rank_failures"] += 1
            counted = "driver 1: the run had to go, which was counted as a failure of its ranks"
            self.assertIn(("N10", counted), checker.check(case, over=True))
            begun = next(x for x in run_reader.read_journal(case.run / "journal.jsonl").events("attempt_begun"))
            failed = begun | {"event": "ranks_failed", "fields": {"reason": "Rank 0: killed by signal 9 (SIGKILL)"}}
            Plants(case).journal(lambda x: x.insert(1 + next(i for i, y in enumerate(x) if y.get("event")
                                                             == "attempt_begun"), failed))
            self.assertNotIn(("N10", counted), checker.check(case, over=True))

    def test_only_a_signal_that_comes_beside_fit_may_end_a_driver(self):
        with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
            case = Case(Path(folder) / "case", PLAN)
            campaign.make_folders(case)
            second = {"target": "driver", "rank": 0, "signal": "INT", "after_us": 1, "delivered": True}
            went = {"family": "preempt-again", "do": "preempt", "signal": "TERM", "second": second}
            for last, ended_by, killed in (("after_report", signal.SIGINT, False), ("after_run", signal.SIGINT, True),
                                           ("after_run", signal.SIGTERM, True), ("after_run", signal.SIGHUP, False)):
                with self.subTest(f"{ended_by.name} after {last}"):
                    driver = campaign.Driver(campaign.Setting("", "", Path(folder)), case, 0, [went])
                    driver.faults[0]["delivered"] = True
                    driver.process = types.SimpleNamespace(pid=7, returncode=-ended_by)
                    (case.expected / "callbacks.jsonl").write_text(json.dumps({"what": last, "pid": 7}) + "\n")
                    driver.finish_folder()
                    self.assertEqual(driver.killed, killed)

    def test_every_clause_has_planted_violations(self):
        self.assertEqual({x for x, _ in PLANTED.values()}, set(checker.CLAUSES))


class ElasticCheckerTest(unittest.TestCase):
    """A run of two ranks that divide the samples of each step; a plan says how many ranks it might have had."""

    @classmethod
    def setUpClass(cls):
        cls.root = tempfile.TemporaryDirectory(prefix="chaos-")
        starts = [[STARTS[2][0] | {"family": "host-rank-kill"}]]
        cls.good = make_good_case(Path(cls.root.name) / "good", PLAN | {"samples": 12}, starts)
        cls.good.plan |= {"fewest": 1, "workers": 3, "max_failures": 1}
        cls.good.save()

    @classmethod
    def tearDownClass(cls):
        cls.root.cleanup()

    def violations(self, plant):
        with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
            shutil.copytree(self.good.folder, Path(folder) / "case")
            case = Case.load(Path(folder) / "case")
            plant(Plants(case))
            return checker.check(case, over=True)

    def test_a_good_case_has_no_violation(self):
        self.assertTrue(self.good.starts[0]["faults"][0]["delivered"])
        self.assertEqual(checker.check(self.good, over=True), [])

    def test_a_world_is_not_smaller_or_larger_than_the_run_allows(self):
        for limits, words in (({"fewest": 3, "workers": 4}, "3 to 4"), ({"fewest": 1, "workers": 1}, "1 to 1")):
            with self.subTest(words):
                found = self.violations(lambda p: p.case.plan.update(limits))
                self.assertIn(("N8", f"attempt 0 has 2 ranks, not {words}"), found)

    def test_an_attempt_has_left_if_its_event_says_why(self):
        def leave(p):
            p.case.starts[0]["faults"].clear()
            left = {"event": "attempt_left", "fields": {"reason": "more hosts are here"}}
            p.journal(lambda x: edit(x, lambda y: y.get("event") == "ranks_failed", **left))
        self.assertEqual(self.violations(leave), [])

    def test_a_change_of_size_is_not_charged(self):
        found = self.violations(lambda p: p.case.starts[0]["faults"][0].update(family="host-cut"))
        self.assertEqual([x for x, _ in found], ["N10"])
        self.assertIn("0 times a rank failed by itself, and 1 failures count: ", found[0][1])

    def test_a_failed_start_counts_until_ranks_have_reported(self):
        def plant(attempt):
            def change(lines):
                begun = next(i for i, x in enumerate(lines) if x.get("event") == "attempt_begun" and x["attempt"] == attempt)
                lines.insert(begun + 1, lines[begun] | {"event": "ranks_failed", "fields": {"reason": "Rank 1: lost",
                                                                                            "started": False}})
            return lambda p: p.journal(change)
        self.assertEqual(self.violations(plant(0)), [])
        self.assertEqual([x for x, _ in self.violations(plant(1))], ["N10"])

    def test_a_run_has_the_budget_that_it_needs(self):
        given_up = {"status": "errored", "error": "/x"}
        found = self.violations(lambda p: p.records("results.jsonl", lambda x: x[-1].update(given_up)))
        self.assertIn("N10", {x for x, _ in found})

    def test_each_sample_of_a_step_is_trained_once(self):
        for samples in ("0 2 4 6 8", "0 2 4 6 8 10 1"):
            with self.subTest(samples):
                found = self.violations(lambda p: p.journal(lambda x: batch(x, 2)["values"][0].update(samples=samples)))
                self.assertEqual([x for x, _ in found], ["N8"])


@unittest.skipUnless(TORCH_TRAINEE, "there is no training with LibTorch")
class TorchCheckerTest(unittest.TestCase):
    def test_weights_are_those_of_a_run_that_nothing_disturbed(self):
        with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
            good = make_good_case(Path(folder) / "good", PLAN | {"learner": "torch"}, STARTS)
            self.assertEqual(checker.check(good, over=True), [])
            plants = Plants(good)
            steps = (good.expected / "undisturbed.jsonl").read_bytes()
            weights = (plants.newest() / "weights.bin").read_bytes()
            plants.replace_saved("weights.bin", weights[:-1] + bytes([weights[-1] ^ 1]))
            self.assertEqual({x for x, _ in checker.check(good, over=True)}, {"N2"})
            plants.replace_saved("weights.bin", weights)
            plants.records("undisturbed.jsonl", lambda x: edit(x, lambda y: y["what"] == "acked" and y["step"] == 7,
                                                               state="0123456789abcdef"))
            self.assertIn("N8", {x for x, _ in checker.check(good, over=True)})
            (good.expected / "undisturbed.jsonl").write_bytes(steps)
            self.assertEqual(checker.check(good, over=True), [])


class SourcesTest(unittest.TestCase):
    def test_checksums_are_those_of_xxhash(self):
        data = bytes(131 * i + 7 & 255 for i in range(max(VECTORS)))
        for size, sum_ in VECTORS.items():
            self.assertEqual(checksum_text(data[:size]), sum_, size)

    def test_the_campaign_finds_the_failpoints_of_the_sources(self):
        every, failing = faults.points()
        self.assertLessEqual({"commit.renamed", "commit.state_saved", "journal.append", "replace.written"}, set(every))
        self.assertLessEqual({"journal.append", "storage.sync_file"}, set(failing))
        self.assertNotIn("commit.renamed", failing)
        self.assertLessEqual({"attempt.state_saved", "finish.state_saved", "journal.appended", "rotten.renamed",
                              "told.written"}, set(every) - set(failing))
        self.assertLessEqual(set(faults.RANK_POINTS), set(every))

    def test_a_case_follows_from_its_seed(self):
        families = list(faults.FAMILIES)
        for number in range(50):
            self.assertEqual(faults.make_case(3, number, families), faults.make_case(3, number, families))
            for start in faults.make_case(3, number, families)[1]:
                for x in start:
                    self.assertTrue(faults.describe(x).startswith(x["family"]))

    def test_clean_families_exist(self):
        self.assertLessEqual(set(campaign.CLEAN), set(faults.FAMILIES))


class HostsFaultsTest(unittest.TestCase):
    def cases(self, **shares):
        return [hosts_faults.make_case(1, number, list(hosts_faults.FAMILIES), **shares) for number in range(200)]

    def test_a_case_follows_from_its_seed(self):
        self.assertEqual(self.cases(), self.cases())
        for _, starts in self.cases():
            for x in (x for start in starts for x in start):
                self.assertTrue(faults.describe(x).startswith(x["family"]))

    def test_a_share_of_the_cases_trains_with_libtorch(self):
        without, plans = ([plan for plan, _ in self.cases(torch_share=share)] for share in (0, 0.25))
        self.assertEqual({x["learner"] for x in without}, {"counting"})
        learners = [x for x in plans if x["learner"] == "torch"]
        self.assertTrue(30 < len(learners) < 70, len(learners))
        self.assertEqual({(x["seed"], x["steps"], x["fewest"], x["workers"]) for x in learners}, {(1, 12, 3, 3)})
        self.assertEqual([x for x, y in zip(plans, without) if x["learner"] == "counting"],
                         [y for x, y in zip(plans, without) if x["learner"] == "counting"])

    def test_a_share_of_the_drivers_launches_its_agents(self):
        without, some = self.cases(ssh_share=0, elastic_share=0), self.cases(ssh_share=0.5, elastic_share=0)
        self.assertEqual({plan["agents"] for plan, _ in without}, {hosts_faults.BY_HAND})
        launched = [x for x in some if x[0]["agents"] == hosts_faults.OVER_SSH]
        self.assertTrue(70 < len(launched) < 130, len(launched))
        self.assertEqual([(plan | {"agents": "by hand"}, starts) for plan, starts in some], without)

    def test_a_share_of_the_runs_is_elastic(self):
        self.assertEqual({(plan["fewest"], plan["workers"]) for plan, _ in self.cases(elastic_share=0)}, {(3, 3)})
        elastic = [x for x in self.cases(elastic_share=0.5) if x[0]["fewest"] < x[0]["workers"]]
        self.assertTrue(70 < len(elastic) < 130, len(elastic))
        for plan, starts in elastic:
            with self.subTest(hosts_faults.describe(plan)):
                self.check_elastic(plan, [x for start in starts for x in start])
        self.assertEqual({plan["guests"] for plan, _ in elastic}, {0, 1})

    def check_elastic(self, plan, befalls):
        by_hand = plan["agents"] == hosts_faults.BY_HAND
        hosts = len(hosts_faults.HOSTS) + plan["guests"]
        # Each host whose agent comes by itself has a rank, and no agent comes by itself where one is launched.
        self.assertGreaterEqual(plan["workers"], len(hosts_faults.HOSTS) - (not by_hand))
        self.assertFalse(by_hand and plan["guests"])
        if each := plan.get("per_host"):
            self.assertEqual((plan["fewest"], plan["workers"]), (each * plan["fewest_hosts"], each * hosts))
        self.assertEqual(plan["max_failures"], sum(x["family"] in faults.CHARGED for x in befalls))
        self.assertLess(max(x["host"] for x in befalls), hosts)

    def test_faults_of_hosts_are_known_to_the_checker(self):
        self.assertLessEqual(faults.CHARGED, set(hosts_faults.FAMILIES))
        self.assertEqual(set(hosts_faults.FAMILIES) - faults.OUTLIVED, {"driver-host-crash"})


class HostsLeftoversTest(unittest.TestCase):
    """The driver and an agent of a case on hosts have ended or are about to; a process stands for a rank."""

    def leftovers(self, seconds, limit):
        rank = subprocess.Popen(["sleep", str(seconds)])
        self.addCleanup(rank.wait)
        self.addCleanup(rank.kill)
        with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
            case = Case(Path(folder), PLAN | {"agents": hosts_faults.BY_HAND})
            campaign.make_folders(case)
            driver = object.__new__(hosts_campaign.HostDriver)
            campaign.Driver.__init__(driver, campaign.Setting("", "", Path(folder), gone_s=limit), case, 1, [])
            driver.hosts, driver.agents, driver.old_agents, driver.gave_up = ["h1"], {}, [], []
            driver.process = types.SimpleNamespace(pid=7, returncode=0)
            driver.programs = lambda: {1: 0, 2: 1} | ({rank.pid: 2} if rank.poll() is None else {})
            with unittest.mock.patch.object(hosts_campaign, "HOST_TIMEOUT_S", 0):
                return driver.leftovers(), driver.gone_s, str(rank.pid)

    def test_a_rank_that_outlives_the_limit_is_left(self):
        left, gone_s, rank = self.leftovers(3600, 0.1)
        self.assertEqual(left["ranks"], [rank])
        self.assertGreaterEqual(gone_s, 0.1)

    def test_the_time_until_no_rank_is_left_is_recorded(self):
        left, gone_s, _ = self.leftovers(0, 3600)
        self.assertEqual(left["ranks"], [])
        self.assertLess(gone_s, 3600)


if __name__ == "__main__":
    unittest.main()
