"""How programs of this folder tell what they measured: a JSON object a line, as soon as it is taken."""

import json
import os
import statistics

# What makes two rows the same measurement.
KEYS = ("measure", "system", "peer", "kernel", "mask", "tokens", "heads", "kv_heads", "dim", "dtype")


def key_of(row):
    return tuple(row.get(key) for key in KEYS)


def spread(name, values):
    """Median, least and greatest of `values` under `name`."""
    return {name: round(statistics.median(values), 4), f"{name}_min": round(min(values), 4), f"{name}_max": round(max(values), 4)}


def emit(row):
    print(json.dumps(row), flush=True)


def already():
    """Keys of what an earlier try has measured: the file GPU_BENCH_HAVE holds its rows."""
    if not (path := os.environ.get("GPU_BENCH_HAVE")):
        return set()
    with open(path, encoding="utf-8") as file:
        return {key_of(row) for row in json.load(file)}


def rows_in(text):
    """The rows among a program's output."""
    rows = []
    for line in text.splitlines():
        if line.startswith("{"):
            try:
                rows.append(json.loads(line))
            except ValueError:
                continue  # Half a line of a program that was ended, or a log's own.
    return [row for row in rows if isinstance(row, dict)]


def merged(kept, new):
    """`kept`, with those of `new` in their places; a failure never takes a measurement's place."""
    rows = {key_of(row): row for row in kept}
    for row in new:
        if "error" not in row or "error" in rows.get(key_of(row), row):
            rows[key_of(row)] = row
    return list(rows.values())
