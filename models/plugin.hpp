// What the author of a plug-in includes: one source file that ends with
//
//   TROUPE_PLUGIN(register_all)
//
// where `troupe::Status register_all()` calls `troupe::models::register_family` and its kin. Built
// as a shared library (`troupe_plugin` of the installed CMake package) and named in a job file:
//
//   [plugins]
//   libraries = ["libmine.so"]
//
// The interface is C++ and holds for one build: a plug-in that was built against other headers is
// refused, with what both were built from (`TROUPE_INTERFACE`, which the CMake package defines).

#pragma once

#include <exception>

#include "models/family/block_work.hpp"
#include "models/family/family.hpp"
#include "models/family/registry.hpp"
#include "models/family/size_problems.hpp"
#include "models/layer.hpp"
#include "models/parameter_layer.hpp"

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
