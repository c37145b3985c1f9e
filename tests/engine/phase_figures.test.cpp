#include <catch2/catch_approx.hpp>

#include "engine/iteration/phase_exchange.hpp"
#include "tests/engine/phase_fixture.hpp"
#include "tests/torch_catch.hpp"

namespace troupe::engine {
namespace {

TEST_CASE("a teacher's rows are wanted where the llm ends", "[engine]") {
  auto job = tiny_job();
  job.cluster.nodes = job.cluster.local_nodes = 2;
  job.parallel.layout = {};
  for (int node = 0; node < 2; ++node)
    job.parallel.layout.replicas.push_back({{"vision"}, {{node, 0, {{"vision", {}}}}}});
  job.parallel.layout.replicas.push_back(
      {{"llm"}, {{0, 0, {{"llm", LayerRange{0, 1}}}}, {1, 0, {{"llm", LayerRange{1, 4}}}}}});
  auto plan = make_parallel_plan(prepare(job).value()).value();
  const std::vector<MicrobatchList> all{{}, {one_part({0, 1})}, {one_part({0, 1})}};
  const auto work = work_of({1, 1}, 2);
  CHECK(far_rows(plan, ModuleGroupId{0}, all, work).planned == 1);
  for (const std::size_t module : {0U, 1U}) plan.model.modules[module].kind = ModuleKind::teacher;
  CHECK(far_rows(plan, ModuleGroupId{0}, all, work).planned == 0);
}

TEST_CASE("rows with the most work for their number are the ones that must leave", "[engine]") {
  const auto plan = colocated();
  PhaseWork work = work_of({4, 4, 2, 2}, 2);
  work.rows = {10, 40, 20, 20};
  // All are wanted on node 0, whose encoder has room for 6 of 12: 4 with 10 rows leave it, and 2 of
  // the others', which have 10 rows for each.
  const std::vector<MicrobatchList> all{
      {one_part({0, 1})}, {one_part({2, 3})}, {one_part({0, 1, 2, 3})}, {}};
  CHECK(far_rows(plan, ModuleGroupId{0}, all, work).planned == Catch::Approx(40.0 / 90));
  CHECK(far_rows(plan, ModuleGroupId{0}, all, work).bound == Catch::Approx(30.0 / 90));
  CHECK((far_rows(plan, ModuleGroupId{1}, all, work) == FarRows{}));
}

TEST_CASE("the balance of a phase, by hand", "[engine]") {
  const auto plan = replicas(2, 1);
  PhaseWork work = work_of({6, 2, 1, 3}, 2);
  // As they came 8 and 4; planned 7 and 5; the mean is 6, and no deal is below the largest sample.
  const std::vector<MicrobatchList> planned{{one_part({0, 2})}, {one_part({1, 3})}, {}};
  const auto balance = phase_balance(plan, ModuleGroupId{0}, planned, work);
  CHECK(balance.drawn == Catch::Approx(8.0 / 6));
  CHECK(balance.planned == Catch::Approx(7.0 / 6));
  CHECK(balance.bound == 1);
  work.samples = {9, 1, 1, 1};
  CHECK(phase_balance(plan, ModuleGroupId{0}, planned, work).bound == Catch::Approx(1.5));
  work.shares = {1, 0.5};  // The mean is 12 / (1 + 2) = 4; the larger one fits the faster replica.
  CHECK(phase_balance(plan, ModuleGroupId{0}, planned, work).planned == Catch::Approx(10.0 / 4));
  CHECK(phase_balance(plan, ModuleGroupId{0}, planned, work).bound == Catch::Approx(4.5 / 4));
  work.shares = {0.25, 1};  // 10 at a quarter and 2; the mean is 12 / (4 + 1).
  CHECK(phase_balance(plan, ModuleGroupId{0}, planned, work).planned == Catch::Approx(2.5 / 2.4));
  work.samples = {0, 0, 0, 0};
  CHECK((phase_balance(plan, ModuleGroupId{0}, planned, work) == PhaseBalance{}));
}

TEST_CASE("K_eff of all replicas, by hand", "[engine]") {
  const auto count = [](const std::vector<PhaseWork>& encoders, std::int64_t microbatches) {
    return shared_microbatches(encoders, microbatches);
  };
  // 24 on two replicas: 12 for each, four rounds of the largest sample's 3.
  const std::vector<double> samples{3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1};
  CHECK(count({work_of(samples, 2)}, 8) == 4);
  CHECK(count({work_of(samples, 2)}, 3) == 3);
  CHECK(count({work_of(samples, 1)}, 8) == 8);
  CHECK(count({work_of(samples, 16)}, 8) == 1);
  // One replica twice as fast: 24 / (1 + 2) = 8, and it has the largest in 1.5.
  PhaseWork unequal = work_of(samples, 2);
  unequal.shares = {1, 0.5};
  CHECK(count({unequal}, 8) == 5);
  // A giant of 12 beside twelve others of 1: 12 for each, one round; in pieces of 4 three.
  PhaseWork giant = work_of({12, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, 2);
  CHECK(count({giant}, 8) == 1);
  giant.cut[0] = {13, 14, 15};
  giant.piece_work = {4, 4, 4};
  CHECK(count({giant}, 8) == 3);
  CHECK(shared_microbatches(std::vector{giant}, 8, false) == 1);
  // A phase with little to do, all of it one sample's, holds nobody up.
  CHECK(count({work_of(samples, 2), work_of({2}, 2)}, 8) == 4);
  CHECK(count({work_of({0, 0}, 2)}, 8) == 8);
}

}  // namespace
}  // namespace troupe::engine
