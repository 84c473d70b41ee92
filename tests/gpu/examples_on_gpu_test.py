"""Runs every example that takes --gpu on the GPUs of this host.

  examples_on_gpu_test.py FOLDER [unittest arguments]

FOLDER holds the built programs. Where one is missing, or finds no GPU, its test is skipped, but fails if
TROUPE_EXPECT_GPU is set.
FASHION_MNIST names the folder with the data, if it is not where Debian's package puts it.
"""
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PROGRAMS = Path(sys.argv.pop(1)).resolve()
DATA = Path(os.environ.get("FASHION_MNIST", "/usr/share/datasets/fashion-mnist"))
LIMIT_S = 120  # of one program, with the load of CUDA's libraries
NO_GPU = "LibTorch shows this process no GPU"


class OnGpu(unittest.TestCase):
    def leave_out(self, why):
        if "TROUPE_EXPECT_GPU" in os.environ:
            self.fail(why)
        self.skipTest(why)

    def run_example(self, name, *arguments):
        """What *name* --gpu printed, and the values of each report by rank 0."""
        if not (PROGRAMS / name).exists():
            self.leave_out(f"{name} is not built here")
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([PROGRAMS / name, "--gpu", *map(str, arguments)], cwd=folder, capture_output=True,
                                  text=True, timeout=LIMIT_S, stdin=subprocess.DEVNULL)
            if done.returncode == 2 and NO_GPU in done.stderr:
                self.leave_out(done.stderr.strip())
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            (run,) = [x for x in (Path(folder) / "runs").iterdir() if x.is_dir()]
            lines = [json.loads(x) for x in (run / "journal.jsonl").read_text().splitlines()]
        return done.stdout, [x["values"][0] for x in lines if "batch" in x]

    def run_on_images(self, name, *arguments):
        if not DATA.exists():
            self.leave_out(f"the data of the package dataset-fashion-mnist is not in {DATA}")
        return self.run_example(name, "--data", DATA, *arguments)

    def test_linear_regression_finds_the_line(self):
        out, _ = self.run_example("linear_regression")
        weight, bias, loss = map(float, re.search(r"y = (\S+) x \+ (\S+), loss (\S+)", out).groups())
        self.assertLess(abs(weight - 2), 0.3)
        self.assertLess(abs(bias), 0.3)
        self.assertLess(loss, 0.02)

    def test_torchmetrics_scores(self):
        _, values = self.run_example("torchmetrics")
        self.assertEqual(len(values), 5)
        self.assertLess(values[-1]["mape"], values[0]["mape"])
        self.assertTrue(0.9 < values[-1]["r2"] <= 1, values[-1])

    def test_lightning_style_learns(self):
        _, values = self.run_on_images("lightning_style", "--epochs", 2)
        self.assertEqual(len(values), 2)
        self.assertLess(values[1]["val/loss"], values[0]["val/loss"])

    def test_fashion_mnist_learns(self):
        out, values = self.run_on_images("fashion_mnist", "--limit", 8192, "--batch-size", 64, "--epochs", 2)
        self.assertIn("validation accuracy", out)
        self.assertLess(values[1]["train/loss"], values[0]["train/loss"])
        self.assertGreater(values[1]["val/accuracy"], 0.5)

    def test_own_dataset_finds_the_rare_ring(self):
        _, values = self.run_example("own_dataset")
        self.assertGreater(values[-1]["outer_found"], 0.8)

    def test_epoch_loop_tracking_learns(self):
        _, values = self.run_on_images("epoch_loop_tracking", "--limit", 2048)
        self.assertLess(values[1]["val/loss"], values[0]["val/loss"])

    def test_language_model_learns(self):
        with tempfile.NamedTemporaryFile("w") as text:
            text.write("the cat sees the moon.\na dog likes the old man.\n" * 1000)
            text.flush()
            out, values = self.run_example("language_model", "--text", text.name, "--model.context", 32)
        self.assertIn("--- in the end:", out)
        self.assertLess(values[-1]["val/loss"], 1)

    def test_tracking_learns(self):
        _, values = self.run_on_images("tracking", "--limit", 2048)
        self.assertLess(values[1]["train/loss"], values[0]["train/loss"])


if __name__ == "__main__":
    unittest.main()
