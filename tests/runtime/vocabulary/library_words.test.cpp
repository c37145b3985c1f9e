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

}  // namespace
}  // namespace troupe
