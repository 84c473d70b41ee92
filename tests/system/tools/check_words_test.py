"""Seeds words into a small tree and expects tools/check_words to name each of them, and nothing else."""
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

CHECK = Path(__file__).resolve().parents[3] / "tools" / "check_words"


class CheckWords(unittest.TestCase):
    def check(self, name, text):
        """Exit code and output for a tree whose only file is *name* with *text*."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            done = subprocess.run([sys.executable, CHECK, folder], capture_output=True, text=True, timeout=60)
            return done.returncode, done.stdout + done.stderr

    def expect_word(self, word, name, text, line=1):
        code, output = self.check(name, text)
        self.assertEqual(code, 1, output)
        self.assertEqual(len(output.splitlines()), 1, output)
        self.assertTrue(output.startswith(f'{name}:{line}: "{word}": write '), output)

    def expect_order(self, name, text):
        code, output = self.check(name, text)
        self.assertEqual(code, 0, output)

    def test_finds_each_word_in_comments_messages_and_pages(self):
        for word in ("nobody", "Somebody", "anew", "can not", "goes on", "without a word", "told", "is no"):
            with self.subTest(word):
                self.expect_word(word, "runtime/a.hpp", f"/// Then {word} x.\n")
                self.expect_word(word, "actors/a.cpp", f'int a;\nauto b = "then {word} x";\n', 2)
                self.expect_word(word, "tests/a.py", f'a = 1\nb = "then {word} x"  # b\n', 2)
                self.expect_word(word, "tools/a.py", f"a = 1  # then {word} x\n")
                self.expect_word(word, "docs/a.md", f"# A\n\nThen {word} x.\n", 3)
                self.expect_word(word, "README.md", f"Then {word} x.\n")

    def test_reads_programs_without_an_ending_and_scripts(self):
        for name in ("dev", ".ci/run", "tools/a", "cmake/check", "tests/hosts/a"):
            self.expect_word("told", name, "#!/usr/bin/env bash\n# It is told.\n", 2)
            self.expect_word("told", name, '#!/usr/bin/env python3\ntold = "It is told."\n', 2)
        for name in ("tests/hosts/a.sh", "cmake/a.cmake", "callbacks/page/a.js", "runtime/CMakeLists.txt", "CMakeLists.txt"):
            self.expect_word("told", name, "# It is told.\n")

    def test_finds_a_phrase_on_two_lines(self):
        self.expect_word("goes on", "runtime/a.hpp", "int a;\n  /// The run goes\n  /// on from there.\n", 2)
        self.expect_word("is no", "docs/a.md", "This is\nno error.\n")
        self.expect_word("can not", "runtime/a.cpp", 'auto a = "this can "\n         "not be";\n')

    def test_finds_a_word_behind_digit_separators_and_quotes(self):
        self.expect_word("told", "runtime/a.cpp", "auto a = 1'000; // told\n")
        self.expect_word("told", "runtime/a.cpp", "auto a = '\"'; // told\n")
        self.expect_word("told", "runtime/a.cpp", "// It is told.\n")

    def test_finds_a_word_in_the_name_of_a_test(self):
        self.expect_word("goes on", "tests/a.cpp", "int a;\nTEST_F(a_test, goes_on_without_b) {\n", 2)
        self.expect_word("can not", "tests/a.cpp", "TEST(a_test,\n     can_not_begin) {}\n", 2)
        self.expect_word("is no", "tests/a.cpp", "TEST_P(a_test, b_is_no_c) {}\n")
        self.expect_word("told", "tests/a.py", "class A:\n    def test_a_is_told(self):\n        pass\n", 2)
        self.expect_order("tests/a.cpp", "TEST(told_test, there_is_no_b) { goes_on(); }\n")

    def test_accepts_names_in_code(self):
        self.expect_order("runtime/a.cpp", "auto told = nobody(anew); // a\nint b; // there\nint is, no;\n")
        self.expect_order("tests/a.py", "told = NOBODY\n")
        self.expect_order("docs/a.md", "The variable `told` and the file `callbacks.told`.\n")
        self.expect_order("runtime/a.hpp", 'auto a = "callbacks.told", b = "told.written";\n')

    def test_accepts_what_has_another_meaning(self):
        self.expect_order("runtime/a.hpp", "/// There is no folder, it is no longer there, and there\n/// is no room.\n")
        self.expect_order("runtime/a.hpp", "/// They cannot be told\n/// apart. It is no one's.\n")

    def test_accepts_the_list_itself_and_data_of_tests(self):
        self.expect_order("CONTRIBUTING.md", "| not | but |\n|---|---|\n| told, nobody | notified, no one |\n\nEnd.\n")
        self.expect_order("tests/data/a.md", "told\n")


if __name__ == "__main__":
    unittest.main()
