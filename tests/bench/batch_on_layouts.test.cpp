#include "tests/torch_catch.hpp"

#include "tests/bench/batch_on_layouts.hpp"

#include <catch2/generators/catch_generators.hpp>

namespace troupe::bench {
namespace {

TEST_CASE("batches of the planning bench are looked at on its layouts", "[engine]") {
  const bool has_encoder = GENERATE(false, true);
  CAPTURE(has_encoder);
  const ModelGraph model = model_of(12, has_encoder);
  const BatchOnLayouts batch(model, 64);
  for (const int nodes : {10, 20}) CHECK(batch.check(plan_of(model, nodes)).ok());
}

TEST_CASE("a look of the planning bench weighs its batch", "[engine][errors]") {
  // Of a sample the encoder keeps 2 GB; a pipeline has 4,096 in 64 microbatches: 130 of 80 GB.
  const ModelGraph model = model_of(12, true);
  const auto room = BatchOnLayouts(model, 8192).check(plan_of(model, 20));
  REQUIRE_FALSE(room.ok());
  CHECK(room.error().code == Errc::infeasible);
}

}  // namespace
}  // namespace troupe::bench
