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

# metrics.csv: one row per report, with what rank 0 reported. A report that was lost to a restart has a later row of the
# same index, and the later one counts.
table = pandas.read_csv(folder / "metrics.csv").drop_duplicates("index", keep="last")
print(table[["index", "attempt", "checkpoint", metric]].to_string(index=False))

# journal.jsonl: one JSON object per line. Those with "batch" are reports, with the values of every rank.
with open(folder / "journal.jsonl", encoding="utf-8") as file:
    lines = [json.loads(line) for line in file]
ranks = pandas.DataFrame([{"batch": x["batch"], "rank": rank, **values}
                          for x in lines if "batch" in x for rank, values in enumerate(x["values"])])
ranks = ranks.drop_duplicates(["batch", "rank"], keep="last")
print(ranks.groupby("batch")[metric].agg(["mean", "min", "max"]).to_string())

best = table[table["checkpoint"].notna()].sort_values(metric).iloc[0]
print(f"the lowest {metric} is {best[metric]:.4g}, in report {best['index']}")
