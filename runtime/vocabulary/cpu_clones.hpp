// One copy of a function per level of instruction sets, resolved by the loader: for loops that gain
// much from vector registers, in a program that runs on every processor. What the function calls
// must be inlined into each copy.
//
// Levels of the psABI and not names of processors: GCC takes `arch=haswell` for Intel's own, and
// gives processors of others the plain copy.

#pragma once

// Sanitizers are not up yet when the loader resolves, so they get the plain copy.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#define TROUPE_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define TROUPE_CLONES
#endif
#define TROUPE_INLINE inline __attribute__((always_inline))

// Where clones will not do, since a loop's shape depends on the registers: functions of one level
// each, and a choice by the machine's.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define TROUPE_LEVELS
#define TROUPE_LEVEL(name) __attribute__((target("arch=" name)))
#endif

namespace troupe {

/// 4, 3 or 1: the highest of the psABI's levels x86-64-v4, -v3 and the plain one that runs here.
inline int cpu_level() {
#ifdef TROUPE_LEVELS
  static const int level = __builtin_cpu_supports("x86-64-v4")   ? 4
                           : __builtin_cpu_supports("x86-64-v3") ? 3
                                                                 : 1;
  return level;
#else
  return 1;
#endif
}

}  // namespace troupe
