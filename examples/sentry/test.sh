#!/usr/bin/env bash
# Builds the plug-in, holds what is trained with it against a job without it, and shows what it says where numbers run away.
#
#   ./test.sh PREFIX      PREFIX: where Troupe is installed (cmake --install build/release --prefix PREFIX)
set -euo pipefail
prefix=$(realpath "${1:?usage: ./test.sh PREFIX}")
cd "$(dirname "$0")"
cmake -S . -B build -G Ninja -DCMAKE_PREFIX_PATH="$prefix"
cmake --build build
[ -e data ] || "$prefix/bin/troupe" data make data --samples 200
short=(train.steps=4 train.dtype=fp64)
"$prefix/bin/troupe" train job.toml "${short[@]}" job.run_dir=build/own --fresh
"$prefix/bin/troupe" train job.toml "${short[@]}" plugins.libraries=[] job.run_dir=build/built-in --fresh
"$prefix/bin/troupe" compare build/built-in build/own --rtol 0 --loss-rtol 0
# Each step multiplies parameters by a million: soon their products are beyond what fp32 holds.
wild=(train.steps=20 optimizer.lr=1000 optimizer.weight_decay=1000 optimizer.warmup_steps=0)
if "$prefix/bin/troupe" train job.toml "${wild[@]}" job.run_dir=build/wild --fresh 2> build/wild.log; then
  echo "nothing stopped it" >&2
  exit 1
fi
grep "not finite: " build/wild.log
