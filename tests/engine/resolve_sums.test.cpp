#include "engine/layout/resolve_sums.hpp"
#include "engine/layout/choose_layout.hpp"
#include "engine/profiling/nominal_profile.hpp"
#include "tests/engine/tiny_job.hpp"
#include "tests/torch_catch.hpp"

#include <catch2/matchers/catch_matchers_string.hpp>
#include <string>
#include <utility>

namespace troupe::engine {
namespace {

using Catch::Matchers::ContainsSubstring;

JobSetup open_setup() {
  job::Job job = tiny_job();
  job.cluster.sums = "auto";
  return prepare(job).value();
}

/// A machine where all four devices of the tiny job are GPUs of their own.
scheduler::CallFacts four_gpus() {
  scheduler::CallFacts facts;
  facts.device = "cuda";
  facts.has_streams = facts.over_host = true;
  facts.devices = facts.devices_there = 4;
  return facts;
}

/// By a machine as its peak numbers would have it, as the profile at hand of a job that begins.
Result<scheduler::LayoutReason> choose(JobSetup& setup, const scheduler::DeviceSpeeds& speeds) {
  const ParallelPlan plan = make_parallel_plan(setup).value();
  return choose_sums(setup, four_gpus(), plan, prediction_of(setup, speeds));
}

/// What `prepare` makes of the same job with these sums.
bool is_as_prepared(const JobSetup& setup, const std::string& sums) {
  job::Job job = tiny_job();
  job.cluster.sums = sums;
  return setup.job.cluster.sums == sums && setup.model == prepare(job).value().model;
}

TEST_CASE("only sums that nobody has chosen are left open", "[engine]") {
  JobSetup setup = open_setup();
  CHECK(leaves_sums_open(setup.job));
  for (const char* sums : {"messages", "nccl", "nccl-chain"}) {
    use_sums(setup, sums);
    CHECK_FALSE(leaves_sums_open(setup.job));
    CHECK(is_as_prepared(setup, sums));
  }
}

TEST_CASE("sums that a job leaves open are by messages where nobody can call NCCL", "[engine]") {
  JobSetup setup = open_setup();
  const auto reason = settle_sums(setup, {}, "");
  REQUIRE(reason);
  CHECK(reason->choice == "sums by messages");
  CHECK(reason->why == "NCCL adds up in the memory of GPUs, and the devices are cpu");
  CHECK(is_as_prepared(setup, "messages"));
}

TEST_CASE("sums that a job leaves open are by NCCL where that is no slower", "[engine]") {
  JobSetup setup = open_setup();
  REQUIRE_FALSE(settle_sums(setup, four_gpus(), ""));
  CHECK(leaves_sums_open(setup.job));
  const auto reason = choose(setup, nominal_profile(setup).speeds);
  REQUIRE(reason.ok());
  CHECK(reason.value().choice == "sums by NCCL");
  CHECK_THAT(reason.value().why, ContainsSubstring("as predicted"));
  CHECK(is_as_prepared(setup, "nccl"));
}

TEST_CASE("layouts by costs that are there follow sums that are chosen later", "[engine]") {
  JobSetup setup = open_setup();
  const auto before = planning_costs(setup, nominal_profile(setup), Bytes{0}).value();
  setup.costs = before;
  use_sums(setup, "nccl");
  CHECK(setup.costs->model.graph() == setup.model);
  CHECK(before->model.graph().sums == SumOrder::chain);  // Others plan by these.
}

TEST_CASE("sums that cannot be predicted stay open", "[engine][errors]") {
  JobSetup setup = open_setup();
  scheduler::DeviceSpeeds speeds;
  speeds.machine.latency_ms = -1;
  const auto refused = choose(setup, speeds);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().code == Errc::invalid_argument);
  CHECK(leaves_sums_open(setup.job));
}

TEST_CASE("a run that goes on keeps its sums while its devices can do so", "[engine]") {
  const auto kept = [](const scheduler::CallFacts& facts, const std::string& sums) {
    JobSetup setup = open_setup();
    const auto reason = settle_sums(setup, facts, sums).value();
    return std::pair(setup.job.cluster.sums, reason);
  };
  for (const char* sums : {"messages", "nccl", "nccl-chain"}) {
    CAPTURE(sums);
    CHECK(kept(four_gpus(), sums).first == sums);
    CHECK(kept(four_gpus(), sums).second.why == "the run that goes on has them");
  }
  CHECK(kept({}, "messages").second.why == "the run that goes on has them");
  CHECK(kept(four_gpus(), "messages").second.choice == "sums by messages");
  CHECK(kept(four_gpus(), "nccl-chain").second.choice == "sums by NCCL");
  CHECK(kept({}, "nccl-chain").first == "messages");
  CHECK_THAT(kept({}, "nccl-chain").second.why, ContainsSubstring("the devices are cpu"));
}

TEST_CASE("rows that a job leaves open are calls where nothing speaks against them", "[engine]") {
  job::Job job = tiny_job();
  job.cluster.rows = "auto";
  JobSetup setup = prepare(job).value();
  CHECK(settle_rows(setup, four_gpus()).choice == "rows by NCCL");
  CHECK(setup.job.cluster.rows == "nccl");

  setup.job.cluster.rows = "auto";
  auto apart = four_gpus();
  apart.nodes_elsewhere = 1;
  const auto reason = settle_rows(setup, apart);
  CHECK(reason.choice == "rows by messages");
  CHECK_THAT(reason.why, ContainsSubstring("where they have: cluster.rows = \"nccl\""));
  CHECK(setup.job.cluster.rows == "messages");
}

}  // namespace
}  // namespace troupe::engine
