"""Checks that the README of each folder names what lies in it, that the page of options has each of them and that of
the protocol each message, that links between pages lead somewhere, and that files and identifiers that pages name exist."""
import functools
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
    "runtime/config/stop_config.hpp": ["stop_config"],
    "runtime/config/scaling_config.hpp": ["scaling_config", "resources"],
    "runtime/config/rank_hooks.hpp": ["rank_hooks"],
    "runtime/report/report.hpp": ["report_options"],
    "callbacks/tracking/tracker.hpp": ["tracker_options", "backoff::limits"],
    "trainers/tracking_handle.hpp": ["tracking_options"],
    "trainers/torch/groups/torch_config.hpp": ["torch_config"],
    "trainers/torch/data_parallel/data_parallel_options.hpp": ["data_parallel_options", "join_options"],
    "trainers/torch/data/data_loader.hpp": ["data_loader_options"],
    "trainers/torch/data/stream.hpp": ["stream_loader_options"],
    "trainers/torch/data/distributed_sampler.hpp": ["sampler_options"],
    "trainers/torch/optim/fused_optimizer.hpp": ["adam_options", "adamw_options", "sgd_options"],
    "trainers/torch/optim/lr_scheduler.hpp": ["plateau_options"],
    "trainers/torch/files/tensor_map.hpp": ["load_options"],
    "trainers/torch/images/image_file.hpp": ["image_options"],
    "trainers/torch/images/image_transforms.hpp": ["crop_options"],
    "trainers/torch/metrics/metric_collection.hpp": ["collection_options"],
    "trainers/torch/metrics/classification/counts.hpp": ["score_options"],
    "trainers/torch/metrics/classification/curves.hpp": ["curve_options"],
    "trainers/torch/metrics/classification/log_loss.hpp": ["log_loss_options"],
    "trainers/torch/metrics/regression/errors.hpp": ["mean_squared_error_options"],
    "trainers/torch/metrics/regression/moments.hpp": ["r2_score_options"],
    "trainers/rank_mailbox.hpp": ["mailbox_options"],
    "trainers/torch/loop/epoch_loop.hpp": ["loop_options"],
    "trainers/torch/loop/loop_log.hpp": ["log_options"],
    "trainers/early_stopping.hpp": ["early_stopping_options"],
    "trainers/sweep/sweep.hpp": ["sweep_options"],
    "runtime/sweep/halving.hpp": ["halving_options"],
    "trainers/parse_config.hpp": ["parse_options"],
}
TRACKERS = {
    "callbacks/csv/csv.hpp": ("csv_options", "csv.md"),
    "callbacks/json_lines/result_json.hpp": ("result_json_options", "result_json.md"),
    "callbacks/tensorboard/tensorboard.hpp": ("tensorboard_options", "tensorboard.md"),
    "callbacks/mlflow/mlflow.hpp": ("mlflow_options", "mlflow.md"),
    "callbacks/wandb/wandb.hpp": ("wandb_options", "wandb.md"),
    "callbacks/comet/comet.hpp": ("comet_options", "comet.md"),
    "callbacks/prometheus/prometheus.hpp": ("prometheus_options", "prometheus.md"),
}
REFERENCE = ["train", "trackers", "torch", "images", "actors", "sweep"]  # its sections, one per header that users include
LARGE = 13  # files
UNITS = {"h": 3_600_000, "min": 60_000, "s": 1000, "ms": 1}
MILLISECONDS = {"hours": 3_600_000, "minutes": 60_000, "seconds": 1000, "milliseconds": 1}


def fields(header, struct):
    """The data members of *struct*, all before its first member function, with their initial values."""
    text = re.sub(r"//.*", "", header.read_text(encoding="utf-8"))
    name = struct.split("::")[-1]
    body = re.search(rf"^( *)struct {name} \{{\n(.*?)^\1\}};", text, re.MULTILINE | re.DOTALL)[2].split("template <")[0]
    result = {}
    for member in (x.strip() for x in body.split(";") if x.strip()):
        found = re.search(r"(\w+)\s*(?:=\s*(.*)|\{([^{}]*)\})?$", member, re.DOTALL)
        value = (found[2] or found[3] or "").replace("'", "")
        unit = re.match(r"(?:std::chrono::)?(milliseconds|seconds) ", member)
        result[found[1]] = f"std::chrono::{unit[1]}{{{value}}}" if unit and value.isdigit() else value
    return result


def saved_names(header):
    """The names by which `troupe sync` takes the options of a tracker, each with that of its field."""
    visit = header.read_text(encoding="utf-8").split("void visit(")[1].split("\n  }\n")[0]
    return re.findall(r'option(?:\.harmless)?\("(\w+)", (\w+)\);', visit)


def plain_default(value):
    """How a page writes the initial value *value*; empty for one that it may describe as it likes."""
    value = value.strip()
    if time := re.fullmatch(r"std::chrono::(\w+)\{(\d+)\}", value):
        ms = int(time[2]) * MILLISECONDS[time[1]]
        return "60 s" if ms == 60_000 else next(f"{ms // n} {unit}" for unit, n in UNITS.items() if ms % n == 0)
    if value == "std::nullopt":
        return "unset"
    if re.fullmatch(r"\w+(?:::\w+)+|\"[^\"]+\"", value):
        return "`" + value.split("::")[-1].strip('"') + "`"
    if re.fullmatch(r"true|false|[\d.]+(?:e-?\d+)?", value):
        return value
    return ""


def described_fields(page, heading):
    """The first two columns of the table under *heading*: names and defaults."""
    section = page.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return dict(re.findall(r"^\| `(\w+)` \| ([^|]*) \|", section, re.MULTILINE))


FOLDERS = {"runtime", "callbacks", "actors", "trainers", "examples", "bench", "tests", "docs", "cmake", "tools"}
PAGES = sorted(page for page in [*ROOT.glob("*.md"), *(page for x in FOLDERS for page in (ROOT / x).rglob("*.md"))]
               if page != ROOT / "docs/plan.md")  # which names what is to come
UMBRELLAS = {f"troupe/{name}.hpp" for name in ("train", "torch", "images", "actors", "trackers", "sweep")}
MAPS = {"ray_train_map.md", "ecosystem_map.md"}  # They name what other frameworks have.
# Metrics in an example, a function of a library, an option of mpirun, settings of Linux.
OF_OTHERS = {"loss_step", "loss_epoch", "replace_invalid", "orte_abort_on_non_zero_status", "max_user_watches",
             "tcp_rmem"}


def example_folders():
    return sorted(path.parent for path in (ROOT / "examples").glob("*/CMakeLists.txt"))


def text_of(page):
    """The page without its blocks of code."""
    return re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def quoted(page):
    return re.findall(r"`([^`\n]+)`", text_of(page))


def headings(page):
    """The anchors of the page, as GitHub makes them."""
    return {re.sub(r"[^\w -]", "", x.lower()).replace(" ", "-") for x in re.findall(r"^#+ (.*)$", text_of(page), re.MULTILINE)}


def public_headers():
    """The headers that the umbrella headers name."""
    for umbrella in UMBRELLAS:
        text = (ROOT / "trainers/umbrella" / Path(umbrella).name).read_text(encoding="utf-8")
        for name in re.findall(r'#include "troupe/(\w+/.+)"', text):
            yield ROOT / name


@functools.cache
def sources():
    files = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*")]
    files += [path for path in ROOT.iterdir() if not path.name.startswith(".git")]
    return [path for path in files if path.is_file() and "__pycache__" not in path.parts]


def words_of_the_sources():
    """Every identifier of the sources, and of their names."""
    result = set()
    for path in sources():
        result.update(re.findall(r"\w+", path.relative_to(ROOT).as_posix()))
        if path.suffix != ".md":
            result.update(re.findall(r"[A-Za-z_]\w*", path.read_text(encoding="utf-8", errors="replace")))
    return result


def is_in_tree(name, page):
    """Whether *name* is a path from the root or the page's folder, or the end of one of a file."""
    if name in UMBRELLAS or (ROOT / name).exists() or (page.parent / name).exists():
        return True
    return any(path.name == name.split("/")[-1] and f"/{path.as_posix()}".endswith(f"/{name}") for path in sources())


def umbrella(name):
    return ROOT / "trainers/umbrella" / f"{name}.hpp"


def headers_in(file):
    """The headers of the tree that *file* includes."""
    names = re.findall(r'#include "troupe/([^"]+)"', file.read_text(encoding="utf-8"))
    return {name for name in names if (ROOT / name).exists()}


def reachable(file):
    """The headers of the tree that *file* includes, directly or not."""
    result, todo = set(), headers_in(file)
    while todo:
        result |= todo
        todo = set().union(*(headers_in(ROOT / name) for name in todo)) - result
    return result


def declares(header, name):
    """Whether *header* has a type, function or alias *name* that is not a mere mention in a comment."""
    text = re.sub(r"//.*", "", header.read_text(encoding="utf-8"))
    return re.search(rf"\b(?:class|struct|using|concept|namespace|enum class)\s+{name}\b(?!\s*;)|[>&*\w]\s+[&*]?{name}(?:\(| =)", text) is not None


INTERNAL = re.compile(r"^namespace (troupe::)?internal(::\w+)* \{$.*?^\} // namespace (troupe::)?internal(::\w+)*$", re.MULTILINE | re.DOTALL)
NOT_LISTED = {"requires", "inspect", "TROUPE_INSPECT", "to_string", "option_names",  # found by their arguments
              "from_string", "from_integer"}  # what CAF asks of an enumeration


def names_in_troupe(header):
    """The types and functions that *header* declares in `namespace troupe` itself, without forward declarations."""
    text = re.sub(r"//.*", "", INTERNAL.sub("", header.read_text(encoding="utf-8")))
    if "namespace troupe" not in text:
        return set()
    types = re.findall(r"^(?:class|struct|enum class|enum|concept|using) (\w+)\b(?!\s*;)", text, re.MULTILINE)
    functions = re.findall(r"^(?!using|namespace|[ #}])[^\n(={;]*?[\s&*](\w+)\(", text, re.MULTILINE)
    return (set(types) | set(functions)) - NOT_LISTED


class ReadmesTest(unittest.TestCase):
    def test_the_reference_has_each_header_that_users_include_and_what_it_declares(self):
        page = (ROOT / "docs/reference.md").read_text(encoding="utf-8")
        sections = dict(re.findall(r"^## `troupe/(\w+)\.hpp`.*\n((?:(?!## ).*\n?)*)", page, re.MULTILINE))
        self.assertEqual(list(sections), REFERENCE)
        for name, section in sections.items():
            rows = dict(re.findall(r"^\| `([\w/]+\.hpp)` \| (.*) \|$", section, re.MULTILINE))
            with self.subTest(umbrella=name):
                self.assertLessEqual(headers_in(umbrella(name)), rows.keys())
                self.assertLessEqual(rows.keys(), reachable(umbrella(name)))
            for header, text in rows.items():
                with self.subTest(header=header):
                    names = re.findall(r"`(\w+)`", text)
                    self.assertEqual([x for x in names if not declares(ROOT / header, x)], [])
                    self.assertEqual(names_in_troupe(ROOT / header) - set(names), set())

    def test_what_the_reference_does_not_list_is_internal(self):
        page = (ROOT / "docs/reference.md").read_text(encoding="utf-8")
        listed = set(re.findall(r"^\| `([\w/]+\.hpp)` \|", page, re.MULTILINE))
        for layer in ("runtime", "callbacks", "actors", "trainers"):
            for header in (ROOT / layer).rglob("*.hpp"):
                name = header.relative_to(ROOT).as_posix()
                if name not in listed and header.parent.name != "umbrella":
                    with self.subTest(header=name):
                        self.assertEqual(names_in_troupe(header), set())

    def test_what_an_umbrella_header_reaches_is_installed_and_nothing_else(self):
        installed = set()
        for layer in ("runtime", "callbacks", "actors", "trainers", "trainers/torch"):
            text = (ROOT / layer / "CMakeLists.txt").read_text(encoding="utf-8")
            for headers in re.findall(r"^ *HEADERS\n((?: +[\w/]+\.hpp\n)+)", text, re.MULTILINE):
                installed.update(f"{layer}/{name}" for name in headers.split())
        self.assertEqual(installed, set().union(*(reachable(umbrella(name)) for name in REFERENCE)))

    def test_the_page_for_authors_of_sinks_names_only_what_is_installed(self):
        installed = " ".join((ROOT / name).read_text(encoding="utf-8") for name in reachable(umbrella("trackers")))
        known = set(re.findall(r"\w+", re.sub(r"//.*", "", installed)))
        example = "examples/own_sink/own_sink.cpp"  # which the page shows
        known |= set(re.findall(r"\w+", example + (ROOT / example).read_text(encoding="utf-8")))
        text = re.sub(r"```.*?```", "", text_of(ROOT / "docs/trackers/writing_a_sink.md"), flags=re.DOTALL)
        named = set(re.findall(r"\b[a-z]+(?:_[a-z]+)+\b", " ".join(re.findall(r"`([^`]+)`", text))))
        self.assertEqual(named - known, set())

    def test_a_readme_names_each_folder_below_it(self):
        for folder in ("runtime", "callbacks", "actors", "trainers", "tests"):
            with self.subTest(folder):
                there = {path.name for path in (ROOT / folder).iterdir() if path.is_dir() and path.name != "__pycache__"}
                self.assertLessEqual(there, named_folders(ROOT / folder / "README.md"))

    def test_a_large_folder_has_a_readme(self):
        for folder in {path.parent for path in sources() if path.suffix in (".cpp", ".hpp")}:
            files = [path for path in sources() if path.parent == folder]
            # Folders of tests mirror those of the sources; the README of tests/ is that of all.
            if len(files) >= LARGE and folder.parts[len(ROOT.parts)] != "tests":
                with self.subTest(folder.relative_to(ROOT)):
                    self.assertTrue((folder / "README.md").exists())

    def test_a_readme_names_each_header_of_its_folder(self):
        for folder in ("actors/protocol", "actors/door", "bench/hosts", "callbacks/mlflow", "callbacks/report_page",
                       "callbacks/tracking", "callbacks/wandb", "runtime", "runtime/hosts", "runtime/process",
                       "runtime/report", "runtime/run", "runtime/storage", "runtime/store", "runtime/sweep",
                       "tests/support", "tools", "tools/troupe", "trainers", "trainers/torch/data",
                       "trainers/torch/data_parallel", "trainers/torch/groups", "trainers/torch/loop"):
            page = (ROOT / folder / "README.md").read_text(encoding="utf-8")
            for header in (ROOT / folder).glob("*.hpp"):
                with self.subTest(f"{folder}/{header.name}"):
                    self.assertIn(f"`{header.name}`", page)

    def test_the_readme_of_the_examples_links_to_each_folder(self):
        text = (ROOT / "examples/README.md").read_text(encoding="utf-8")
        for folder in example_folders():
            with self.subTest(folder.name):
                self.assertIn(f"| [`{folder.name}`]({folder.name}/README.md) |", text)

    def test_an_example_is_a_project_of_its_own_with_a_page_that_shows_its_output(self):
        built = (ROOT / "examples/CMakeLists.txt").read_text(encoding="utf-8")
        for folder in example_folders():
            with self.subTest(folder.name):
                self.assertRegex((folder / "CMakeLists.txt").read_text(encoding="utf-8"),
                                 r"(?s)^cmake_minimum_required\(.*\nproject\(.*\nfind_package\(troupe REQUIRED")
                page = (folder / "README.md").read_text(encoding="utf-8")
                self.assertRegex(page, r"```sh\ncmake -B build (?:(?!```).*\n)*build/")
                self.assertGreaterEqual(page.count("\n```"), 4)  # how to run it, and what it prints
                self.assertRegex(built, rf"troupe_examples\([^)]*\b{folder.name}\b")

    def test_pages_have_each_option_in_the_order_of_its_struct_with_its_default(self):
        tables = [(header, struct, "configuration.md", f"`{struct}`") for header, x in CONFIGS.items() for struct in x]
        tables += [(header, struct, f"trackers/{page}", "Options") for header, (struct, page) in TRACKERS.items()]
        for header, struct, page, heading in tables:
            there = fields(ROOT / header, struct)
            described = described_fields((ROOT / "docs" / page).read_text(encoding="utf-8"), heading)
            with self.subTest(struct):
                self.assertTrue(there)
                self.assertEqual(list(described), list(there))
            for name, value in there.items():
                if default := plain_default(value):
                    with self.subTest(f"{struct}::{name}"):
                        self.assertRegex(described[name], rf"^{re.escape(default)}(?![\w.])")

    def test_pages_of_trackers_have_the_names_that_sync_takes(self):
        for header, (_, name) in TRACKERS.items():
            page = (ROOT / "docs/trackers" / name).read_text(encoding="utf-8")
            rows = dict(re.findall(r"^\| `(\w+)` \| [^|]* \| (.*) \|$", page, re.MULTILINE))
            names = saved_names(ROOT / header)
            self.assertTrue(names)
            for saved, field in names:
                with self.subTest(f"{name}: {saved}"):
                    self.assertTrue(saved == field or f"`{saved}` for `troupe sync`" in rows[field])

    def test_every_struct_of_options_that_users_see_has_a_table(self):
        known = {x for structs in CONFIGS.values() for x in structs} | {x for x, _ in TRACKERS.values()}
        known |= {"train_options", "torch_options", "no_config"}  # which hold others, or nothing
        page = (ROOT / "docs/reference.md").read_text(encoding="utf-8")
        headers = set(public_headers()) | {ROOT / x for x in re.findall(r"^\| `([\w/]+\.hpp)` \|", page, re.MULTILINE)}
        for header in headers:
            for struct in re.findall(r"^struct (\w+_(?:options|config)) \{", header.read_text(encoding="utf-8"), re.MULTILINE):
                with self.subTest(struct):
                    self.assertIn(struct, known)

    def test_the_page_of_the_protocol_has_each_message(self):
        page = (ROOT / "docs/protocol.md").read_text(encoding="utf-8")
        record = (ROOT / "tests/data/protocol.txt").read_text(encoding="utf-8").split("\n# ")[0]
        for message in set(re.findall(r"troupe::(?:internal::)?(\w+)", record)):
            if not message.endswith("_actor"):
                with self.subTest(message):
                    self.assertIn(f"`{message}`", page)

    def test_the_readme_of_the_docs_names_each_page(self):
        text = (ROOT / "docs/README.md").read_text(encoding="utf-8")
        for page in (ROOT / "docs").glob("*.md"):
            if page.name not in ("README.md", "plan.md"):  # which goes once it is done
                with self.subTest(page.name):
                    self.assertIn(f"`{page.name}`", text)

    def test_the_index_of_the_decisions_has_a_row_for_each_page(self):
        text = (ROOT / "docs/decisions/README.md").read_text(encoding="utf-8")
        rows = re.findall(r"^\| \[`(\w+\.md)`\]\(\1\) \| [^|]+\? \|$", text, re.MULTILINE)
        pages = {page.name for page in (ROOT / "docs/decisions").glob("*.md")} - {"README.md"}
        self.assertEqual(sorted(rows), sorted(pages))

    def test_the_list_of_variables_has_each_one_that_the_sources_read(self):
        listed = re.findall(r'"(TROUPE_\w+)"', (ROOT / "runtime/environment.hpp").read_text(encoding="utf-8"))
        read = {x for layer in ("runtime", "callbacks", "actors", "trainers", "tools") for path in (ROOT / layer).rglob("*.cpp")
                for x in re.findall(r'"(TROUPE_[A-Z_]*[A-Z])"', path.read_text(encoding="utf-8"))}
        read |= {x for layer in ("runtime", "callbacks", "actors", "trainers") for path in (ROOT / layer).rglob("*.hpp")
                 if path.name != "environment.hpp"
                 for x in re.findall(r'"(TROUPE_[A-Z_]*[A-Z])"', path.read_text(encoding="utf-8"))}
        self.assertEqual(sorted(read), sorted(listed))

    def test_links_lead_to_pages_and_headings_that_are_there(self):
        for page in PAGES:
            for link in re.findall(r"\]\(([^)\s]+)\)", text_of(page)):
                if re.match(r"[a-z]+:", link):
                    continue
                target, _, heading = link.partition("#")
                there = (page.parent / target).resolve() if target else page
                with self.subTest(f"{page.relative_to(ROOT)} -> {link}"):
                    self.assertTrue(there.exists())
                    self.assertIn(heading, headings(there) if heading else {""})

    def test_files_that_pages_name_are_there(self):
        for page in PAGES:
            for name in re.findall(r"(?<![<\w./-])[\w./-]+", " ".join(quoted(page))):
                if re.search(r"\.(hpp|cpp|py|sh|md)$", name) or name.split("/")[0] in FOLDERS and "/" in name:
                    with self.subTest(f"{page.relative_to(ROOT)}: {name}"):
                        self.assertTrue(is_in_tree(name, page))

    def test_code_that_a_page_takes_from_an_example_or_a_test_is_there(self):
        found = 0
        for page in PAGES:
            for name, blocks in re.findall(r"From `((?:examples|tests)/[\w/]+\.cpp)`:\n((?:\n```cpp\n(?:(?!```).*\n)*```\n)+)",
                                           page.read_text(encoding="utf-8")):
                for block in re.findall(r"```cpp\n((?:(?!```).*\n)*)```", blocks):
                    found += 1
                    with self.subTest(f"{page.relative_to(ROOT)}: {name}"):
                        self.assertIn(block, (ROOT / name).read_text(encoding="utf-8"))
        self.assertGreater(found, 0)

    def test_identifiers_that_pages_name_are_in_the_sources(self):
        known = words_of_the_sources()
        for page in PAGES:
            for name in re.findall(r"\b[a-z][a-z0-9]*(?:_[a-z0-9]+)+\b(?![…*])", " ".join(quoted(page))):
                if page.name not in MAPS and name not in OF_OTHERS:
                    with self.subTest(f"{page.relative_to(ROOT)}: {name}"):
                        self.assertTrue(name in known)


if __name__ == "__main__":
    unittest.main()
