# troupe_precompile(NAME HEADERS header... [DEPS target...] [OPTIONS option...])
#   Compiles these headers of libraries once, for all targets that `troupe_precompiled` names.
#
# troupe_precompiled(TARGET NAME)
#   TARGET's sources begin with these headers, and are compiled with NAME's options.
#
# The presets `dev` and `tsan` switch this off (CMAKE_DISABLE_PRECOMPILE_HEADERS): sources compile without it.

file(WRITE ${CMAKE_BINARY_DIR}/empty.cpp "")

function(troupe_precompile name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "HEADERS;DEPS;OPTIONS")
  # Without -fpch-preprocess ccache cannot see that a source depends on them. They themselves are compiled without it:
  # ccache would see the compiled ones of before in the place of the headers, and take what it made of other headers.
  set(options ${arg_OPTIONS} $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
  add_library(troupe_precompiled_${name} OBJECT EXCLUDE_FROM_ALL ${CMAKE_BINARY_DIR}/empty.cpp)
  target_link_libraries(troupe_precompiled_${name} PRIVATE troupe_settings ${arg_DEPS})
  target_compile_options(troupe_precompiled_${name} PRIVATE ${arg_OPTIONS})
  target_precompile_headers(troupe_precompiled_${name} PRIVATE ${arg_HEADERS})
  if(CMAKE_CXX_COMPILER_LAUNCHER)
    # GCC knows the headers in a compiled one by their every byte (`#pragma once`), so another comment is another one.
    # By default ccache compares what the preprocessor prints, which has no comments; so, each file as it is.
    set_target_properties(troupe_precompiled_${name} PROPERTIES
      CXX_COMPILER_LAUNCHER "env;CCACHE_DEPEND=1;${CMAKE_CXX_COMPILER_LAUNCHER}")
  endif()
  set_target_properties(troupe_precompiled_${name} PROPERTIES TROUPE_OPTIONS "${options}")
endfunction()

function(troupe_precompiled target name)
  get_target_property(options troupe_precompiled_${name} TROUPE_OPTIONS)
  target_compile_options(${target} PRIVATE ${options})
  target_precompile_headers(${target} REUSE_FROM troupe_precompiled_${name})
endfunction()

# What compiles fast matters more in these than what runs fast: their loops are in the libraries.
set(light_options $<$<CONFIG:Release>:-Og>)

set(test_headers <algorithm> <filesystem> <fstream> <functional> <map> <memory> <optional> <random> <set> <string>
  <vector> <catch2/catch_test_macros.hpp> <catch2/catch_approx.hpp> <catch2/generators/catch_generators_all.hpp>
  <catch2/matchers/catch_matchers_floating_point.hpp> <catch2/matchers/catch_matchers_string.hpp>
  <nlohmann/json.hpp>)
troupe_precompile(tests DEPS Catch2::Catch2 nlohmann_json::nlohmann_json OPTIONS ${light_options}
  HEADERS ${test_headers})
set(torch_test_headers <tests/torch_catch.hpp> <ATen/Parallel.h> <ATen/ops/arange.h> <ATen/ops/full.h>
  <ATen/ops/tensor.h> ${test_headers})
troupe_precompile(torch_tests DEPS Catch2::Catch2 nlohmann_json::nlohmann_json Torch::c10 OPTIONS ${light_options}
  HEADERS ${torch_test_headers})
# Whoever changes a message builds all of these anyway.
troupe_precompile(actor_tests DEPS Catch2::Catch2 nlohmann_json::nlohmann_json CAF::core Torch::c10 OPTIONS ${light_options}
  HEADERS ${torch_test_headers} <caf/all.hpp> <actors/link/protocol.hpp>)
troupe_precompile(commands DEPS CLI11::CLI11 nlohmann_json::nlohmann_json OPTIONS ${light_options}
  HEADERS <algorithm> <chrono> <filesystem> <iostream> <map> <memory> <optional> <string> <vector> <CLI/CLI.hpp>
    <nlohmann/json.hpp>)
