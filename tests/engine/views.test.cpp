#include "tests/torch_catch.hpp"

#include "engine/contract/views.hpp"

#include <memory>
#include <string>
#include <utility>

#include "engine/contract/stage_bench.hpp"
#include "engine/execution/stage_filter.hpp"
#include "tests/engine/faulty_job.hpp"
#include "tests/engine/odd_losses.hpp"

namespace troupe::engine {
namespace {

/// Shows losses in a column.
class ColumnStage final : public StageFilter {
 public:
  explicit ColumnStage(std::unique_ptr<StageProgram> inner) : StageFilter(std::move(inner)) {}

  bool show_to(Viewer* viewer) override {
    column_ = std::make_unique<Column>(*viewer);
    return StageFilter::show_to(column_.get());
  }

 private:
  struct Column final : Viewer {
    explicit Column(Viewer& viewer) : to(viewer) {}
    bool wants(ModuleId module, observers::Kind kind) const override {
      return to.wants(module, kind);
    }
    void show(ModuleId module, observers::Kind kind, at::Tensor values) override {
      to.show(module, kind, kind == observers::Kind::losses ? values.unsqueeze(1) : values);
    }
    Viewer& to;
  };

  std::unique_ptr<Column> column_;
};

TEST_CASE("losses are shown as one number for each sample", "[engine][errors]") {
  const auto bench = StageBench::create(tiny_job(), {});
  REQUIRE(bench.ok());
  const StageId llm{1};
  const auto state = bench.value()->state(llm);
  REQUIRE(state.ok());
  const StageRows inputs = bench.value()->draw_inputs(llm);
  const auto wrong_of = [&](std::unique_ptr<StageProgram> inner) {
    Views views;
    ViewedStage stage(std::move(inner), views);
    CHECK(stage.show_to(&views));
    const auto outcome = bench.value()->round(stage, llm, {}, inputs);
    REQUIRE(outcome.ok());
    return wrong_view(bench.value()->plan(), bench.value()->iteration(), llm, inputs,
                      outcome.value(), views);
  };
  const auto made = [&] { return bench.value()->make(llm, state.value()).value(); };
  CHECK(wrong_of(made()) == "");
  const std::string wrong = wrong_of(std::make_unique<ColumnStage>(made()));
  INFO(wrong);
  CHECK(wrong.starts_with("losses of 'llm' of microbatch 0 are shown as "));
  CHECK(wrong.find(" x 1 instead of ") != std::string::npos);
}

TEST_CASE("an llm that gives no loss of each sample keeps no promise", "[engine][errors]") {
  ContractOptions options;
  options.module = "llm";
  change_of_losses() = [](const at::Tensor& losses) { return losses.sum(); };
  const auto verdicts = check(with_odd_losses(tiny_job()), options);
  change_of_losses() = nullptr;
  REQUIRE(verdicts.size() == 1);
  REQUIRE(broken_in(verdicts.front()) == "rows");
  const std::string& found = verdicts.front().breaches.front().found;
  INFO(found);
  CHECK(found.starts_with("forward of microbatch 0: layer 'llm."));
  CHECK(found.find(" gives losses of the shape of one number for samples ") != std::string::npos);
}

}  // namespace
}  // namespace troupe::engine
