#include "tests/torch_catch.hpp"

#include "engine/contract/leaks.hpp"

#include <regex>

#include "tests/engine/faulty_job.hpp"

namespace troupe::engine {
namespace {

TEST_CASE("a layer that keeps memory is named among those of its stage", "[engine][errors]") {
  ContractOptions options;
  options.module = "projector";
  const auto verdicts = check(faulty_job("keeps"), options);
  REQUIRE(verdicts.size() == 1);
  REQUIRE(verdicts.front().breaches.size() == 1);
  const Breach& leak = verdicts.front().breaches.front();
  CHECK(leak.promise == "memory");
  INFO(leak.found);
  // Alone it gets the same rows, so that all bytes are its; the first layer keeps none.
  CHECK(std::regex_match(leak.found,
                         std::regex("each round keeps ([1-9][0-9]*) bytes for good; by itself "
                                    "layer 'projector\\.second' keeps \\1")));
  CHECK(leak.fix.starts_with("tensors that a layer keeps"));
}

TEST_CASE("of memory that is kept nobody is blamed where not each layer can be tried alone",
          "[engine][errors]") {
  ContractOptions options;
  options.module = "projector";
  const auto verdicts = check(faulty_job("hoards"), options);
  REQUIRE(verdicts.size() == 1);
  REQUIRE_FALSE(verdicts.front().breaches.empty());  // The first; how it is cut is another.
  const Breach& leak = verdicts.front().breaches.front();
  CHECK(leak.promise == "memory");
  INFO(leak.found);
  CHECK(leak.found.ends_with(" bytes for good; not each of its layers can be tried by itself"));
  CHECK(leak.fix.starts_with("tensors that a layer keeps"));
}

TEST_CASE("memory that a stage keeps beside its layers is its kind's", "[engine][errors]") {
  ContractOptions options = by_layer();
  options.module = "projector";
  stage_fault() = "keeps";
  const auto verdicts = check(faulty_job("none"), options);
  stage_fault().clear();
  REQUIRE(verdicts.size() == 1);
  REQUIRE(verdicts.front().breaches.size() == 1);
  const Breach& leak = verdicts.front().breaches.front();
  CHECK(leak.promise == "memory");
  // By hand: two microbatches, ten doubles at the forward of each.
  CHECK(
      leak.found ==
      "each round keeps 160 bytes for good; its layers, run by the engine's own stage, keep none");
  CHECK(leak.fix == "tensors that stage kind 'around-faulty' keeps");
}

}  // namespace
}  // namespace troupe::engine
