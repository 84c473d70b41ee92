#!/usr/bin/env python3
"""Reads a run back from its folder with pandas: rank 0's metrics, those of all ranks, the best checkpoint.

  read_results.py FOLDER [METRIC]
"""
import json
import sys
from pathlib import Path

import pandas

folder = Path(sys.argv[1])
metric = sys.argv[2] if len(sys.argv) > 2 else "loss"


def entries(path):
    """Objects in the lines of a journal. A line that is damaged, or still being written, is left out."""
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            try:
                yield json.loads(line)
            except ValueError:
                pass


def value(x):
    """NaN and infinities, which JSON does not have, are objects such as {"float": "nan"}."""
    return float(x["float"]) if isinstance(x, dict) and "float" in x else x


# metrics.csv: one row per report, with what rank 0 reported. A report that was lost to a restart has a later row of the
# same index, and the later one counts. Rows without an index are of context.log().
if not (folder / "metrics.csv").exists():
    sys.exit(f"read_results.py: there is no {folder / 'metrics.csv'}")
try:
    table = pandas.read_csv(folder / "metrics.csv")
except pandas.errors.EmptyDataError:
    sys.exit(f"read_results.py: {folder} has no reports yet")
if metric not in table:
    sys.exit(f"read_results.py: {folder} has no metric {metric}; its columns are {', '.join(table)}")
table = table.reindex(columns=list(dict.fromkeys(["index", "attempt", "checkpoint", metric]))).dropna(subset=["index"])
table = table.astype({"index": int}).drop_duplicates("index", keep="last")
table[metric] = pandas.to_numeric(table[metric], errors="coerce")
print(table.to_string(index=False))

# journal.jsonl: one JSON object per line. Those with "batch" are reports, with the values of every rank.
ranks = pandas.DataFrame([{"batch": x["batch"], "rank": rank, "value": value(values.get(metric))}
                          for x in entries(folder / "journal.jsonl") if "batch" in x
                          for rank, values in enumerate(x["values"])], columns=["batch", "rank", "value"])
ranks = ranks.drop_duplicates(["batch", "rank"], keep="last")
ranks["value"] = pandas.to_numeric(ranks["value"], errors="coerce")
print(ranks.groupby("batch")["value"].agg(["mean", "min", "max"]).to_string())

with_checkpoint = table[table["checkpoint"].notna() & table[metric].notna()].sort_values(metric)
if with_checkpoint.empty:
    print(f"no checkpoint has a number {metric}")
else:
    best = with_checkpoint.iloc[0]
    print(f"the lowest {metric} is {best[metric]:.4g}, in report {best['index']}")
