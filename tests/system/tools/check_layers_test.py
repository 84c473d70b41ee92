"""Seeds violations into a small tree and expects tools/check_layers to name each of them."""
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

CHECK = Path(__file__).resolve().parents[3] / "tools" / "check_layers"

CLEAN = {
    "runtime/error.hpp": "#include <string>\n",
    "runtime/error.cpp": '#include "troupe/runtime/error.hpp"\n',
    "callbacks/csv.hpp": '#include "troupe/runtime/error.hpp"\n',
    "actors/driver.hpp": '#include <caf/typed_actor.hpp>\n#include "troupe/runtime/error.hpp"\n',
    "trainers/trainer.hpp": '#include "troupe/runtime/error.hpp"\n',
    "trainers/trainer.cpp": '#include "troupe/actors/driver.hpp"\n#include "troupe/trainers/trainer.hpp"\n',
    "trainers/torch/ddp.hpp": "#include <torch/torch.h>\n",
    "trainers/umbrella/train.hpp": '#include "troupe/trainers/trainer.hpp"\n',
    "examples/minimal/minimal.cpp": "#include <troupe/train.hpp>\n",
    "tests/unit/error_test.cpp": '#include "troupe/runtime/error.hpp"\n',
}


class CheckLayers(unittest.TestCase):
    def check(self, **changes):
        """Exit code and output for the clean tree with *changes* (path with __ for /, ending in hpp or cpp)."""
        with tempfile.TemporaryDirectory() as folder:
            files = CLEAN | {k.replace("__", "/").replace("_DOT_", "."): v for k, v in changes.items()}
            for name, text in files.items():
                path = Path(folder) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
            done = subprocess.run([sys.executable, CHECK, folder], capture_output=True, text=True, timeout=60)
            return done.returncode, done.stdout + done.stderr

    def expect_violation(self, line, **changes):
        code, output = self.check(**changes)
        self.assertEqual(code, 1, output)
        self.assertEqual(output.strip().splitlines()[0], line)

    def test_accepts_a_tree_in_order(self):
        code, output = self.check()
        self.assertEqual(code, 0, output)

    def test_finds_a_layer_that_includes_one_below(self):
        self.expect_violation(
            "runtime/error.cpp:1: runtime/ lies above actors/ and may not include troupe/actors/driver.hpp",
            runtime__error_DOT_cpp='#include "troupe/actors/driver.hpp"\n')
        self.expect_violation(
            "callbacks/csv.hpp:2: callbacks/ lies above trainers/ and may not include troupe/trainers/trainer.hpp",
            callbacks__csv_DOT_hpp='\n#include "troupe/trainers/trainer.hpp"\n')

    def test_finds_a_source_that_asks_for_the_version_of_caf(self):
        self.expect_violation(
            "actors/driver.hpp:2: only actors/compat/ may ask for the version of CAF",
            actors__driver_DOT_hpp="// CAF_VERSION\n#if CAF_MAJOR_VERSION >= 1\n#endif\n")
        code, output = self.check(actors__compat__messaging_DOT_hpp="#if CAF_MAJOR_VERSION >= 1\n#endif\n")
        self.assertEqual(code, 0, output)

    def test_finds_two_types_of_one_name(self):
        self.expect_violation(
            "runtime/error.hpp:3: actors/driver.hpp has another troupe::kind",
            actors__driver_DOT_hpp="namespace troupe {\nenum class kind { a };\n}\n",
            runtime__error_DOT_hpp="namespace troupe {\n\nenum class kind : int { b };\n}\n")
        code, output = self.check(
            actors__driver_DOT_hpp="namespace troupe::events {\nstruct kind {\n};\nclass known;\n}\n",
            runtime__error_DOT_hpp="namespace troupe {\nstruct kind {\n};\nclass known;\n}\n")
        self.assertEqual(code, 0, output)

    def test_finds_two_sources_of_a_library_that_hide_one_name(self):
        def source(text):
            return "namespace troupe {\n\nnamespace {\n\n" + text + "\n} // namespace\n\n} // namespace troupe\n"
        why = "and both may be compiled as one"
        for first, second, name in (("int size(const text& x) {\n}\n", "int size(const text&\n  y) {\n}\n", "size(const text&)"),
                                    ("constexpr int most = 1;\n", "const auto most = 2;\n", "most"),
                                    ("template <class T>\nT value(list<T> x) {\n}\n",
                                     "template <class T>\nT value(list<T> x) {\n}\n", "value(list<T>)"),
                                    ("struct part {\n};\n", "class part final {\n};\n", "part")):
            code, output = self.check(runtime__error_DOT_cpp=source(first), runtime__text_DOT_cpp=source(second))
            self.assertEqual(code, 1, output)
            self.assertRegex(output, rf"^runtime/text.cpp:\d+: runtime/error.cpp hides another {re.escape(name)}, {why}\n$")
        code, output = self.check(
            runtime__error_DOT_cpp=source("int size(const text& x) {\n  int most = 1;\n}\n"),
            runtime__text_DOT_cpp=source("int size(const list& x) {\n  int most = 1;\n}\n"),
            callbacks__text_DOT_cpp=source("int size(const text& x) {\n}\n"))
        self.assertEqual(code, 0, output)
        code, output = self.check(tools__troupe__ls_DOT_cpp=source("struct part {\n};\n"),
                                  tools__troupe__rm_DOT_cpp=source("struct part {\n};\n"))
        self.assertEqual(code, 1, output)
        self.assertIn(f"tools/troupe/ls.cpp hides another part, {why}\n", output)

    def test_finds_folders_of_callbacks_that_include_each_other(self):
        code, output = self.check(
            callbacks__csv__csv_DOT_hpp='#include "troupe/callbacks/tracking/sink.hpp"\n',
            callbacks__tracking__sink_DOT_hpp='#include "troupe/callbacks/http/reply.hpp"\n',
            callbacks__http__reply_DOT_hpp='#include "troupe/callbacks/csv/csv.hpp"\n')
        self.assertEqual(code, 1, output)
        why = "include each other, perhaps through further folders"
        self.assertEqual(output.strip().splitlines(), [
            f"callbacks/csv/csv.hpp:1: callbacks/csv/ and callbacks/tracking/ {why}",
            f"callbacks/http/reply.hpp:1: callbacks/http/ and callbacks/csv/ {why}",
            f"callbacks/tracking/sink.hpp:1: callbacks/tracking/ and callbacks/http/ {why}"])
        self.expect_violation(f"callbacks/csv.hpp:1: callbacks/ and callbacks/http/ {why}",
                              callbacks__csv_DOT_hpp='#include "troupe/callbacks/http/reply.hpp"\n',
                              callbacks__http__reply_DOT_hpp='#include "troupe/callbacks/csv.hpp"\n')
        code, output = self.check(
            callbacks__csv__csv_DOT_hpp='#include "troupe/callbacks/http/reply.hpp"\n#include "troupe/callbacks/csv.hpp"\n',
            callbacks__http__reply_DOT_hpp='#include "troupe/callbacks/csv.hpp"\n')
        self.assertEqual(code, 0, output)

    def test_finds_libtorch_outside_of_its_folder(self):
        self.expect_violation("trainers/trainer.cpp:1: LibTorch (ATen/ATen.h) belongs to trainers/torch/",
                              trainers__trainer_DOT_cpp="#include <ATen/ATen.h>\n")
        self.expect_violation("trainers/trainer.cpp:1: only trainers/torch/ may include troupe/trainers/torch/ddp.hpp",
                              trainers__trainer_DOT_cpp='#include "troupe/trainers/torch/ddp.hpp"\n')

    def test_finds_caf_in_folders_without_it(self):
        self.expect_violation("runtime/error.cpp:1: runtime/ has no actors and no CAF (caf/error.hpp)",
                              runtime__error_DOT_cpp="#include <caf/error.hpp>\n")
        self.expect_violation("callbacks/csv.hpp:1: callbacks/ has no actors and no CAF (caf/all.hpp)",
                              callbacks__csv_DOT_hpp="#  include <caf/all.hpp>\n")
        self.expect_violation("tools/troupe/ls.cpp:1: tools/ has no actors and no CAF (caf/all.hpp)",
                              tools__troupe__ls_DOT_cpp="#include <caf/all.hpp>\n")
        for folder in ("actors/door", "trainers/ring", "trainers/torch"):
            self.expect_violation(f"{folder}/link.cpp:1: {folder}/ has no actors and no CAF (caf/error.hpp)",
                                  **{f"{folder.replace('/', '__')}__link_DOT_cpp": "#include <caf/error.hpp>\n"})

    def test_finds_caf_behind_the_headers_of_users(self):
        torch = '#include "troupe/train.hpp"\n#include "troupe/trainers/torch/ddp.hpp"\n'
        self.expect_violation("actors/driver.hpp:1: caf/typed_actor.hpp is reachable from troupe/train.hpp",
                              trainers__trainer_DOT_hpp='#include "troupe/actors/driver.hpp"\n', trainers__umbrella__torch_DOT_hpp=torch)
        self.expect_violation("actors/driver.hpp:1: caf/typed_actor.hpp is reachable from troupe/torch.hpp",
                              trainers__torch__ddp_DOT_hpp='#include "troupe/actors/driver.hpp"\n', trainers__umbrella__torch_DOT_hpp=torch)
        code, output = self.check(trainers__umbrella__torch_DOT_hpp=torch,
                                  trainers__umbrella__actors_DOT_hpp='#include "troupe/actors/driver.hpp"\n')
        self.assertEqual(code, 0, output)

    def test_finds_libtorch_behind_the_headers_without_it(self):
        code, output = self.check(trainers__umbrella__sweep_DOT_hpp='#include "troupe/trainers/torch/ddp.hpp"\n')
        self.assertEqual(code, 1, output)
        self.assertIn("trainers/torch/ddp.hpp:1: torch/torch.h is reachable from troupe/sweep.hpp\n", output)

    def test_finds_an_example_that_uses_inner_headers(self):
        self.expect_violation("examples/minimal/minimal.cpp:1: examples use the public headers only, not troupe/runtime/error.hpp",
                              examples__minimal__minimal_DOT_cpp='#include "troupe/runtime/error.hpp"\n')

    def test_finds_headers_that_do_not_exist_and_relative_paths(self):
        self.expect_violation("runtime/error.cpp:1: troupe/runtime/eror.hpp does not exist",
                              runtime__error_DOT_cpp='#include "troupe/runtime/eror.hpp"\n')
        self.expect_violation('runtime/error.cpp:1: "error.hpp" is not a path from troupe/',
                              runtime__error_DOT_cpp='#include "error.hpp"\n')

    def test_finds_look_ups_that_drop_their_error(self):
        why = "takes an error for an answer: use look_up"
        for call in ("fs::exists(path, code)", "fs::is_directory(path)", "i->symlink_status()", "bfs::status(path, code)"):
            self.expect_violation(f"runtime/error.cpp:2: {call.split('(')[0].lstrip('i-')} {why}",
                                  runtime__error_DOT_cpp=f"\nauto x = {call};\n")
        code, output = self.check(runtime__error_DOT_cpp="// unlike fs::exists(path, code)\n",
                                  runtime__storage__durable_file_DOT_cpp="auto x = fs::status(path, code);\n",
                                  tests__unit__error_test_DOT_cpp="auto x = fs::exists(path);\n")
        self.assertEqual(code, 0, output)

    def test_finds_calls_that_throw(self):
        why = "throws: use absolute_path, or an iterator with an error_code"
        for line, call in (("auto x = fs::absolute(path);", "fs::absolute"),
                           ("for (auto& x : fs::directory_iterator{path})", "fs::directory_iterator")):
            self.expect_violation(f"runtime/error.cpp:1: {call} {why}", runtime__error_DOT_cpp=line + "\n")
        loop = "for (fs::directory_iterator i{path, code}, end; !code && i != end;\n     %s)\n"
        self.expect_violation(f"runtime/error.cpp:2: ++i {why}", runtime__error_DOT_cpp=loop % "++i")
        code, output = self.check(runtime__error_DOT_cpp=loop % "i.increment(code)")
        self.assertEqual(code, 0, output)

    def test_finds_copies_that_stay_on_one_file_system(self):
        for call in ("fs::copy(a, b, code)", "fs::copy_file(a, b)"):
            self.expect_violation(f"runtime/error.cpp:1: {call.split('(')[0]} fails between file systems: use copy_file or copy_files",
                                  runtime__error_DOT_cpp=f"auto x = {call};\n")
        code, output = self.check(runtime__error_DOT_cpp="copy_file(a, b); fs::copy_options x; // fs::copy(a, b)\n",
                                  tests__unit__error_test_DOT_cpp="fs::copy_file(a, b);\n")
        self.assertEqual(code, 0, output)

    def test_refuses_a_folder_without_sources(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([sys.executable, CHECK, folder], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 1)
        self.assertIn("no sources", done.stderr)


if __name__ == "__main__":
    unittest.main()
