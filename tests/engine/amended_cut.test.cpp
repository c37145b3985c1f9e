#include "engine/iteration/amended_cut.hpp"

#include "engine/layout/choose_layout.hpp"
#include "tests/engine/tiny_job.hpp"
#include "tests/torch_catch.hpp"

namespace troupe::engine {
namespace {

TEST_CASE("samples that are gone leave their parts and microbatches, the others stay", "[engine]") {
  const auto plan = make_parallel_plan(prepare(tiny_job()).value()).value();
  // Two pipelines of an encoder and an llm: replicas 0 and 1, 2 and 3. Sample 2 is gone.
  const std::vector<MicrobatchList> cut{
      {{{{{0}}, {{2}}}}, {{{{1}}}}}, {{{{{0, 1}}}}, {{{{2}}}}}, {{{{{4, 3}}}}}, {{{{{3, 4}}}}}};
  const auto [microbatches, pipelines] = amend_cut(plan, cut, {0, 1, std::nullopt, 2, 3});
  CHECK((microbatches ==
         std::vector<MicrobatchList>{
             {{{{{0}}}}, {{{{1}}}}}, {{{{{0, 1}}}}}, {{{{{3, 2}}}}}, {{{{{2, 3}}}}}}));
  CHECK((pipelines == std::vector<std::vector<std::int32_t>>{{0, 1}, {2, 3}}));
}

TEST_CASE("a pipeline whose samples are all gone has no microbatch", "[engine]") {
  const auto plan = make_parallel_plan(prepare(tiny_job()).value()).value();
  const std::vector<MicrobatchList> cut{{{{{{0}}}}}, {{{{{0}}}}}, {{{{{1}}}}}, {{{{{1}}}}}};
  const auto [microbatches, pipelines] = amend_cut(plan, cut, {0, std::nullopt});
  CHECK(microbatches[2].empty());
  CHECK(microbatches[3].empty());
  CHECK(microbatches[0].size() == 1);
  CHECK((pipelines == std::vector<std::vector<std::int32_t>>{{0}, {}}));
}

}  // namespace
}  // namespace troupe::engine
