#include "tests/torch_catch.hpp"

#include "engine/contract/cuts.hpp"

#include <catch2/generators/catch_generators.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "engine/contract/stage_bench.hpp"
#include "scheduler/check/check_plan.hpp"
#include "tests/engine/audio_job.hpp"
#include "tests/engine/faulty_job.hpp"
#include "tests/engine/taught_job.hpp"

namespace troupe::engine {
namespace {

using Units = std::vector<std::vector<std::int32_t>>;

/// Of microbatches of one part each.
Units units_of(const MicrobatchList& list) {
  Units units;
  for (const Microbatch& microbatch : list) {
    REQUIRE(microbatch.parts.size() == 1);
    units.push_back(microbatch.parts.front().samples);
  }
  return units;
}

double sum_of(const StageRows& inputs) {
  double sum = 0;
  for (const auto& [id, rows] : inputs.rows) sum += rows.sum().item<double>();
  return sum;
}

TEST_CASE("a sample with two pictures is taken in two pieces", "[engine]") {
  const auto made = StageBench::create(tiny_job_with_audio(), {});
  REQUIRE(made.ok());
  const StageBench& bench = *made.value();
  const IterationPlan *together = bench.iteration(Cut::pieces),
                      *apart = bench.iteration(Cut::pieces_apart);
  REQUIRE(together != nullptr);
  REQUIRE(apart != nullptr);
  // By hand: the third sample alone has two pictures, and two windows.
  REQUIRE(together->pieces.size() == 4);
  for (std::size_t p = 0; p < together->pieces.size(); ++p) {
    const SamplePiece& piece = together->pieces[p];
    CHECK(piece.sample == 2);
    CHECK(piece.first == static_cast<std::int32_t>(p % 2));
    CHECK(piece.count == 1);
    CHECK((piece.module == together->pieces[p / 2 * 2].module));
  }
  CHECK((together->pieces[0].module < together->pieces[2].module));
  CHECK((apart->pieces == together->pieces));
  // They are the units 4 to 7; the llm has whole samples.
  CHECK(units_of(together->microbatches.front()) == Units{{0, 1}, {4, 5, 6, 7, 3}});
  CHECK(units_of(apart->microbatches.front()) == Units{{0, 1, 5, 7}, {4, 6, 3}});
  for (const IterationPlan* plan : {together, apart})
    CHECK(units_of(plan->microbatches.back()) == Units{{0, 1}, {2, 3}});
}

TEST_CASE("rows of a sample are the same ones in pieces", "[engine]") {
  const auto made = StageBench::create(tiny_job_with_audio(), {});
  REQUIRE(made.ok());
  const StageBench& bench = *made.value();
  const IterationPlan* together = bench.iteration(Cut::pieces);
  REQUIRE(together != nullptr);
  for (const Message& message : together->messages) {
    std::int64_t before = 0, all = 0;
    for (const SampleRows& own : rows_in(bench.plan(), *together, message)) {
      if (own.sample != 2) CHECK(own.rows == own.all);
      if (own.sample != 2) continue;
      CHECK(own.before == before);
      before += own.rows;
      all = own.all;
    }
    CHECK(before == all);  // Both pieces, or none.
  }
  const StageId llm{2};
  const double planned = sum_of(bench.draw_inputs(llm));
  for (const Cut cut : {Cut::pieces, Cut::pieces_apart})
    CHECK(std::abs(sum_of(bench.draw_inputs(llm, cut)) - planned) < 1e-9);
  // One message more from each encoder, of the second piece.
  CHECK(bench.draw_inputs(llm, Cut::pieces).rows.size() == 4);
  CHECK(bench.draw_inputs(llm, Cut::pieces_apart).rows.size() == 6);
}

TEST_CASE("beside a teacher encoders take samples in pieces and it takes them whole", "[engine]") {
  // Behind the projector, before all encoders, and between two of them.
  for (const auto& [job, place] :
       {std::pair{tiny_job(), std::size_t{2}}, {tiny_job(), 0}, {tiny_job_with_audio(), 2}}) {
    CAPTURE(job.modules.size(), place);
    const auto made = StageBench::create(with_teacher(job, place), {});
    REQUIRE(made.ok());
    const StageBench& bench = *made.value();
    const ParallelPlan& plan = bench.plan();
    REQUIRE(plan.module_groups.size() == 3);
    const ModuleId teacher = plan.model.find("teacher");
    const auto group = plan.group_of(teacher);
    CHECK((plan.module_groups[group.index()].modules == std::vector{teacher}));
    const std::size_t with_whole = group.index(), with_pieces = with_whole == 0 ? 1 : 0;
    for (const Cut cut : {Cut::pieces, Cut::pieces_apart}) {
      const IterationPlan* taken = bench.iteration(cut);
      REQUIRE(taken != nullptr);
      CHECK(scheduler::check(plan, *taken).empty());
      CHECK(units_of(taken->microbatches[with_whole]) == Units{{0, 1}, {2, 3}});
      CHECK(units_of(taken->microbatches.back()) == Units{{0, 1}, {2, 3}});
      if (job.modules.size() > 3) continue;
      // By hand: of the third sample, which has two pictures, the units 4 and 5.
      CHECK(units_of(taken->microbatches[with_pieces]) ==
            (cut == Cut::pieces ? Units{{0, 1}, {4, 5, 3}} : Units{{0, 1, 5}, {4, 3}}));
    }
    // A larger batch has the same stages, by the same numbers.
    const auto doubled = bench.doubled();
    REQUIRE(doubled.ok());
    CHECK(scheduler::check(doubled.value()->plan(), doubled.value()->iteration()).empty());
    for (std::size_t s = 0; s < plan.stages.size(); ++s)
      CHECK((doubled.value()->plan().stages[s].runs == plan.stages[s].runs));
  }
}

TEST_CASE("a model with a teacher is tried in pieces", "[engine]") {
  const auto verdicts = check(with_teacher(tiny_job(), 2), {});
  REQUIRE(verdicts.size() == 3);
  for (const StageVerdict& verdict : verdicts) {
    for (const Breach& breach : verdict.breaches)
      UNSCOPED_INFO(verdict.stage << ": " << breach.promise << ": " << breach.found);
    CHECK(verdict.keeps_all());
    CHECK(std::ranges::count(verdict.kept, "pieces") == 1);
  }
}

TEST_CASE("where no sample has two items of a medium none is in pieces", "[engine]") {
  ContractOptions few;
  few.bench.samples = 2;
  const auto made = StageBench::create(tiny_job(), few.bench);
  REQUIRE(made.ok());
  CHECK(made.value()->iteration(Cut::pieces) == nullptr);
  CHECK(made.value()->iteration(Cut::pieces_apart) == nullptr);
}

TEST_CASE("what goes by a sample has the name of its promise", "[engine][errors]") {
  const bool is_taught = GENERATE(false, true);
  CAPTURE(is_taught);
  for (const auto& [fault, found] :
       {std::pair{"by sample of a part", "two pieces of a sample in one part: what samples give"},
        {"by sample", "two pieces of a sample in two parts: what samples give"}}) {
    const StageVerdict verdict =
        verdict_on_stage(fault, is_taught ? with_teacher(tiny_job(), 2) : tiny_job());
    CHECK(broken_in(verdict) == "pieces");
    REQUIRE(verdict.breaches.size() == 1);
    INFO(verdict.breaches.front().found);
    CHECK(verdict.breaches.front().found.starts_with(found));
  }
}

}  // namespace
}  // namespace troupe::engine
