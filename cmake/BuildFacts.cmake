# Writes OUTPUT, a header with facts about this build; leaves the file alone where nothing changed.
# Run at every build: cmake -D OUTPUT=... -D SOURCE=... -D PARTS=... -D VERSION=... (and the rest below) -P BuildFacts.cmake
#
# PARTS: files and folders of SOURCE that the binary is made from, separated by commas. Equal sources get the same stamp
# on every machine, other sources another one: the commit, where they are as committed; else also a hash of them all.

string(REPLACE "," ";" parts "${PARTS}")

# Path and content of everything in the parts; notes apart, which nothing is made from.
function(hash_sources result)
  set(names ${parts})
  list(TRANSFORM names PREPEND ${SOURCE}/)
  list(TRANSFORM names APPEND /*)
  file(GLOB_RECURSE files LIST_DIRECTORIES false RELATIVE ${SOURCE} ${names})
  foreach(part IN LISTS parts)
    if(EXISTS ${SOURCE}/${part} AND NOT IS_DIRECTORY ${SOURCE}/${part})
      list(APPEND files ${part})
    endif()
  endforeach()
  list(FILTER files EXCLUDE REGEX "\\.md$")
  list(SORT files)
  set(all "")
  foreach(file IN LISTS files)
    file(SHA256 ${SOURCE}/${file} hash)
    string(APPEND all "${file} ${hash}\n")
  endforeach()
  string(SHA256 hash "${all}")
  string(SUBSTRING ${hash} 0 12 hash)
  set(${result} ${hash} PARENT_SCOPE)
endfunction()

# Not `git describe`: its answer also depends on the tags and on the number of objects of a clone.
set(git git --no-optional-locks -C ${SOURCE})
execute_process(COMMAND ${git} rev-parse --verify HEAD OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(commit)
  string(SUBSTRING ${commit} 0 12 commit)
  execute_process(COMMAND ${git} status --porcelain --untracked-files=all -- ${parts} ":(exclude)*.md"
    OUTPUT_VARIABLE edits ERROR_QUIET)
  if(edits)
    hash_sources(hash)
    string(APPEND commit "-dirty-${hash}")
  endif()
else()
  hash_sources(hash)
  set(commit "sources-${hash}")
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
