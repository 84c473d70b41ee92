"""Checks that the README of each folder names what lies in it, and that links between pages lead somewhere."""
import re
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def named_folders(readme):
    """The folders that the first column of the table in *readme* names."""
    rows = re.findall(r"^\| (`[^|]*) \|", readme.read_text(encoding="utf-8"), re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`([a-z_]+)/`", row)}


class ReadmesTest(unittest.TestCase):
    def test_a_readme_names_each_folder_below_it(self):
        for folder in ("runtime", "callbacks", "actors", "trainers", "tests"):
            with self.subTest(folder):
                there = {path.name for path in (ROOT / folder).iterdir() if path.is_dir() and path.name != "__pycache__"}
                self.assertLessEqual(there, named_folders(ROOT / folder / "README.md"))

    def test_the_readme_of_the_examples_names_each_program(self):
        text = (ROOT / "examples/README.md").read_text(encoding="utf-8")
        for source in (ROOT / "examples").glob("*.cpp"):
            if "int main(" in source.read_text(encoding="utf-8"):
                with self.subTest(source.stem):
                    self.assertIn(f"| `{source.stem}` |", text)

    def test_links_lead_to_pages_that_are_there(self):
        pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
        for page in pages:
            for target in re.findall(r"\]\(([^)#:]+\.md)[^)]*\)", page.read_text(encoding="utf-8")):
                with self.subTest(f"{page.relative_to(ROOT)} -> {target}"):
                    self.assertTrue((page.parent / target).resolve().is_file())


if __name__ == "__main__":
    unittest.main()
