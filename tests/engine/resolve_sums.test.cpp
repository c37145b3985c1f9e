#include "engine/layout/resolve_sums.hpp"
#include "tests/engine/tiny_job.hpp"
#include "tests/torch_catch.hpp"

#include <catch2/matchers/catch_matchers_string.hpp>
#include <string>

namespace troupe::engine {
namespace {

using Catch::Matchers::ContainsSubstring;

job::Job open_job() {
  job::Job job = tiny_job();
  job.cluster.sums = "auto";
  return job;
}

/// A machine where all four devices of the tiny job are GPUs of their own.
scheduler::CallFacts four_gpus() {
  scheduler::CallFacts facts;
  facts.device = "cuda";
  facts.has_streams = facts.over_host = true;
  facts.devices = facts.devices_there = 4;
  return facts;
}

TEST_CASE("sums that a job leaves open are by messages where nobody can call NCCL", "[engine]") {
  const auto resolved = resolve_sums(open_job(), {}, "");
  REQUIRE(resolved.ok());
  CHECK(resolved.value().sums == "messages");
  CHECK(resolved.value().reason.choice == "sums by messages");
  CHECK(resolved.value().reason.why ==
        "NCCL adds up in the memory of GPUs, and the devices are cpu");
}

TEST_CASE("sums that a job leaves open are by NCCL where that is no slower", "[engine]") {
  const auto resolved = resolve_sums(open_job(), four_gpus(), "");
  REQUIRE(resolved.ok());
  CHECK(resolved.value().sums == "nccl");
  CHECK(resolved.value().reason.choice == "sums by NCCL");
  CHECK_THAT(resolved.value().reason.why, ContainsSubstring("as predicted"));
}

TEST_CASE("a job that cannot be planned has no sums to choose", "[engine][errors]") {
  job::Job job = open_job();
  job.data.max_pixels = 1;
  const auto refused = resolve_sums(job, four_gpus(), "");
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().where == "data.max_pixels");
}

TEST_CASE("a run that goes on keeps its sums while its devices can do so", "[engine]") {
  const auto kept = [](const scheduler::CallFacts& facts, const std::string& sums) {
    return resolve_sums(open_job(), facts, sums).value();
  };
  for (const char* sums : {"messages", "nccl", "nccl-chain"}) {
    CAPTURE(sums);
    CHECK(kept(four_gpus(), sums).sums == sums);
    CHECK(kept(four_gpus(), sums).reason.why == "the run that goes on has them");
  }
  CHECK(kept(four_gpus(), "messages").reason.choice == "sums by messages");
  CHECK(kept(four_gpus(), "nccl-chain").reason.choice == "sums by NCCL");
  CHECK(kept({}, "nccl-chain").sums == "messages");
  CHECK_THAT(kept({}, "nccl-chain").reason.why, ContainsSubstring("the devices are cpu"));
}

}  // namespace
}  // namespace troupe::engine
