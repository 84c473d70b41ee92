"""Builds each folder of examples/ by itself, from a copy, against Troupe as it is installed, and runs it.

  examples_alone_test.py BUILD COMPILER [unittest arguments]

BUILD is the build tree that is installed. Folders whose components it lacks are left out.
"""
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

BUILD = Path(sys.argv.pop(1)).resolve()
COMPILER = sys.argv.pop(1)
EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
DATA = Path("/usr/share/datasets/fashion-mnist")
LIMIT_S = 600  # of one step; none comes near it

# What each folder runs: program, arguments, exit code. Beside that, each program with --help; `service`, which does not
# end by itself, has a function below.
RUNS = {
    "actor_learner": [("actor_learner", "--goal 20", 0)],
    "deciding_callback": [("deciding_callback", "--target 0.1", 0)],
    "epoch_loop_tracking": [("epoch_loop_tracking", "--epochs 1 --limit 640", 0)],
    "fashion_mnist": [("fashion_mnist", "--limit 128 --batch-size 32", 0), ("ray_train_port", "--limit 256 --epochs 1", 0)],
    "language_model": [("language_model", "--text gpt.cpp --limit 64 --epochs 1 --model.layers 1 --model.width 32 "
                        "--model.context 32", 0)],
    "lightning_style": [("lightning_style", "--epochs 1 --limit 512", 0)],
    "linear_regression": [("linear_regression", "--epochs 5", 0)],
    "minimal": [("minimal", "--steps 2", 0)],
    "own_dataset": [("own_dataset", "--epochs 1", 0)],
    "own_sink": [("own_sink", "", 0)],
    "reading_results": [("reading_results", "", 0)],
    "surviving_kill": [("surviving_kill", "", -9), ("surviving_kill", "", 0)],
    "sweep": [("sweep", "--trials 2", 0)],
    "torchmetrics": [("torchmetrics", "--epochs 1", 0)],
    "tracking": [("tracking", "--epochs 1 --limit 640", 0)],
}
NEEDS_IMAGES = {"epoch_loop_tracking", "fashion_mnist", "lightning_style", "tracking"}


class ExamplesAloneTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="troupe_examples_")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        # A user has only what is installed, and its CMAKE_PREFIX_PATH.
        cls.environment = {k: v for k, v in os.environ.items()
                           if not k.startswith(("TROUPE_", "CMAKE_")) and k not in ("CAF_ROOT", "LIBTORCH_ROOT")}
        if ccache := shutil.which("ccache"):
            cls.environment.update(CMAKE_CXX_COMPILER_LAUNCHER=ccache, CCACHE_BASEDIR=str(cls.folder))
        cls.command(cls.folder, "cmake", "--install", BUILD, "--prefix", cls.folder / "prefix")

    @classmethod
    def command(cls, folder, *command, code=0):
        done = subprocess.run(list(map(str, command)), cwd=folder, capture_output=True, text=True, timeout=LIMIT_S,
                              stdin=subprocess.DEVNULL, env=cls.environment)
        if done.returncode != code:
            raise AssertionError(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
        return done.stdout

    def build(self, name):
        folder = self.folder / name
        shutil.copytree(EXAMPLES / name, folder, ignore=shutil.ignore_patterns("build", "runs"))
        self.command(folder, "cmake", "-B", "build", "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={self.folder / 'prefix'}",
                     f"-DCMAKE_CXX_COMPILER={COMPILER}")
        self.command(folder, "cmake", "--build", "build", "-j1")

    def programs_of(self, name):
        return sorted(x.name for x in (self.folder / name / "build").iterdir() if x.is_file() and os.access(x, os.X_OK))

    def serve(self, folder):
        """Starts the service, which a client asks while it trains, and ends it by SIGTERM."""
        with subprocess.Popen(["build/service", "--shard_size", "1000", "--epochs", "2"], cwd=folder, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              env=self.environment) as service:
            try:
                self.assertIn("clients find the service at", service.stdout.readline())
                said = self.command(folder, "build/service_client", "--checkpoints", 2)
                self.assertRegex(said, r"\d+ predictions answered, 0 lost, 0 from an older checkpoint")
                service.send_signal(signal.SIGTERM)
                said, _ = service.communicate(timeout=LIMIT_S)
                self.assertEqual(service.returncode, 0, said)
            finally:
                service.kill()

    def has_components_of(self, name):
        text = (EXAMPLES / name / "CMakeLists.txt").read_text(encoding="utf-8")
        installed = " ".join(str(x) for x in self.folder.glob("prefix/lib*/cmake/troupe/*"))
        return all(f"troupe{x.capitalize()}Targets" in installed for x in ("torch", "trackers") if x in
                   text.split("find_package(troupe")[1].split(")")[0])

    def test_each_folder_builds_and_runs_by_itself(self):
        names = sorted(x.parent.name for x in EXAMPLES.glob("*/CMakeLists.txt"))
        self.assertLessEqual(RUNS.keys(), set(names))
        names = [x for x in names if self.has_components_of(x)]
        with ThreadPoolExecutor(2) as pool:
            built = {x: pool.submit(self.build, x) for x in names}
        for name in names:
            with self.subTest(name):
                built[name].result()
                programs = self.programs_of(name)
                self.assertIn(name, programs)
                for program in programs:
                    self.assertIn(f"usage: {program} ", self.command(self.folder / name, f"build/{program}", "--help"))
                if name not in NEEDS_IMAGES or DATA.exists():
                    for program, arguments, code in RUNS.get(name, []):
                        self.command(self.folder / name, f"build/{program}", *arguments.split(), code=code)
                if name == "service":
                    self.serve(self.folder / name)


if __name__ == "__main__":
    unittest.main()
