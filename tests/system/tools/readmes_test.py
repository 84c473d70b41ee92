"""Checks that the README of each folder names what lies in it, that the page of options has each of them and that of
the protocol each message, and that links between pages lead somewhere."""
import re
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def named_folders(readme):
    """The folders that the first column of the table in *readme* names."""
    rows = re.findall(r"^\| (`[^|]*) \|", readme.read_text(encoding="utf-8"), re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`([a-z_]+)/`", row)}


CONFIGS = {
    "runtime/config/run_config.hpp": ["run_config", "failure_config", "checkpoint_config"],
    "runtime/config/scaling_config.hpp": ["scaling_config", "resources"],
    "runtime/config/rank_hooks.hpp": ["rank_hooks"],
    "runtime/report/report.hpp": ["report_options"],
    "callbacks/tracking/tracker.hpp": ["tracker_options", "backoff::limits"],
    "trainers/torch/groups/torch_config.hpp": ["torch_config"],
}


def fields(header, struct):
    """The names of the data members of *struct*, which has no member functions."""
    text = re.sub(r"//.*", "", header.read_text(encoding="utf-8"))
    name = struct.split("::")[-1]
    body = re.search(rf"^( *)struct {name} \{{\n(.*?)^\1\}};", text, re.MULTILINE | re.DOTALL)[2]
    members = [member.strip() for member in body.split(";") if member.strip()]
    return [re.search(r"(\w+)\s*(?:=.*|\{[^{}]*\})?$", member, re.DOTALL)[1] for member in members]


def described_fields(page, struct):
    """The names in the first column of the table under the heading *struct*."""
    section = page.split(f"\n## `{struct}`\n")[1].split("\n## ")[0]
    return re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)


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

    def test_the_page_of_options_has_each_field_in_its_order(self):
        page = (ROOT / "docs/configuration.md").read_text(encoding="utf-8")
        for header, structs in CONFIGS.items():
            for struct in structs:
                with self.subTest(struct):
                    there = fields(ROOT / header, struct)
                    self.assertTrue(there)
                    self.assertEqual(described_fields(page, struct), there)

    def test_the_page_of_the_protocol_has_each_message(self):
        page = (ROOT / "docs/protocol.md").read_text(encoding="utf-8")
        record = (ROOT / "tests/data/protocol.txt").read_text(encoding="utf-8").split("\n# ")[0]
        for message in set(re.findall(r"troupe::(\w+)", record)):
            if not message.endswith("_actor"):
                with self.subTest(message):
                    self.assertIn(f"`{message}`", page)

    def test_the_readme_of_the_docs_names_each_page(self):
        text = (ROOT / "docs/README.md").read_text(encoding="utf-8")
        for page in (ROOT / "docs").glob("*.md"):
            if page.name not in ("README.md", "plan.md"):  # which goes once it is done
                with self.subTest(page.name):
                    self.assertIn(f"`{page.name}`", text)

    def test_links_lead_to_pages_that_are_there(self):
        pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
        for page in pages:
            for target in re.findall(r"\]\(([^)#:]+\.md)[^)]*\)", page.read_text(encoding="utf-8")):
                with self.subTest(f"{page.relative_to(ROOT)} -> {target}"):
                    self.assertTrue((page.parent / target).resolve().is_file())


if __name__ == "__main__":
    unittest.main()
