#!/usr/bin/env python3
"""Sums up what bench_ranks_link printed, plan by plan. An error is predicted / measured - 1, where measured is the median
of a round's steps.
usage: ranks_link.py MACHINE LINES.jsonl ... >bench/results/ranks-link.json     (the lines' default link, model and batch)
"""
import json
import pathlib
import statistics
import sys


def row_of(lines):
    measured = [statistics.median(line["seconds"]) for line in lines]
    predicted = [line["predicted_seconds"] for line in lines]
    errors = [p / m - 1 for p, m in zip(predicted, measured)]
    busy = {of: {queue: round(statistics.median(line[of]["busy_seconds"][queue] for line in lines), 3)
                 for queue in ("compute", "comm")} for of in ("predicted", "measured")}
    return {"plan": lines[0]["plan"], "options": dict(lines[0]["options"]),
            "predicted_seconds": [round(p, 4) for p in predicted],
            "measured_seconds": [round(m, 4) for m in measured],
            "spread_of_steps": [round(max(line["seconds"]) / min(line["seconds"]) - 1, 3) for line in lines],
            "errors": [round(e, 4) for e in errors], "median_error": round(statistics.median(errors), 4), "busy": busy}


def main():
    machine, files = sys.argv[1], sys.argv[2:]
    plans = {}
    for file in files:
        for line in pathlib.Path(file).read_text().splitlines():
            line = json.loads(line)
            plans.setdefault(json.dumps([line["plan"], line["options"]]), []).append(line)
    rows = [row_of(lines) for lines in plans.values()]
    rounds = [[abs(row["errors"][i]) for row in rows] for i in range(len(rows[0]["errors"]))]
    errors = [error for of_round in rounds for error in of_round]
    summary = {"median_error_of_each_round": [round(statistics.median(r), 3) for r in rounds],
               "worst_error_of_each_round": [round(max(r), 3) for r in rounds],
               "median_error": round(statistics.median(errors), 3),
               "within_10_percent": sum(error <= 0.1 for error in errors), "of": len(errors),
               "worst_median_of_a_plan": round(max(abs(row["median_error"]) for row in rows), 3)}
    print(json.dumps({"machine": machine, "model": "gpt2-124m.onnx", "precision": "fp32", "ranks": 2, "threads": 1,
                      "batch": 1, "sequence": 64, "link": {"bytes_per_second": 1e9, "seconds": 1e-3},
                      "rounds": len(rounds), "summary": summary, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
