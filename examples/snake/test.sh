#!/usr/bin/env bash
# Builds the plug-in, shows what the policy does to the data, trains some steps over two stages, and holds what they
# trained against one process that trains the same batches on the whole model.
#
#   ./test.sh PREFIX      PREFIX: where Troupe is installed (cmake --install build/release --prefix PREFIX)
set -euo pipefail
prefix=$(realpath "${1:?usage: ./test.sh PREFIX}")
cd "$(dirname "$0")"
cmake -S . -B build -G Ninja -DCMAKE_PREFIX_PATH="$prefix"
cmake --build build
[ -e data ] || "$prefix/bin/troupe" data make data --uneven --samples 200
"$prefix/bin/troupe" balance job.toml --policy snake --cluster H100
short=(train.steps=8 train.dtype=fp64)
"$prefix/bin/troupe" train job.toml "${short[@]}" job.run_dir=build/staged --fresh
"$prefix/bin/troupe" train job.toml "${short[@]}" job.run_dir=build/reference --reference --fresh
"$prefix/bin/troupe" compare build/reference build/staged --rtol 1e-10 --loss-rtol 1e-10
