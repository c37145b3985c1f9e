#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "app/doctor/checks.hpp"

using namespace troupe;
using namespace troupe::app;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

Finding one_of(const LimitFacts& facts, const std::string& name) {
  const auto all = check_limits(facts);
  const auto found = std::ranges::find(all, name, &Finding::name);
  REQUIRE(found != all.end());
  return *found;
}

}  // namespace

TEST_CASE("limits that no job reaches are fine", "[app]") {
  for (const Finding& finding : check_limits({})) CHECK(finding.level == Level::ok);
}

TEST_CASE("open files must do for the nodes of a job", "[app]") {
  LimitFacts facts;
  facts.open_files = 1023;
  facts.open_files_hard = 4096;
  CHECK(one_of(facts, "open files").level == Level::warning);
  CHECK(one_of(facts, "open files").fix == "ulimit -n 1024");
  facts.open_files = 1024;
  CHECK(one_of(facts, "open files").level == Level::ok);
  facts.nodes = 60;  // By hand: 64 + 60 x 16 = 1024.
  CHECK(one_of(facts, "open files").level == Level::ok);
  facts.nodes = 61;
  CHECK(one_of(facts, "open files").level == Level::problem);
  CHECK(one_of(facts, "open files").fix == "ulimit -n 1040");
  facts.open_files_hard = 1024;
  CHECK_THAT(one_of(facts, "open files").fix, ContainsSubstring("limits.conf"));
}

TEST_CASE("locked memory counts where InfiniBand is", "[app]") {
  LimitFacts facts;
  facts.locked_memory = 64 << 10;
  CHECK(one_of(facts, "locked memory").level == Level::ok);
  facts.has_infiniband = true;
  CHECK(one_of(facts, "locked memory").level == Level::warning);
  facts.locked_memory = kUnlimited;
  CHECK(one_of(facts, "locked memory").level == Level::ok);
}

TEST_CASE("few processes and threads are warned of, and no core file is told", "[app]") {
  LimitFacts facts;
  facts.tasks_left = 256;
  CHECK(one_of(facts, "tasks").level == Level::ok);
  facts.tasks_left = 255;
  CHECK(one_of(facts, "tasks").level == Level::warning);
  facts.core_bytes = 0;
  CHECK_THAT(one_of(facts, "core files").found, ContainsSubstring("none"));
}

TEST_CASE("memory that a control group takes away is told, because plans do not know", "[app]") {
  MemoryFacts facts{Bytes{64 * kGiB}, Bytes{60 * kGiB}, {}, {}};
  CHECK(check_memory(facts) == fine("memory", "60.0 GiB of 64.0 GiB free"));
  facts.group_limit = Bytes{8 * kGiB};
  facts.group_used = Bytes{3 * kGiB};
  CHECK(check_memory(facts).level == Level::warning);
  CHECK_THAT(check_memory(facts).found, ContainsSubstring("5.0 GiB of 8.0 GiB free; its control "
                                                          "group allows less"));
  CHECK_THAT(check_memory(facts).fix, ContainsSubstring("cluster.device_memory_gib = 8"));
  facts.group_used = Bytes{7 * kGiB};
  CHECK_THAT(check_memory(facts).fix, ContainsSubstring("end what else runs here"));
  facts = {Bytes{64 * kGiB}, Bytes{2 * kGiB - 1}, {}, {}};
  CHECK(check_memory(facts).level == Level::warning);
}

TEST_CASE("cores are those that may be used", "[app]") {
  CHECK(check_cores({8, 8, {}, 0}) == fine("cores", "8 cores"));
  CHECK(check_cores({8, 2, {}, 0}) == fine("cores", "2 cores, of 8 online"));
  CHECK(check_cores({8, 8, 8.0, 8}).level == Level::ok);
  CHECK(check_cores({8, 8, 1.5, 0}).level == Level::warning);
  CHECK_THAT(check_cores({8, 8, 1.5, 0}).found,
             ContainsSubstring("1.5 cores by the control group's quota, on 8 cores"));
  CHECK(check_cores({8, 4, {}, 4}).level == Level::ok);
  CHECK(check_cores({8, 4, {}, 5}).level == Level::warning);
  CHECK_THAT(check_cores({8, 4, {}, 5}).found, ContainsSubstring("the job has 5 threads here"));
}

TEST_CASE("variables that bind threads are warned of", "[app]") {
  CHECK(check_threads({}).level == Level::ok);
  CHECK(check_threads({"4", "false", {}}).level == Level::ok);
  CHECK_THAT(check_threads({"4", {}, {}}).found,
             ContainsSubstring("OMP_NUM_THREADS = 4 does not count"));
  CHECK(check_threads({{}, "close", {}}).level == Level::warning);
  CHECK(check_threads({{}, {}, "0-1"}).level == Level::warning);
  CHECK_THAT(check_threads({{}, "true", {}}).found, ContainsSubstring("OMP_PROC_BIND = true"));
}

TEST_CASE("a container is named with what it keeps apart", "[app]") {
  CHECK(check_container({}) == fine("container", "none"));
  CHECK(check_container({"docker", true, true, 1}).found ==
        "docker, process ids of its own, shared memory of its own (nodes in several containers "
        "exchange rows over the network); a debugger reaches its own children alone (ptrace_scope "
        "1)");
}

TEST_CASE("no answer is told with its time", "[app][errors]") {
  const Finding finding = no_answer("data", 1.5, Level::problem);
  CHECK(finding.level == Level::problem);
  CHECK(finding.found == "no answer within 1.5 s");
  CHECK_THAT(finding.fix, ContainsSubstring("--timeout"));
}
