# Writes OUTPUT, a header with facts about this build; leaves the file alone where nothing changed.
# Run at every build: cmake -D OUTPUT=... -D SOURCE=... -D VERSION=... (and the rest below) -P BuildFacts.cmake
execute_process(COMMAND git -C ${SOURCE} describe --always --dirty
  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT commit)
  set(commit "unknown commit")
endif()
set(text "// Made by cmake/BuildFacts.cmake.
#pragma once
namespace troupe::app {
inline constexpr const char* kVersion = \"${VERSION}\";
inline constexpr const char* kCommit = \"${commit}\";
inline constexpr const char* kCompiler = \"${COMPILER}\";
inline constexpr const char* kBuildType = \"${BUILD_TYPE}\";
inline constexpr const char* kSanitizers = \"${SANITIZERS}\";
inline constexpr const char* kUcxVersion = \"${UCX}\";
}  // namespace troupe::app
")
set(old "")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} old)
endif()
if(NOT old STREQUAL text)
  file(WRITE ${OUTPUT} "${text}")
endif()
