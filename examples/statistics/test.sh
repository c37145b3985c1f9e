#!/usr/bin/env bash
# Builds the plug-in, trains some steps with it, shows what it saw, and holds what was trained against a job without it.
#
#   ./test.sh PREFIX      PREFIX: where Troupe is installed (cmake --install build/release --prefix PREFIX)
set -euo pipefail
prefix=$(realpath "${1:?usage: ./test.sh PREFIX}")
cd "$(dirname "$0")"
cmake -S . -B build -G Ninja -DCMAKE_PREFIX_PATH="$prefix"
cmake --build build
[ -e data ] || "$prefix/bin/troupe" data make data --samples 200
short=(train.steps=8 train.dtype=fp64)
"$prefix/bin/troupe" train job.toml "${short[@]}" job.run_dir=build/seen --fresh
"$prefix/bin/troupe" train job.toml "${short[@]}" observe.observers=[] job.run_dir=build/unseen --fresh
"$prefix/bin/troupe" compare build/unseen build/seen --rtol 0 --loss-rtol 0
head -n 4 build/seen/observers/statistics/node-*.jsonl
