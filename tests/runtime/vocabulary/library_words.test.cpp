#include "runtime/vocabulary/library_words.hpp"

#include <catch2/catch_test_macros.hpp>

namespace troupe {
namespace {

TEST_CASE("the code of a library's word is left out, and nothing else", "[vocabulary]") {
  CHECK(without_code("[json.exception.out_of_range.403] key 'a] b' not found") ==
        "key 'a] b' not found");
  for (const char* word :
       {"", "no code", "[json.exception.", "a [json.exception.type_error.302] b"})
    CHECK(without_code(word) == word);
}

TEST_CASE("what LibTorch says of memory is told from all else", "[vocabulary]") {
  CHECK(
      is_about_memory("[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't "
                      "allocate memory: you tried to allocate 80 bytes."));
  CHECK(is_about_memory("DefaultCPUAllocator: not enough memory: you tried to allocate 80 bytes."));
  CHECK(is_about_memory("CUDA out of memory. Tried to allocate 20.00 GiB."));
  CHECK_FALSE(is_about_memory("shape '[3]' is invalid for input of size 2"));
  CHECK_FALSE(is_about_memory(""));
}

}  // namespace
}  // namespace troupe
