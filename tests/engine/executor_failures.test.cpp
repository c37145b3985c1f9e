// What stages of a user's throw where no action of the list runs.

#include "tests/torch_catch.hpp"

#include <memory>
#include <string>
#include <vector>

#include "engine/execution/executor.hpp"
#include "tests/engine/hooked_stage.hpp"
#include "tests/engine/tiny_cluster.hpp"

namespace troupe::engine {
namespace {

/// Throws what is no `std::exception` in this call, as long as it is named.
class TiredStage final : public HookedStage {
 public:
  TiredStage(StageProgram& inner, const std::string& call)
      : HookedStage(inner, [] {}), call_(call) {}

  bool show_to(Viewer* /*viewer*/) override {
    throw_in("show_to");
    return false;
  }
  std::vector<PartLoss> losses() const override {
    throw_in("losses");
    return HookedStage::losses();
  }
  std::vector<PartAuxiliary> auxiliary() const override {
    throw_in("auxiliary");
    return {};
  }

  int thrown() const { return thrown_; }

 private:
  void throw_in(const std::string& call) const {
    if (call_ != call) return;
    ++thrown_;
    throw 7;
  }

  const std::string& call_;
  mutable int thrown_ = 0;
};

TEST_CASE("whatever a stage throws as it tells of its losses is an error of its step",
          "[engine][errors]") {
  for (const std::string call : {"losses", "auxiliary"}) {
    CAPTURE(call);
    std::unique_ptr<TiredStage> tired;
    Cluster cluster(tiny_job(), {}, {}, {}, {},
                    [&](StageId id, ModelStage& inner) -> StageProgram* {
                      if (id != StageId{2}) return &inner;  // Of device 2.
                      tired = std::make_unique<TiredStage>(inner, call);
                      return tired.get();
                    });
    cluster.begin(0);
    const Status ended = cluster.advance_to(Progress::committing);
    REQUIRE_FALSE(ended.ok());
    CHECK(ended.error().code == Errc::internal);
    CHECK(ended.error().message == "an exception of unknown type, in step 1 on device 2");
    const auto thrown = cluster.executor(2).take_thrown();
    REQUIRE(thrown);
    CHECK(thrown->thrown == "an exception of unknown type");
    CHECK(tired->thrown() == 1);
  }
}

TEST_CASE("a stage that throws as its executor ends does not end the process", "[engine][errors]") {
  std::string call;
  std::vector<std::unique_ptr<TiredStage>> tired;  // The cluster tells them when it ends.
  {
    Cluster cluster(tiny_job(), {}, {}, {}, {}, [&](StageId, ModelStage& inner) -> StageProgram* {
      return tired.emplace_back(std::make_unique<TiredStage>(inner, call)).get();
    });
    cluster.train(0);
    call = "show_to";
  }
  REQUIRE_FALSE(tired.empty());
  for (const auto& stage : tired) CHECK(stage->thrown() == 1);
}

}  // namespace
}  // namespace troupe::engine
