"""Reads what a run and its trainee left: written from docs/decisions/, with no code of Troupe's."""
import csv
import functools
import json
import re
import struct
from dataclasses import dataclass, field
from pathlib import Path

from xxh3 import checksum_text

SUM = re.compile(rb',"sum":"([0-9a-f]{16})"}\n\Z')
MASK = (1 << 64) - 1


class Damaged(Exception):
    """What was read is not what was written."""


@functools.lru_cache(maxsize=4096)
def checksum_of(data: bytes) -> str:
    return checksum_text(data)


def checked_json(data: bytes, what: str) -> dict:
    """The JSON object *data*, which ends with its own checksum."""
    found = SUM.search(data)
    if not found:
        raise Damaged(f"{what} has no checksum at its end")
    if checksum_of(data[:found.start()]) != found[1].decode():
        raise Damaged(f"{what} does not match its checksum")
    try:
        return json.loads(data)
    except ValueError as problem:
        raise Damaged(f"{what}: {problem}") from problem


# -- the journal


@dataclass
class Journal:
    lines: list = field(default_factory=list)  # dicts, in order
    damaged: list = field(default_factory=list)  # numbers of damaged lines that are followed by good ones
    torn: bool = False  # whether the last write is torn

    @property
    def batches(self) -> list:
        return [x for x in self.lines if "batch" in x]

    def events(self, kind: str = "") -> list:
        return [x for x in self.lines if "event" in x and kind in ("", x["event"])]


def read_journal(path: Path) -> Journal:
    result = Journal()
    if not path.exists():
        return result
    bad = []
    for number, line in enumerate(path.read_bytes().splitlines(keepends=True), 1):
        try:
            result.lines.append(checked_json(line, f"line {number}"))
            result.damaged += bad
            bad = []
        except Damaged:
            bad.append(number)
    result.torn = bool(bad)
    return result


# -- checkpoints


@dataclass
class Checkpoint:
    name: str
    manifest: dict | None
    problems: list  # sentences; empty: the checkpoint is complete

    @property
    def index(self) -> int:
        return self.manifest["index"] if self.manifest else -1


def mixed(x: int) -> int:
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ x >> 27) * 0x94D049BB133111EB & MASK
    return x ^ x >> 31


def data_of(seed: int, step: int, samples: int) -> int:
    """What all ranks train on in the step after *step*: the sum of the *samples* that they have divided, or what rank 0
    has."""
    if not samples:
        return mixed(seed + step & MASK)
    return sum(mixed(seed + step * samples + i & MASK) >> 8 for i in range(samples))


@functools.lru_cache(maxsize=64)
def states(seed: int, steps: int, samples: int = 0) -> tuple:
    """The state of the model after 0, 1, ... *steps* steps that no fault disturbed."""
    result = [0]
    for step in range(1, steps + 1):
        data = data_of(seed, step - 1, samples)
        result.append(mixed(result[-1] ^ data ^ step * 0x2545F4914F6CDD1D & MASK))
    return tuple(result)


def sum_of(data: bytes) -> int:
    """The state of a model that has these weights."""
    result = len(data)
    for x in data:
        result = mixed(result ^ x)
    return result


def recorded_states(records: list) -> list:
    """The states of a run that no fault disturbed, from what its rank 0 wrote down."""
    return [0] + [int(x["state"], 16) for x in records if x["what"] == "acked"]


@functools.lru_cache(maxsize=4096)
def content_of(step: int, state: int, attempt: int, world: int, rank: int, size: int) -> bytes:
    """What rank *rank* (-1: the model) of *world* ranks saves."""
    out = f"{attempt} {world} {rank} {step} {state:016x}\n".encode()
    value = state + rank + 1 & MASK
    for _ in range(size // 8):
        value = mixed(value)
        out += value.to_bytes(8, "little")
    return out


def read_checkpoint(folder: Path) -> Checkpoint:
    problems: list = []
    try:
        manifest = checked_json((folder / "manifest.json").read_bytes(), f"{folder.name}/manifest.json")
    except FileNotFoundError:
        return Checkpoint(folder.name, None, ["it has no manifest"])
    except Damaged as problem:
        return Checkpoint(folder.name, None, [str(problem)])
    for entry in manifest["files"]:
        path = folder / entry["path"]
        if not path.is_file():
            problems.append(f"{entry['path']} is missing")
            continue
        data = path.read_bytes()
        if len(data) != entry["size"]:
            problems.append(f"{entry['path']} has {len(data)} bytes, not {entry['size']}")
        elif checksum_of(data) != entry["checksum"]:
            problems.append(f"{entry['path']} does not match its checksum")
    return Checkpoint(folder.name, manifest, problems)


def read_checkpoints(run: Path) -> dict:
    """All that a reader would take for a checkpoint, by name."""
    folder = run / "checkpoints"
    if not folder.is_dir():
        return {}
    return {x.name: read_checkpoint(x) for x in sorted(folder.iterdir()) if x.is_dir() and not x.name.startswith(".")}


# -- documents and records


def read_document(path: Path) -> dict | None:
    """state.json or run.json; None if there is none."""
    return checked_json(path.read_bytes(), path.name) if path.exists() else None


def read_records(path: Path) -> list:
    """Lines of JSON without checksums, as the trainee writes them."""
    if not path.exists():
        return []
    return [json.loads(x) for x in path.read_bytes().splitlines(keepends=True) if x.endswith(b"\n")]


def tracker_losses(run: Path) -> dict:
    """(report index, loss) of what each tracker has on disk, in its order, by the tracker's file or folder."""
    result: dict = {}
    table = run / "metrics.csv"
    if table.exists():
        with table.open(newline="", encoding="utf-8") as file:
            result["metrics.csv"] = [(int(row["index"]), float(row["loss"])) for row in csv.DictReader(file)
                                     if row["index"]]
    lines = run / "result.json"
    if lines.exists():
        rows = [json.loads(x) for x in lines.read_text().splitlines()]
        result["result.json"] = [(x["training_iteration"] - 1, x["loss"]) for x in rows]
    for path in sorted((run.parent / "mlruns").glob("*/*/metrics/loss")):
        rows = [x.split() for x in path.read_text().splitlines()]
        if (path.parents[1] / "tags" / "troupe.run_uid").read_text() == run_id(run):
            result.setdefault("mlruns", []).extend((int(step), float(value)) for _, value, step in rows)
    files = sorted((run / "tensorboard").glob("**/*tfevents*"))
    if files:
        result["tensorboard"] = [x for path in files for x in scalars_of(path.read_bytes(), "loss")]
    page = run / "report.html"
    if page.exists():
        result["report.html"] = page_losses(page.read_text(encoding="utf-8"))
    return result


def run_id(run: Path) -> str:
    return (read_document(run / "run.json") or {}).get("id", "")


def page_losses(text: str) -> list:
    data = json.loads(re.search('<script type="application/json" id="data">\n(.*?)</script>', text, re.DOTALL)[1])
    for chart in data["groups"]["metrics"]["charts"]:
        for curve in chart["curves"]:
            if curve["label"] == "loss":
                return list(zip(data["axes"][curve["axis"]]["x"], curve["mean"]))
    return []


def fields_of(data: bytes):
    """(number, value) of each field of a protobuf message; integers, or the bytes of all else."""
    def varint(at):
        value = shift = 0
        while True:
            value |= (data[at] & 127) << shift
            shift += 7
            at += 1
            if data[at - 1] < 128:
                return value, at

    at = 0
    while at < len(data):
        key, at = varint(at)
        kind = key & 7
        if kind == 0:
            value, at = varint(at)
            yield key >> 3, value
            continue
        size, at = varint(at) if kind == 2 else ({1: 8, 5: 4}[kind], at)
        yield key >> 3, data[at:at + size]
        at += size


def scalars_of(data: bytes, tag: str) -> list:
    """(step, value) of each scalar called *tag* in a TensorBoard event file."""
    result = []
    at = 0
    while at + 12 <= len(data):
        size = struct.unpack_from("<Q", data, at)[0]
        event = list(fields_of(data[at + 12:at + 12 + size]))
        at += 12 + size + 4
        step = next((x for number, x in event if number == 2), 0)
        for summary in (x for number, x in event if number == 5):
            for value in (dict(fields_of(x)) for number, x in fields_of(summary) if number == 1):
                if value[1].decode() == tag and 2 in value:
                    result.append((step, struct.unpack("<f", value[2])[0]))
    return result


@dataclass
class Case:
    """All that is known about one case: its folder, the plan, and what became of its drivers."""
    folder: Path
    plan: dict  # steps, workers (the most), every, keep, bytes, seed; fewest if the run is elastic
    starts: list = field(default_factory=list)  # one dict a driver, see campaign.py

    @property
    def run(self) -> Path:
        return self.folder / "s" / "run"

    @property
    def expected(self) -> Path:
        return self.folder / "x"

    def save(self) -> None:
        text = json.dumps({"plan": self.plan, "starts": self.starts}, indent=1)
        (self.folder / "case.json").write_text(text, encoding="utf-8")

    @staticmethod
    def load(folder: Path) -> "Case":
        data = json.loads((folder / "case.json").read_text(encoding="utf-8"))
        return Case(folder, data["plan"], data["starts"])
