# Shared by the scripts: where dependencies live, how to speak. Sourced from the repository root.

say() { printf '%s\n' "[$(basename "$0")] $*"; }
fail() { printf '%s\n' "$*" >&2; exit 1; }

LIBTORCH_VERSION=2.11.0
PYTHON_SHORT=$(/usr/bin/python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null || echo 3.11)
TROUPE_DEPS=${TROUPE_DEPS:-${XDG_CACHE_HOME:-$HOME/.cache}/troupe}
LIBTORCH_ROOT=$TROUPE_DEPS/libtorch-$LIBTORCH_VERSION
REFERENCE_ROOT=$TROUPE_DEPS/reference-$LIBTORCH_VERSION
TORCH_DIR=$LIBTORCH_ROOT/lib/python$PYTHON_SHORT/site-packages/torch
