"""Asks the command line and `troupe serve` about real sweeps: live, finished, killed, damaged.

  sweeps_test.py TROUPE GATED_RUN [unittest arguments]
"""
import json
import subprocess
import unittest
from pathlib import Path

import command_line_test as base  # takes the programs from the command line
import serve_test

TROUPE, GATED_RUN = base.TROUPE, base.GATED_RUN


class SweepTest(serve_test.ServeTest):
    """A sweep of three trials: the first finishes with loss 0.25, the second fails, the third is held after two reports."""

    SEARCH = ("--sweep", 3, "--fails-at", 1, "--fails-trial", 1, "--hold-trial", 2)

    def hold_search(self):
        driver, gate = self.hold("search", *self.SEARCH)
        return driver, gate

    def finish(self, driver, gate):
        gate.close()
        driver.communicate(timeout=base.LIMIT_S)
        self.assertEqual(driver.returncode, 0)

    def found(self, code=0):
        (sweep,) = base.troupe_json("ls", self.storage, code=code)["sweeps"]
        return sweep


class ListTest(SweepTest):
    def test_a_sweep_is_one_row_with_its_trials_and_the_best_of_them(self):
        self.runs.make("digits")
        driver, gate = self.hold_search()
        x = self.found()
        self.assertEqual([x[k] for k in ("name", "state", "metric", "order", "planned", "reason")],
                         ["search", "running", "loss", "min", 3, None])
        self.assertEqual(x["trials"], {"running": 1, "finished": 1, "failed": 1, "stopped": 0})
        self.assertEqual(x["best"], {"trial": "trial-0000", "score": 0.25, "params": {"trial": 0}})
        self.assertEqual(x["driver"]["pid"], driver.pid)
        listed = base.troupe_json("ls", self.storage)
        self.assertEqual([y["name"] for y in listed["runs"]], ["digits"])
        self.assertEqual(listed["strange"], [])
        (row,) = (line for line in base.troupe("ls", self.storage)[0].splitlines() if line.startswith("search"))
        for part in ("running", "1 of 3 finished, 1 failed, 1 running", "loss=0.25 (trial-0000)", x["id"][:8]):
            self.assertIn(part, row)
        self.assertEqual([y["name"] for y in base.troupe_json("ls", self.storage / "search")["runs"]],
                         ["search/trial-0000", "search/trial-0001", "search/trial-0002"])
        self.assertEqual(base.troupe("ls", self.storage, "--names")[0].split(), ["search", "digits"])
        self.finish(driver, gate)
        x = self.found()
        self.assertEqual([x["state"], x["trials"]["finished"], x["trials"]["running"], x["driver"]], ["finished", 2, 0, None])

    def test_the_trials_of_a_sweep_are_listed_by_its_name_its_id_and_its_folder(self):
        path = self.runs.make("search", "--sweep", 2)
        for name in ("search", self.found()["id"][:6], path):
            self.assertEqual([x["name"] for x in base.troupe_json("ls", name, "-s", self.storage)["runs"]],
                             ["search/trial-0000", "search/trial-0001"])
        environment = {"TROUPE_STORAGE": str(self.storage)}
        self.assertEqual(base.troupe("ls", "search", "--names", environment=environment)[0].split(), ["trial-0000", "trial-0001"])
        (self.storage.parent / "here" / "search").mkdir(parents=True)
        self.assertIn("no runs in", base.troupe("ls", "search", environment=environment, cwd=self.storage.parent / "here")[0])
        self.assertEqual(base.troupe("ls", "serch", environment=environment, code=2)[1],
                         f"troupe ls: there is no folder {Path.cwd()}/serch, and no sweep serch in {self.storage}; did you mean search?\n")

    def test_the_end_of_a_sweep_is_shown_with_its_reason(self):
        self.runs.make("search", "--sweep", 1, "--fails-at", 1, code=3)
        x = self.found()
        self.assertEqual([x["state"], x["trials"]["failed"], x["best"]], ["errored", 1, None])
        self.assertIn("all trials of the sweep failed, 1 of 1; the first, trial-0000: ", x["reason"])
        self.assertIn("banana", x["reason"])
        self.assertIn("banana", base.troupe("show", "search", "-s", self.storage)[0])

    def test_a_killed_sweep_is_lost_until_it_is_started_again(self):
        driver, gate = self.hold_search()
        driver.kill()
        driver.wait()
        gate.close()
        x = self.found()
        self.assertEqual([x["state"], x["trials"]], ["lost", {"running": 0, "finished": 1, "failed": 1, "stopped": 1}])
        self.runs.make("search", "--sweep", 3)
        self.assertEqual(self.found()["state"], "finished")

    def test_a_damaged_sweep_is_named_and_the_others_are_shown(self):
        self.runs.make("digits")
        journal = self.runs.make("search", "--sweep", 1) / "sweep.jsonl"
        journal.write_bytes(journal.read_bytes().replace(b"trial_begun", b"trial_began", 1))
        x = self.found(code=1)
        self.assertEqual(x["state"], "unreadable")
        self.assertIn("sweep.jsonl, line 2", x["problems"][0]["message"])
        output, errors = base.troupe("ls", self.storage, code=1)
        self.assertIn("digits", output)
        self.assertIn("search: ", errors)

    def test_a_damaged_line_from_which_nothing_follows_is_named(self):
        journal = self.runs.make("search", "--sweep", 2) / "sweep.jsonl"
        whole = journal.read_bytes()
        journal.write_bytes(whole + bytes(20) + b"\n")
        damage = f"sweep.jsonl, line {len(whole.splitlines()) + 1} is damaged"
        for _ in range(2):
            x = self.found()
            self.assertEqual([x["state"], x["trials"]["finished"], len(x["problems"])], ["finished", 2, 1])
            self.assertIn(damage, x["problems"][0]["message"])
            self.assertIn(damage, base.troupe("ls", self.storage)[1])
            self.assertIn(damage, base.troupe("verify", "search", "-s", self.storage, code=1)[1])
            self.runs.make("search", "--sweep", 2)  # It continues.


class ShowTest(SweepTest):
    def test_a_sweep_is_shown_with_its_space_and_its_trials(self):
        driver, gate = self.hold_search()
        x = base.troupe_json("show", "search", "-s", self.storage)
        self.assertEqual(x["space"], [{"name": "trial", "first": 0, "last": 2}])
        self.assertEqual(x["searcher"], "grid, steps 3")
        found = [[y[k] for k in ("name", "state", "params", "score", "reports")] for y in x["trial_list"]]
        self.assertEqual(found, [["trial-0000", "finished", {"trial": 0}, 0.25, 4], ["trial-0001", "errored", {"trial": 1}, 2, 1],
                                 ["trial-0002", "running", {"trial": 2}, None, 2]])
        self.assertIn("banana", x["trial_list"][1]["reason"])
        self.assertEqual(x["trial_list"][2]["metrics"]["loss"], 1.5)
        text = base.troupe("show", self.storage / "search")[0]
        for part in ("loss, lower is better", "integers 0 to 2", "1 of 3 finished, 1 failed, 1 running", f"running (pid {driver.pid} on "):
            self.assertIn(part, text)
        self.finish(driver, gate)

    def test_a_trial_is_named_with_its_sweep(self):
        self.runs.make("search", "--sweep", 2)
        x = base.troupe_json("show", "search/trial-0001", "-s", self.storage)
        self.assertEqual([x["name"], x["metrics"]["loss"]], ["search/trial-0001", 0.5])
        errors = base.troupe("tail", "search", "-s", self.storage, code=2)[1]
        self.assertIn("search is a sweep, and not a run: troupe show lists its trials, which are named as in search/trial-0000", errors)
        self.assertIn("did you mean", base.troupe("show", "serch", "-s", self.storage, code=2)[1])

    def test_a_trial_that_does_not_exist_is_looked_for_in_the_storage_folder(self):
        self.runs.make("search", "--sweep", 1)
        for name, sentence in (("serch/trial-0000", f"there is no run or sweep serch in {self.storage}; did you mean search?"),
                               ("search/trial-0001", f"there is no run search/trial-0001 in {self.storage}; "
                                                     "did you mean search/trial-0000?"),
                               ("./serch/trial-0000", f"there is no folder {Path.cwd()}/serch/trial-0000")):
            with self.subTest(name):
                for verb in ("show", "tail", "verify", "stop"):
                    self.assertEqual(base.troupe(verb, name, "-s", self.storage, code=2)[1], f"troupe {verb}: {sentence}\n")

    def test_an_id_of_a_run_and_a_sweep_is_refused_and_names_both(self):
        self.runs.make("search", "--sweep", 1)
        run = self.runs.make("digits")
        number = self.found()["id"]
        self.assertEqual(base.troupe_json("show", number[:6], "-s", self.storage)["name"], "search")
        self.assertIn("search is a sweep, and not a run", base.troupe("tail", number[:6], "-s", self.storage, code=2)[1])
        described = json.loads((run / "run.json").read_text())
        (run / "run.json").write_bytes(base.signed({**described, "id": number}))
        for verb in ("show", "stop", "rm", "tail", "verify"):
            errors = base.troupe(verb, number[:6], "-s", self.storage, code=2)[1]
            self.assertIn(f"the id {number[:6]} is that of the run digits and the sweep search: give a name, or more digits", errors)
        self.assertEqual(base.troupe_json("show", "search", "-s", self.storage)["id"], number)
        self.assertEqual(base.troupe_json("show", "digits", "-s", self.storage)["id"], number)

    def test_a_run_is_refused_the_name_of_a_sweep_and_the_reverse(self):
        self.runs.make("search", "--sweep", 1)
        self.runs.make("digits")
        for name, options, sentence in (("search", (), "search is the folder of a sweep: choose another run.name"),
                                        ("digits", ("--sweep", 1), "digits is the folder of a run: give the sweep another name")):
            driver = self.runs.start(name, *options)
            errors = driver.communicate(timeout=base.LIMIT_S)[1]
            self.assertEqual(driver.returncode, 3)
            self.assertIn(sentence, errors)
        self.assertEqual(self.found()["state"], "finished")


class VerifySweepTest(SweepTest):
    def test_a_sweep_is_verified_with_its_trials(self):
        path = self.runs.make("search", "--sweep", 2)
        for name in ("search", path):
            found = base.troupe_json("verify", name, "-s", self.storage)["runs"]
            self.assertEqual([[x["name"], x["whole"]] for x in found], [["search/trial-0000", True], ["search/trial-0001", True]])
        (path / "trial-0001/checkpoints/checkpoint_000001/manifest.json").write_bytes(b"{}")
        text = base.troupe("verify", "-s", self.storage, code=1)[0]
        self.assertIn("search/trial-0000: whole", text)
        self.assertIn("search/trial-0001: damaged", text)
        journal = path / "sweep.jsonl"
        journal.write_bytes(journal.read_bytes().replace(b"trial_begun", b"trial_began", 1))
        for name in ("search", path):
            self.assertIn("sweep.jsonl, line 2", base.troupe("verify", name, "-s", self.storage, code=1)[1])


class TailSweepTest(SweepTest):
    def test_a_trial_is_followed_to_its_own_end(self):
        driver, gate = self.hold("search", "--sweep", 2, "--hold-trial", -1)
        tail = subprocess.Popen([TROUPE, "tail", "search/trial-0000", "-f", "-s", self.storage], stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2):
            tail.stdout.readline()
        gate.close()
        output, errors = tail.communicate(timeout=base.LIMIT_S)
        self.assertEqual([tail.returncode, len(output.splitlines()), errors], [0, 2, "troupe: search/trial-0000 is finished\n"])
        self.assertIsNone(driver.poll())
        self.finish(driver, open(gate.name, "wb"))  # the next trial's


class StopSweepTest(SweepTest):
    def ended(self, *options):
        """The sweep, which was asked to end while its first trial was under way."""
        driver, gate = self.hold("search", "--sweep", 3, "--hold-trial", 0, "--steps", 1_000_000, "--every", 0)
        stop = subprocess.Popen([TROUPE, "stop", "search", "-s", self.storage, "--wait", *options],
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        gate.close()
        output, errors = stop.communicate(timeout=base.LIMIT_S)
        self.assertEqual([stop.returncode, errors], [0, ""])
        error = driver.communicate(timeout=base.LIMIT_S)[1]
        self.assertEqual(driver.returncode, 3)
        self.assertIn("the sweep was stopped by troupe stop; start it again to resume it", error)
        self.assertFalse((self.storage / "search/end_request").exists())
        x = self.found()
        self.assertEqual(output, f"search is {x['state']}\n")
        self.assertEqual(x["trials"], {"running": 0, "finished": 0, "failed": 0, "stopped": 1})
        return x

    def test_a_sweep_is_stopped_and_resumed(self):
        self.assertEqual(self.ended()["state"], "aborted")
        self.runs.make("search", "--sweep", 3)
        self.assertEqual(self.found()["trials"], {"running": 0, "finished": 3, "failed": 0, "stopped": 0})

    def test_a_sweep_is_preempted(self):
        self.assertEqual(self.ended("--preempt")["state"], "preempted")

    def test_a_sweep_is_not_finished_but_its_trials_are(self):
        driver, gate = self.hold("search", "--sweep", 1, "--hold-trial", 0, "--steps", 1_000_000, "--every", 0)
        complaint = base.troupe("stop", "search", "-s", self.storage, "--finish", code=2)[1]
        self.assertIn("finish one of these", complaint)
        base.troupe("stop", "search/trial-0000", "-s", self.storage, "--finish")
        self.finish(driver, gate)
        self.assertEqual([self.found()["state"], self.found()["trials"]["finished"]], ["finished", 1])

    def test_a_trial_that_is_stopped_says_nothing_of_a_next_start(self):
        driver, gate = self.hold("search", "--sweep", 1, "--hold-trial", 0, "--steps", 1_000_000, "--every", 0)
        base.troupe("stop", "search/trial-0000", "-s", self.storage)
        gate.close()
        driver.communicate(timeout=base.LIMIT_S)
        (trial,) = base.troupe_json("show", "search", "-s", self.storage)["trial_list"]
        self.assertEqual([trial["state"], trial["reason"]], ["aborted", "the run was asked to end by `troupe stop`"])

    def test_a_sweep_without_a_driver_is_refused(self):
        self.runs.make("search", "--sweep", 1)
        self.assertIn("search has no driver to ask: it is finished", base.troupe("stop", "search", "-s", self.storage, code=1)[1])


class RmSweepTest(SweepTest):
    def test_a_sweep_goes_with_its_trials(self):
        path = self.runs.make("search", "--sweep", 3)
        self.assertTrue((path / "compare.html").exists())
        self.runs.make("digits")
        self.assertEqual(base.troupe("rm", self.found()["id"][:8], "--yes", "-s", self.storage)[1], "")
        self.assertFalse(path.exists())
        self.assertEqual(list(self.listed()), ["digits"])

    def test_a_live_sweep_stays(self):
        driver, gate = self.hold_search()
        self.assertIn(f"pid {driver.pid}", base.troupe("rm", "search", "--yes", "-s", self.storage, code=1)[1])
        self.finish(driver, gate)
        self.assertEqual(self.found()["trials"]["finished"], 2)
        base.troupe("verify", self.storage)

    def test_a_killed_sweep_goes(self):
        driver, gate = self.hold_search()
        driver.kill()
        driver.wait()
        gate.close()
        base.troupe("rm", "search", "--yes", "-s", self.storage)
        self.assertFalse((self.storage / "search").exists())

    def test_files_of_the_user_stay_and_leave_the_name_free(self):
        path = self.runs.make("search", "--sweep", 2)
        users = ["notes.txt", "trial-0001/plot.png", "trial-0007/mine", "mlruns/meta.yaml"]
        for name in users:
            (path / name).parent.mkdir(exist_ok=True)
            (path / name).write_text("mine")
        left = base.troupe_json("rm", "search", "--yes", "-s", self.storage, code=1)["left"]
        self.assertEqual(left, ["trial-0001/plot.png", "mlruns", "notes.txt", "trial-0007"])
        self.assertFalse((path / "sweep.json").exists())
        self.runs.make("search", "--sweep", 2)
        self.assertEqual(self.found()["trials"]["finished"], 2)
        for name in users:
            self.assertEqual((path / name).read_text(), "mine")

    def test_a_sweep_with_a_protected_trial_stays_whole(self):
        path = self.runs.make("search", "--sweep", 2)
        as_owner = self.give_away(path)
        self.storage.chmod(0o777)
        trial = path / "trial-0001"
        trial.chmod(0o555)
        _, complaints = base.troupe("rm", path, "--yes", code=1, **as_owner)
        trial.chmod(0o755)
        self.assertIn(f"cannot remove {trial}: Permission denied", complaints)
        for name in ("trial-0000", "trial-0001"):
            base.troupe("verify", f"search/{name}", "-s", self.storage)

    def test_a_damaged_sweep_goes_but_not_one_of_another_program(self):
        path = self.runs.make("search", "--sweep", 1)
        (path / "sweep.jsonl").write_text("{}\n")
        other = self.storage / "other"
        other.mkdir()
        (other / "sweep.json").write_text('{"of": "another program"}\n')
        base.troupe("rm", "other", "--yes", "-s", self.storage, code=1)
        self.assertTrue((other / "sweep.json").exists())
        base.troupe("rm", "search", "--yes", "-s", self.storage)
        self.assertFalse(path.exists())

    def test_a_run_comes_before_a_sweep_of_that_name_elsewhere(self):
        self.runs.make("digits")
        elsewhere = self.storage / "search"
        self.runs.make("search", "--sweep", 1)
        elsewhere.rename(self.storage.parent / "digits")
        base.troupe("rm", "digits", "--yes", "-s", self.storage, cwd=self.storage.parent)
        self.assertFalse((self.storage / "digits").exists())
        self.assertTrue((self.storage.parent / "digits/sweep.json").exists())


class ServedSweepTest(SweepTest):
    def test_a_sweep_and_its_trials_are_followed(self):
        driver, gate = self.hold_search()
        server = self.serve()
        with server.watch() as events, server.watch("search") as of_sweep, server.watch("search/trial-0002") as of_trial:
            serve_test.until(events, lambda kind, x: kind == "runs" and x["runs"] == [] and x["sweeps"][0]["state"] == "running")
            first = serve_test.until(of_sweep, lambda kind, x: kind == "sweep")
            self.assertEqual([[y["status"], y["reports"]] for y in first["sweep"]["trials"]], [["finished", 4], ["errored", 1], ["running", 2]])
            serve_test.until(of_trial, lambda kind, x: kind == "run" and x["run"]["reports"] == 2 and x["can_stop"])
            gate.close()
            serve_test.until(of_trial, lambda _, x: x["state"] == "finished")
            last = serve_test.until(of_sweep, lambda _, x: x["sweep"]["status"] == "finished")
            self.assertEqual(last["sweep"]["trials"][2]["score"], 0.75)
            serve_test.until(events, lambda _, x: x["sweeps"][0]["trials"]["finished"] == 2)
        driver.communicate(timeout=base.LIMIT_S)

    def test_a_sweep_that_begins_is_seen(self):
        self.storage.mkdir()
        with self.serve().watch() as events:
            next(events)
            driver, gate = self.hold_search()
            serve_test.until(events, lambda _, x: x["sweeps"] and x["sweeps"][0]["trials"]["running"] == 1)
            driver.kill()
            driver.wait()
            gate.close()
            serve_test.until(events, lambda _, x: x["sweeps"][0]["state"] == "lost")

    def test_a_sweep_is_stopped_with_the_token_only(self):
        driver, gate = self.hold("search", "--sweep", 3, "--hold-trial", 0, "--steps", 1_000_000, "--every", 0)
        server = self.serve()
        with server.watch("search") as events:
            serve_test.until(events, lambda kind, x: kind == "sweep" and x["can_stop"])
            self.assertEqual(server.stop("search", Authorization="Bearer " + "0" * 32)[0], 403)
            self.assertFalse((self.storage / "search/end_request").exists())
            status, said = server.stop("search")
            self.assertEqual(status, 200)
            self.assertIn(f"pid {driver.pid} ", said)
            gate.close()
            serve_test.until(events, lambda _, x: x["sweep"]["status"] == "aborted" and not x["can_stop"])
        driver.communicate(timeout=base.LIMIT_S)
        status, why = server.stop("search")
        self.assertEqual(status, 409)
        self.assertIn("it is aborted", why)

    def test_a_button_stops_a_sweep(self):
        driver, gate = self.hold("search", "--sweep", 3, "--hold-trial", 0, "--steps", 1_000_000, "--every", 0)
        browser = self.browser()
        server = self.serve()
        browser.call("Page.navigate", url=server.url.replace("#", "#run=search&"))
        browser.wait("document.querySelector('.title .stop button')")
        browser.run("document.querySelector('.stop button').click()")  # which asks
        browser.run("document.querySelector('.stop button').click()")
        gate.close()
        browser.wait("document.querySelector('.title .status').textContent === 'aborted' && !document.querySelector('.stop')")
        driver.communicate(timeout=base.LIMIT_S)
        self.assertEqual(browser.complaints, [])

    def test_a_sweep_is_served_as_a_folder_of_runs_by_its_path_its_name_and_its_id(self):
        path = self.runs.make("search", "--sweep", 1)
        for name in (path, "search", self.found()["id"][:6]):
            with self.subTest(name):
                server = serve_test.Server(name, "-s", self.storage)
                self.addCleanup(server.close)
                (row,) = server.whole("")["runs"]
                self.assertEqual(row["name"], "trial-0000")
                self.assertEqual(server.whole(row["name"])["state"], "finished")
        base.troupe("serve", "serch", "-s", self.storage, code=2)

    def test_only_trials_of_a_sweep_are_asked_for_by_path(self):
        self.runs.make("search", "--sweep", 1)
        self.runs.make("digits")
        server = self.serve()
        for name in ("search/../digits", "digits/checkpoints", "search/trial-0000/logs", "search/trial-9999", "../storage/digits"):
            with server.watch(name) as events:
                self.assertEqual(next(events)[0], "problem", name)

    def test_a_browser_shows_a_sweep_its_trials_and_the_way_back(self):
        driver, gate = self.hold_search()
        self.runs.make("digits")
        browser = self.browser()
        browser.call("Page.navigate", url=self.serve().url)
        browser.wait("document.querySelectorAll('main table').length === 2")
        row = browser.run("[...document.querySelectorAll('main tbody tr')].find(x => x.textContent.includes('search')).textContent")
        for part in ("running", "1 of 3 finished, 1 failed, 1 running", "loss 0.25 (trial-0000)"):
            self.assertIn(part, row)
        browser.run("[...document.querySelectorAll('main a')].find(x => x.textContent === 'search').click()")
        browser.wait("document.querySelectorAll('.parallel .trial').length === 3")
        browser.run("document.querySelector('button[data-column=reports]').click()")
        self.assertEqual(browser.run("[...document.querySelectorAll('#trials tbody th')].map(x => x.textContent).join()"),
                         "trial-0001,trial-0002,trial-0000")
        browser.run("[...document.querySelectorAll('#trials a')].find(x => x.textContent === 'trial-0002').click()")
        browser.wait("document.querySelector('.stop') && document.querySelector('.title h1').textContent === 'search/trial-0002'")
        browser.run("[...document.querySelectorAll('nav[aria-label=Pages] a')].find(x => x.textContent === 'search').click()")
        browser.wait("document.querySelectorAll('.parallel .trial').length === 3")
        browser.run("document.querySelector('button[data-column=reports]').click()")
        self.finish(driver, gate)
        browser.wait("document.querySelector('.title .status').textContent === 'finished'")
        self.assertEqual(browser.run("document.querySelector('#trials thead [aria-sort]').textContent"), "Reports")
        self.assertEqual(browser.complaints, [])


class CompareTest(SweepTest):
    def test_a_sweep_has_a_page_of_all_trials(self):
        folder = self.runs.make("search", *self.SEARCH[:-2])
        own = (folder / "compare.html").read_text()
        self.assertIn("finished: 3 trials, 1 failed; best loss 0.25: trial-0000 (trial=0)", own)
        self.assertIn('"page":"trial-0002/report.html"', own)
        page = Path(self.runs.folder.name) / "page.html"
        x = base.troupe_json("compare", "search", "-s", self.storage, "--output", page)
        self.assertEqual([x["page"], len(x["trial_list"])], [str(page), 3])
        self.assertNotIn("/report.html", page.read_text())  # which does not lie beside it
        self.runs.make("digits")
        self.assertIn("is one run: name another to compare it with, or a sweep",
                      base.troupe("compare", "digits", "-s", self.storage, code=2)[1])


if __name__ == "__main__":
    unittest.main(verbosity=2)
