#include "runtime/vocabulary/logit_chunks.hpp"

#include <catch2/catch_test_macros.hpp>

namespace troupe {
namespace {

TEST_CASE("a chunk has as many rows as fit, in multiples of 64", "[vocabulary]") {
  // 64 MiB over 4 bytes x 32,000 columns are 524.3 rows; over 4 x 4096 just 4096.
  CHECK(LogitChunks{}.at_once(32'000, 4) == 512);
  CHECK(LogitChunks{}.at_once(4096, 4) == 4096);
  // Of 150,000 columns in bf16 223 fit, in fp64 55: both are too few.
  CHECK(LogitChunks{}.at_once(150'000, 2) == 256);
  CHECK(LogitChunks{}.at_once(150'000, 8) == 256);
}

TEST_CASE("chunks that others ask for may be small", "[vocabulary]") {
  CHECK(LogitChunks{1000, 1}.at_once(10, 8) == 12);
  CHECK(LogitChunks{1000, 1}.at_once(1000, 8) == 1);
  CHECK(LogitChunks{1, 7}.at_once(1, 8) == 7);
}

}  // namespace
}  // namespace troupe
