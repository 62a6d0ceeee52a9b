#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# old.sh TREE [OPTION ...] ENGINE ...: the generator against an older version of the library, as a
# control: what is known to be wrong there must be found. TREE is a checkout that was built by `make`
# (git worktree add TREE COMMIT). What the older pawl.h lacks is filled in. The options are those of
# generate.py; --failures 20 collects more.
set -e
tree=$(cd "$1" && pwd)
shift
here=$(cd "$(dirname "$0")/.." && pwd)
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
cat > "$out/old.h" <<'END'
#include "pawl.h"
#ifndef PAWL_LOST_REASONS
#define pawl_lock_lost_reason(x) 0
#define pawl_semaphore_lost_reason(x) 0
enum { PAWL_LOST_BROKEN = 1, PAWL_LOST_GONE = 2 };
#endif
END
${CC:-cc} -std=gnu11 -O1 -w -I"$tree/include" -I"$here" -include "$out/old.h" "$here"/*.c \
    -o "$out/generate" -L"$tree/build/release" -lpawl -lpthread \
    -Wl,-rpath,"$tree/build/release"
PAWL_ENGINE_DIR=$tree/build/release/engines PYTHONDONTWRITEBYTECODE=1 \
    python3 "$here/generate.py" --exe "$out/generate" "$@"
