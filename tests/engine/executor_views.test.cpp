// What stages of a user's show that nobody could look at.

#include "tests/torch_catch.hpp"

#include <ATen/ops/ones.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/execution/executor.hpp"
#include "runtime/observers/audience.hpp"
#include "runtime/observers/watch.hpp"
#include "tests/engine/hooked_stage.hpp"
#include "tests/engine/tiny_cluster.hpp"

namespace troupe::engine {
namespace {

using Shows = std::function<void(Viewer&)>;

/// Shows something of its own with each forward, or as it is asked for rows.
class ShowingStage final : public HookedStage {
 public:
  ShowingStage(StageProgram& inner, Shows with_forward, Shows with_rows)
      : HookedStage(inner, [] {}),
        with_forward_(std::move(with_forward)),
        with_rows_(std::move(with_rows)) {}

  bool show_to(Viewer* viewer) override {
    viewer_ = viewer;
    return true;
  }
  Status forward(PartKey part) override {
    if (viewer_ != nullptr && with_forward_) with_forward_(*viewer_);
    return HookedStage::forward(part);
  }
  Result<at::Tensor> rows_for(MessageId id) override {
    if (viewer_ != nullptr && with_rows_) with_rows_(*viewer_);
    return HookedStage::rows_for(id);
  }

 private:
  Shows with_forward_, with_rows_;
  Viewer* viewer_ = nullptr;
};

/// What a step comes to in which the first stage shows so, and somebody looks. `troubles`: what is
/// noted of it.
Status shown_by(const Shows& with_forward, const Shows& with_rows = {},
                std::vector<std::string>* troubles = nullptr) {
  observers::Audience audience;
  observers::Watch watch;
  watch.gradients = watch.losses = true;
  audience.listeners().add(1, watch);
  std::unique_ptr<ShowingStage> shows;  // The cluster tells it when it ends.
  Cluster cluster(
      tiny_job(), {}, [&](ExecutorOptions& options) { options.audience = &audience; }, {}, {},
      [&](StageId id, ModelStage& inner) -> StageProgram* {
        if (id != StageId{0}) return &inner;
        shows = std::make_unique<ShowingStage>(inner, with_forward, with_rows);
        return shows.get();
      });
  cluster.begin(0);
  Status ended = cluster.advance_to(Progress::committing);
  if (troubles != nullptr) *troubles = audience.take_tally().troubles;
  return ended;
}

TEST_CASE("what a stage shows that is no rows ends its step by name", "[engine][errors]") {
  const ModuleId vision{0}, none{7};
  const at::Tensor rows = at::ones({2, 3}, at::kDouble);
  CHECK(shown_by({}).ok());
  CHECK(shown_by([&](Viewer& viewer) { viewer.show(vision, observers::Kind::rows, rows); }).ok());
  const std::string place = ", in step 1 on device 0, forward of stage 0 (vision layers 0 to ";
  const auto expect = [&](const Status& ended, const std::string& said) {
    REQUIRE_FALSE(ended.ok());
    INFO(ended.error().message);
    CHECK(ended.error().message.starts_with(said));
  };
  const at::Tensor row = rows.select(0, 0);
  for (const at::Tensor& values : {at::Tensor{}, row, row.select(0, 0), rows.to(at::kLong)})
    expect(shown_by([&](Viewer& viewer) { viewer.show(vision, observers::Kind::rows, values); }),
           "observers are shown of 'vision' what is no tensor of rows or losses" + place);
  expect(shown_by([&](Viewer& viewer) { viewer.show(none, observers::Kind::rows, rows); }),
         "observers are shown what is of no module of the job" + place);
  expect(shown_by(
             [&](Viewer& viewer) { static_cast<void>(viewer.wants(none, observers::Kind::rows)); }),
         "observers are shown what is of no module of the job" + place);
  expect(shown_by({}, [&](Viewer& viewer) { viewer.show(vision, observers::Kind::rows, rows); }),
         "observers are shown something of 'vision' beside forwards and backwards, in step 1 on "
         "device 0, send of stage 0 (vision layers 0 to ");
}

TEST_CASE("rows of another number than the part's samples have are shown to nobody", "[engine]") {
  std::vector<std::string> troubles;
  CHECK(shown_by({}, {}, &troubles).ok());  // Of the other stages all is whole.
  CHECK(troubles.empty());
  const auto shows = [](Viewer& viewer) {  // In each part, which has four rows a picture.
    viewer.show(ModuleId{0}, observers::Kind::rows, at::ones({3, 16}, at::kDouble));
    viewer.show(ModuleId{0}, observers::Kind::losses, at::ones({99}, at::kDouble));
  };
  CHECK(shown_by(shows, {}, &troubles).ok());
  REQUIRE(troubles.size() == 2);
  CHECK(troubles[0].starts_with("observers do not see rows of 'vision' where their stage"));
  CHECK(troubles[1].starts_with("observers do not see losses of 'vision' where their stage"));
}

}  // namespace
}  // namespace troupe::engine
