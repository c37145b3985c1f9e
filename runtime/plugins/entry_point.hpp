// What makes a shared library a plug-in: one source file of it ends with
//
//   TROUPE_PLUGIN(register_all)
//
// where `troupe::Status register_all()` registers what the library has: families
// (models/plugin.hpp), policies (runtime/policies/registry.hpp), schedules
// (runtime/schedules/registry.hpp), formats of data (runtime/data/formats/registry.hpp), observers
// (runtime/observers/observer.hpp) or ways to run stages (engine/execution/stage_kinds.hpp). Built
// with `troupe_plugin` of the installed CMake package and named in a job file:
//
//   [plugins]
//   libraries = ["libmine.so"]
//
// The interface is C++ and holds for one build: a plug-in that was built against other headers is
// refused, with what both were built from (`TROUPE_INTERFACE`, which the CMake package defines).

#pragma once

#include <exception>

#include "runtime/vocabulary/result.hpp"

/// Ends the source of a plug-in; `register_all`: a function without arguments that gives a
/// `Status`.
#define TROUPE_PLUGIN(register_all)                                                             \
  extern "C" __attribute__((visibility("default"))) const char* troupe_plugin_interface() {     \
    return TROUPE_INTERFACE ", by " __VERSION__;                                                \
  }                                                                                             \
  extern "C" __attribute__((visibility("default"))) void troupe_plugin_register(                \
      troupe::Status* answer) {                                                                 \
    try {                                                                                       \
      *answer = register_all();                                                                 \
    } catch (const std::exception& fault) {                                                     \
      *answer = troupe::Error{troupe::Errc::internal, fault.what(), {}, "correct the plug-in"}; \
    } catch (...) {                                                                             \
      *answer = troupe::Error{                                                                  \
          troupe::Errc::internal, "it throws no std::exception", {}, "correct the plug-in"};    \
    }                                                                                           \
  }
