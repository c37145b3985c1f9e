#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "app/doctor/checks.hpp"

using namespace troupe;
using namespace troupe::app;
using Catch::Matchers::ContainsSubstring;

namespace {

GpuFacts two_gpus() {
  GpuFacts facts;
  facts.has_card = true;
  facts.gpus = {{"H100", Bytes{std::int64_t{80} << 30}}, {"H100", Bytes{std::int64_t{80} << 30}}};
  facts.driver_cuda = 13010;
  facts.toolkit_cuda = 13000;
  return facts;
}

}  // namespace

TEST_CASE("a build that is not made for speed is warned of", "[app]") {
  BuildFacts facts{"0.1.0 (abc)", "release", "", "GNU 12.2.0", "CAF 0.17.6", "ucx", false};
  CHECK(
      check_build(facts) ==
      fine("build", "0.1.0 (abc), release, GNU 12.2.0; CAF 0.17.6; transports ucx; CUDA left out"));
  facts.sanitizers = "address";
  CHECK(check_build(facts).level == Level::warning);
  CHECK_THAT(check_build(facts).found, ContainsSubstring("release with address"));
  facts.sanitizers = "";
  facts.build_type = "debug";
  CHECK(check_build(facts).level == Level::warning);
  CHECK_THAT(check_build(facts).fix, ContainsSubstring("scripts/build release"));
}

TEST_CASE("a machine without a GPU is fine, one whose GPU cannot be used is warned of", "[app]") {
  GpuFacts facts;
  CHECK(check_gpu(facts) == fine("gpu", "none; jobs run on the CPU"));
  facts.has_card = true;
  facts.why_none = {Errc::unavailable, "no GPU can be used here", "", "check nvidia-smi"};
  CHECK(check_gpu(facts) ==
        warning("gpu", "there is one of NVIDIA, and no GPU can be used here", "check nvidia-smi"));
}

TEST_CASE("GPUs are told with their driver, and what they cannot do", "[app]") {
  GpuFacts facts = two_gpus();
  CHECK(check_gpu(facts) ==
        fine("gpu", "2 x H100, 80.0 GiB, driver for CUDA 13.1, all reach each other"));
  facts.apart = {{0, 1}};
  CHECK(check_gpu(facts).level == Level::warning);
  CHECK_THAT(check_gpu(facts).found, ContainsSubstring("1 pair (0 and 1) cannot read"));
  facts.driver_cuda = 12080;  // What comes first: with it nothing runs.
  CHECK_THAT(check_gpu(facts).found, ContainsSubstring("older than the build's 13.0"));
  CHECK(check_gpu(facts).level == Level::warning);
}

TEST_CASE("NCCL is named with its version, what it lacks, and what it is for", "[app]") {
  const NcclFacts none{"", {}, {Errc::unavailable, "'libnccl.so.2' cannot be loaded", "", ""}};
  CHECK(check_nccl(none) == fine("nccl",
                                 "none: gradients are added up by messages, over UCX "
                                 "('libnccl.so.2' cannot be loaded)"));
  CHECK(check_nccl({"2.28.9", {}, {}}).found ==
        "library 2.28.9 is here; for sums of gradients (cluster.sums = \"nccl\" or \"auto\")");
  CHECK_THAT(check_nccl({"2.18.5", {"ncclCommShrink", "ncclCommRevoke"}, {}}).found,
             ContainsSubstring("2.18.5 is here, without ncclCommShrink, ncclCommRevoke; for sums"));
}

TEST_CASE("whether rows between stages can go by NCCL is told, or why not", "[app]") {
  const NcclFacts none{"", {}, {Errc::unavailable, "'libnccl.so.2' cannot be loaded", "", ""}};
  const NcclFacts library{"2.28.9", {}, {}};
  GpuFacts gpus = two_gpus();
  CHECK(
      check_nccl_rows(library, gpus) ==
      fine("nccl rows",
           "rows between stages can go by NCCL between the 2 GPUs here (cluster.rows = \"nccl\" or "
           "\"auto\"), and to other machines (\"nccl\")"));
  CHECK(check_nccl_rows(none, gpus) ==
        fine("nccl rows",
             "rows between stages go by messages, over UCX: 'libnccl.so.2' cannot be loaded"));
  gpus.gpus.pop_back();
  CHECK_THAT(
      check_nccl_rows(library, gpus).found,
      ContainsSubstring("by NCCL to other machines alone (cluster.rows = \"nccl\"): there is "
                        "one GPU here"));
  gpus.gpus.clear();
  CHECK_THAT(
      check_nccl_rows(library, gpus).found,
      ContainsSubstring("by messages, over UCX: NCCL moves them between GPUs, and none can"));
}
