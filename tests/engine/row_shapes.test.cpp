// Stages and layers that make other rows than the plan promises.

#include <ATen/ops/cat.h>
#include <ATen/ops/rand.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/execution/stage_filter.hpp"
#include "engine/execution/stage_kinds.hpp"
#include "engine/execution/stage_layers.hpp"
#include "tests/engine/hooked_stage.hpp"
#include "tests/engine/tiny_cluster.hpp"

namespace troupe::engine {
namespace {

using Change = std::function<at::Tensor(const at::Tensor&)>;

/// Sends changed rows, or changed gradients.
class OddStage final : public StageFilter {
 public:
  OddStage(StageProgram& inner, bool odd_rows, Change change)
      : StageFilter(std::make_unique<HookedStage>(inner, [] {})),
        odd_rows_(odd_rows),
        change_(std::move(change)) {}

  Result<at::Tensor> rows_for(MessageId message) override {
    auto rows = StageFilter::rows_for(message);
    if (!rows.ok() || !odd_rows_) return rows;
    return change_(rows.value());
  }
  Result<at::Tensor> gradient_for(MessageId message) override {
    auto gradient = StageFilter::gradient_for(message);
    if (!gradient.ok() || odd_rows_) return gradient;
    return change_(gradient.value());
  }

 private:
  const bool odd_rows_;
  const Change change_;
};

at::Tensor with_a_row_more(const at::Tensor& rows) { return at::cat({rows, rows.narrow(0, 0, 1)}); }
at::Tensor with_a_column_less(const at::Tensor& rows) {
  return rows.narrow(1, 0, rows.size(1) - 1).contiguous();
}
at::Tensor by_columns(const at::Tensor& rows) { return rows.t().contiguous().t(); }
at::Tensor in_fp32(const at::Tensor& rows) { return rows.to(at::kFloat); }

/// What ends a step in which one stage is odd, and whose work it was.
FailedWork failure_of(StageId odd, bool odd_rows, const Change& change) {
  std::vector<std::unique_ptr<OddStage>> stages;
  Cluster cluster(tiny_job(), {}, {}, {}, {}, [&](StageId id, ModelStage& inner) -> StageProgram* {
    if (id != odd) return &inner;
    stages.push_back(std::make_unique<OddStage>(inner, odd_rows, change));
    return stages.back().get();
  });
  cluster.begin(0);
  const Status ended = cluster.advance_to(Progress::committing);
  REQUIRE_FALSE(ended.ok());
  auto failed = cluster.executor(odd.index()).take_thrown();
  REQUIRE(failed);
  CHECK((failed->error == ended.error()));
  return *failed;
}

TEST_CASE("rows of another shape than the plan's end the step where they are sent",
          "[engine][errors]") {
  const FailedWork failed = failure_of(StageId{0}, /*odd_rows=*/true, with_a_row_more);
  const std::string& words = failed.error.message;
  INFO(words);
  CHECK(words.starts_with("the tensor with the rows of '"));
  CHECK(words.find("' has the shape ") != std::string::npos);
  CHECK(words.find(" x 16 instead of ") != std::string::npos);
  CHECK(words.find(", in step 1 on device 0, send of stage 0 (vision layers ") !=
        std::string::npos);
  CHECK(words.find(" for samples 's") != std::string::npos);
  CHECK_FALSE(failed.error.fix.empty());
  CHECK_FALSE(failed.samples.empty());
}

TEST_CASE("a gradient of another shape than its rows ends the step where it is sent",
          "[engine][errors]") {
  const std::string words =
      failure_of(StageId{1}, /*odd_rows=*/false, with_a_column_less).error.message;
  INFO(words);
  CHECK(words.starts_with("the gradient of the rows of '"));
  CHECK(words.find(" x 15 instead of ") != std::string::npos);
  CHECK(words.find(", in step 1 on device 1, ") != std::string::npos);
  CHECK(words.find(" of stage 1 (llm layers 0 to 3) for samples 's") != std::string::npos);
}

TEST_CASE("what lies otherwise in memory than its receiver takes it ends the step where it is sent",
          "[engine][errors]") {
  // The tiny job trains in fp64.
  for (const auto& [change, found] : {std::pair{&by_columns, "' is not contiguous, in step 1 on "},
                                      {&in_fp32, "' holds Float instead of Double, in step 1 on "}})
    for (const bool odd_rows : {true, false}) {
      const std::string words =
          failure_of(StageId{odd_rows ? 0 : 1}, odd_rows, change).error.message;
      INFO(words);
      CHECK(words.starts_with(odd_rows ? "the tensor with the rows of '"
                                       : "the gradient of the rows of '"));
      CHECK(words.find(found) != std::string::npos);
    }
}

TEST_CASE("layers that make other rows than a part's samples have are named", "[engine][errors]") {
  const JobSetup setup = prepare(tiny_job()).value();
  const ParallelPlan plan = make_parallel_plan(setup).value();
  const auto kept = seeded_store(setup, plan, DeviceId{0}).value();
  auto made = StageLayers::create({plan, StageId{0}, setup.modules(), setup.layers, kept});
  REQUIRE(made.ok());
  StageLayers layers = std::move(made).value();
  SampleStore samples;
  const IterationPlan iteration = plan_tiny_batch(setup, plan, samples).value().iteration;
  layers.begin(iteration);
  std::size_t tried = 0;
  for (std::size_t m = 0; m < iteration.messages.size(); ++m) {
    const Message& message = iteration.messages[m];
    if (message.source.stage != StageId{0}) continue;
    ++tried;
    const at::Tensor rows = at::rand({message.rows, message.width});
    const auto rows_of = [&](const at::Tensor& last) {
      std::vector<at::Tensor> outputs(layers.runs().size());
      outputs.back() = last;
      return layers.rows_of(MessageId{m}, outputs);
    };
    const auto fine = rows_of(rows);
    REQUIRE(fine.ok());
    CHECK(fine.value().equal(rows));
    const auto more = rows_of(at::cat({rows, rows}));
    REQUIRE_FALSE(more.ok());
    INFO(more.error().message);
    CHECK(more.error().message.find("make rows of the shape " + std::to_string(2 * message.rows) +
                                    " x 16 for samples 's") != std::string::npos);
    CHECK(more.error().message.ends_with("which have " + std::to_string(message.rows) +
                                         " rows there"));
  }
  CHECK(tried > 0);
}

}  // namespace
}  // namespace troupe::engine
