"""Runs tools/pack_gpu_run and looks at what it packs. The packed folder is configured, but not built here: that takes
half an hour.

Skipped where what it packs is not there: on machines other than Debian's, or before tools/bootstrap.sh.
"""
import os
import re
import shlex
import shutil
import subprocess
import tarfile
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
LIMIT_S = 200
EVERYWHERE = re.compile(r"(ld-linux|lib(c|m|dl|rt|pthread|resolv|stdc\+\+|gcc_s)\.so)")


def pack(folder, *arguments):
    return subprocess.run([ROOT / "tools/pack_gpu_run", folder, *arguments], capture_output=True, text=True,
                          timeout=LIMIT_S)


class PackGpuRunTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        place = tempfile.TemporaryDirectory()
        cls.addClassCleanup(place.cleanup)
        cls.place = Path(place.name)
        cls.folder = cls.place / "packed"
        done = pack(cls.folder)
        if done.returncode != 0 and re.search("is missing: Debian's|there is no (dpkg|CAF)|^pack_gpu_run: dpkg",
                                              done.stderr):
            raise unittest.SkipTest(done.stderr.strip())
        assert done.returncode == 0, done.stderr
        cls.printed = done.stdout
        with tarfile.open(cls.folder / "sysroot.tar.gz") as tar:
            tar.extractall(cls.place / "unpacked")
        cls.usr = cls.place / "unpacked/sysroot/usr"

    def test_has_the_tree_the_data_and_a_program_to_start(self):
        with tarfile.open(self.folder / "troupe.tar.gz") as tar:
            names = set(tar.getnames())
        self.assertLessEqual({"CMakeLists.txt", "tests/gpu/gpu_test.cpp", "examples/fashion_mnist/fashion_mnist.cpp",
                              "tools/pack_gpu_run"}, names)
        self.assertFalse([x for x in names if x.startswith((".git/", "build/"))])
        self.assertEqual(len(list((self.folder / "data").glob("*-ubyte.gz"))), 4)
        run = self.folder / "run_gpu_tests"
        self.assertTrue(os.access(run, os.X_OK))
        subprocess.run(["bash", "-n", run], check=True)
        self.assertNotIn("@", run.read_text().replace('"$@"', "").replace("$#", ""))

    def test_says_how_large_it_is(self):
        total = sum(x.stat().st_size for x in self.folder.rglob("*") if x.is_file()) / 2**20
        self.assertIn(f"{total:.1f} MiB  in all", self.printed)
        self.assertLess(total, 60)

    def test_has_every_library_that_a_packed_one_needs(self):
        libraries = {x.name: x for x in self.place.glob("unpacked/**/*.so*")}
        self.assertIn("libcurl.so", libraries)
        self.assertIn("libcaf_core.so", libraries)
        for name, path in libraries.items():
            headers = subprocess.run(["objdump", "-p", path], capture_output=True, text=True, check=True).stdout
            for needed in re.findall(r"NEEDED\s+(\S+)", headers):
                with self.subTest(f"{name} needs {needed}"):
                    self.assertTrue(EVERYWHERE.match(needed) or needed in libraries)

    def test_has_the_headers_that_the_sources_include(self):
        system = self.usr / "include"
        self.assertTrue((system / "openssl/opensslconf.h").is_file())
        unpacked = [system, *self.place.glob("unpacked/cache/*/include")]
        theirs = re.compile(r"#include <((boost|caf|cereal|CLI|curl|gtest|gmock|nlohmann|openssl|protozero|stb|tl)/[^>]+|"
                            r"(utf8|xxhash|zip|zlib)\.h)>")
        one_caf_only = re.compile(r"^#if CAF_MAJOR_VERSION.*?^#endif", re.MULTILINE | re.DOTALL)
        for folder in ("runtime", "callbacks", "actors", "trainers", "tests/support", "tests/gpu"):
            for source in (ROOT / folder).rglob("*.[hc]pp"):
                text = one_caf_only.sub("", source.read_text(encoding="utf-8"))
                for header in {x[0] for x in theirs.findall(text)}:
                    with self.subTest(f"{source.relative_to(ROOT)}: {header}"):
                        self.assertTrue(any((x / header).is_file() for x in unpacked))

    def test_compiles_with_the_packed_boost_alone(self):
        source = "#include <boost/filesystem.hpp>\n#include <boost/filesystem/fstream.hpp>\n"
        listed = subprocess.run(["g++", "-std=c++20", "-M", "-I", self.usr / "include", "-x", "c++", "-"], input=source,
                                capture_output=True, text=True, check=True).stdout
        self.assertNotIn("/usr/include/boost", listed.replace(str(self.usr), ""))

    def test_is_configured_where_the_packages_are_not_installed(self):
        cache = os.environ.get("TROUPE_CACHE") or \
            Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "troupe"
        libtorch = os.environ.get("LIBTORCH_ROOT") or \
            next(map(str, Path(cache).glob("libtorch-*/lib/python3*/site-packages/torch")), None)
        programs = {x: shutil.which(x) for x in ("cmake", "ninja", "gcc", "g++")}
        if not libtorch or not all(programs.values()):
            self.skipTest("needs what tools/bootstrap.sh installs")
        # This CMake ignores what is installed here, and ends before the build.
        fake = self.place / "bin/cmake"
        fake.parent.mkdir()
        given = ["-DCMAKE_FIND_USE_CMAKE_SYSTEM_PATH=OFF", "-DCMAKE_FIND_USE_SYSTEM_ENVIRONMENT_PATH=OFF",
                 f"-DCMAKE_MAKE_PROGRAM={programs['ninja']}", f"-DCMAKE_C_COMPILER={programs['gcc']}",
                 f"-DCMAKE_CXX_COMPILER={programs['g++']}"]
        fake.write_text(f'#!/bin/sh\n[ "$1" != --build ] || exit 9\nexec {shlex.quote(programs["cmake"])} "$@" '
                        f"{shlex.join(given)}\n")
        fake.chmod(0o755)
        work = self.place / "work"
        roots = ("CAF_ROOT", "CMAKE_PREFIX_PATH", "CPATH", "LIBRARY_PATH")
        env = {name: value for name, value in os.environ.items() if name not in roots}
        env |= {"LIBTORCH_ROOT": libtorch, "PATH": f"{fake.parent}:{env['PATH']}"}
        done = subprocess.run([self.folder / "run_gpu_tests", work], capture_output=True, text=True, env=env,
                              timeout=LIMIT_S)
        self.assertEqual(done.returncode, 9, done.stderr)
        self.assertIn("-- Generating done", (work / "configure.log").read_text())

    def test_makes_nothing_that_is_over_the_limit(self):
        folder = self.place / "small"
        done = pack(folder, "--limit", "1")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"^pack_gpu_run: the folder would have \d+\.\d MiB, over the limit of 1 MiB\n$")
        self.assertFalse(folder.exists())
        self.assertFalse(list(self.place.glob(".pack-*")))

    def test_leaves_a_folder_with_files_alone(self):
        done = pack(ROOT / "tools")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stderr, f"pack_gpu_run: {ROOT}/tools is not an empty folder\n")


if __name__ == "__main__":
    unittest.main()
