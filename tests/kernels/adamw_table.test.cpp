// Which elements of which parameters the thread blocks of a launch of AdamW step.

#include "kernels/gpu/adamw_table.hpp"

#include <catch2/catch_test_macros.hpp>

#include <cstdint>
#include <random>
#include <vector>

using namespace troupe::kernels::gpu;

namespace {

AdamWTensor of_size(std::int64_t count) {
  AdamWTensor tensor;
  tensor.count = count;
  return tensor;
}

/// An address, of which nothing is read.
void* at_byte(std::uintptr_t byte) { return reinterpret_cast<void*>(byte); }

}  // namespace

TEST_CASE("a block steps a thousand elements of one tensor, in the order of tensors", "[kernels]") {
  // One block, one whole block, none, a whole block and an element more.
  const std::vector<AdamWTensor> tensors{of_size(1), of_size(1024), of_size(0), of_size(1025)};
  const auto tables = adamw_tables(tensors);
  REQUIRE(tables.size() == 1);
  const AdamWTable& table = tables.front();
  REQUIRE(table.size == 3);
  CHECK(table.blocks() == 4);
  CHECK(table.tensors[2].count == 1025);
  const std::vector<AdamWPiece> wanted{{0, 0, 1}, {1, 0, 1024}, {2, 0, 1024}, {2, 1024, 1025}};
  for (std::int32_t block = 0; block < 4; ++block) {
    CAPTURE(block);
    const AdamWPiece piece = piece_of(table, block);
    const AdamWPiece& expected = wanted[static_cast<std::size_t>(block)];
    CHECK(piece.tensor == expected.tensor);
    CHECK(piece.begin == expected.begin);
    CHECK(piece.end == expected.end);
  }
  CHECK(adamw_tables({}).empty());
}

TEST_CASE("launches of many tensors step each element once", "[kernels][property]") {
  std::mt19937 draws(7);
  std::uniform_int_distribution<std::int64_t> sizes(1, 6000);
  std::vector<AdamWTensor> tensors;
  for (int i = 0; i < 2 * kAdamWTensors + 22; ++i) tensors.push_back(of_size(sizes(draws)));
  const auto tables = adamw_tables(tensors);
  REQUIRE(tables.size() == 3);
  CHECK(tables[0].size == kAdamWTensors);
  CHECK(tables[2].size == 22);
  std::size_t first = 0;
  for (const AdamWTable& table : tables) {
    std::vector<std::int64_t> reached(static_cast<std::size_t>(table.size));
    for (std::int32_t block = 0; block < table.blocks(); ++block) {
      const AdamWPiece piece = piece_of(table, block);
      auto& begin = reached.at(static_cast<std::size_t>(piece.tensor));
      REQUIRE(piece.begin == begin);
      REQUIRE(piece.end > piece.begin);
      REQUIRE(piece.end - piece.begin <= kAdamWElements);
      begin = piece.end;
    }
    for (std::size_t t = 0; t < reached.size(); ++t) {
      CHECK(table.tensors[t].count == tensors[first + t].count);
      CHECK(reached[t] == tensors[first + t].count);
    }
    first += reached.size();
  }
  CHECK(first == tensors.size());
}

TEST_CASE("vectors are read where all of a tensor begins with a whole one", "[kernels]") {
  AdamWTensor whole = of_size(8);
  whole.weight = at_byte(64), whole.mean = at_byte(128), whole.square = at_byte(16);
  std::vector<AdamWTensor> tensors(6, whole);
  tensors[1].weight = at_byte(68);
  tensors[2].mean = at_byte(132);
  tensors[3].square = at_byte(8);
  tensors[4].gradient = at_byte(12);
  tensors[5].rounded = at_byte(2);
  const auto tables = adamw_tables(tensors);
  REQUIRE(tables.size() == 1);
  CHECK(tables[0].in_vectors[0]);  // Without a gradient, and nothing to round.
  for (std::size_t t = 1; t < tensors.size(); ++t) {
    CAPTURE(t);
    CHECK_FALSE(tables[0].in_vectors[t]);
  }
}
