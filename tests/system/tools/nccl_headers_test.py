"""Looks for the headers of NCCL beside a LibTorch, as cmake/FindNCCLHeaders.cmake does. Argument: CMake."""
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
CMAKE = sys.argv.pop(1)
PROJECT = f"""cmake_minimum_required(VERSION 3.25)
project(look NONE)
list(APPEND CMAKE_MODULE_PATH {ROOT}/cmake)
find_package(NCCLHeaders QUIET)
message(STATUS "missing: ${{NCCLHeaders_MISSING}}")
message(STATUS "crt: ${{NCCLHeaders_CRT_DIR}}")
"""


class NcclHeadersTest(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.place = Path(place.name)
        (self.place / "CMakeLists.txt").write_text(PROJECT)

    def add(self, *headers, folder="site-packages/nvidia"):
        for header in headers:
            path = self.place / folder / header
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()

    def look(self):
        done = subprocess.run([CMAKE, "-S", self.place, "-B", self.place / "build",
                               f"-DLibTorch_ROOT_DIR={self.place}/site-packages/torch",
                               f"-DTROUPE_CACHE_DIR={self.place}/cache"], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_names_what_the_packages_that_torch_asks_for_lack(self):
        self.add("nccl/include/nccl.h", "cu13/include/cuda_runtime_api.h")
        self.assertIn("-- missing: crt/host_config.h;nv/target\n", self.look())
        self.add("cu13/include/crt/host_config.h", "cu13/include/nv/target")
        self.assertIn("-- missing: \n", self.look())

    def test_takes_the_rest_from_the_bootstrap(self):
        self.add("cu13/include/cuda_runtime_api.h")
        self.add("nccl.h", "crt/host_config.h", "nv/target", folder="cache/nccl-headers-2.30.7-13.2/include")
        self.assertIn("-- missing: \n", self.look())

    def test_finds_the_headers_of_cuda_12_in_folders_of_their_own(self):
        self.add("nccl/include/nccl.h", "cuda_runtime/include/cuda_runtime_api.h")
        self.add("crt/host_config.h", folder="cache/nccl-headers-2.30.7-13.2/include")
        self.assertIn("-- missing: crt/host_config.h;nv/target\n", self.look())
        self.add("cuda_nvcc/include/crt/host_config.h", "cuda_cccl/include/nv/target")
        found = self.look()
        self.assertIn("-- missing: \n", found)
        self.assertIn("nvidia/cuda_nvcc/include\n", found)


if __name__ == "__main__":
    unittest.main()
