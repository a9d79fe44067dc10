"""kernels.py CSV: reads ncu's report of gpu__time_duration.sum and adds up the times of each kernel."""
import collections
import csv
import re
import sys

MICROSECONDS = {"ns": 1e-3, "nsecond": 1e-3, "us": 1, "usecond": 1, "ms": 1e3, "msecond": 1e3}
total, count = collections.Counter(), collections.Counter()
with open(sys.argv[1], errors="replace") as file:
    rows = list(csv.DictReader(line for line in file if line.startswith('"')))
for row in rows:
    name = re.sub(r"\(.*", "", row["Kernel Name"])[:90]
    total[name] += float(row["Metric Value"].replace(",", "")) * MICROSECONDS[row["Metric Unit"]]
    count[name] += 1
print(f"{sum(total.values()) / 1e3:.1f} ms in {sum(count.values())} kernels")
for name, us in total.most_common(30):
    print(f"{us / 1e3:8.2f} ms {count[name]:6d} x {us / count[name]:7.1f} us  {name}")
