#include "engine/contract/views.hpp"

#include <algorithm>
#include <cmath>

#include "engine/execution/packing.hpp"

namespace troupe::engine {

namespace {

/// Of the largest value: what sums in another order may differ by.
constexpr double kRounding = 1e-9;

/// The views of a round, one after the other.
class HeldViews {
 public:
  HeldViews(const ParallelPlan& plan, const IterationPlan& iteration, StageId id,
            const StageRows& inputs, const StageOutcome& outcome, const Views& views)
      : plan_(plan),
        iteration_(iteration),
        id_(id),
        inputs_(inputs),
        outcome_(outcome),
        views_(views) {}

  std::string wrong() const {
    std::string found = wrong_by_itself();
    for (const auto& [message, rows] : outcome_.sent.rows)
      if (found.empty()) found = wrong_of(iteration_.at(message), observers::Kind::rows, rows);
    for (const auto& [message, gradient] : inputs_.gradients)
      if (found.empty() && !plan_.model.at(iteration_.at(message).module).freeze)
        found = wrong_of(iteration_.at(message), observers::Kind::gradients, gradient);
    for (const auto& [part, loss] : outcome_.part_losses)
      if (found.empty()) found = wrong_losses(part, loss);
    return found;
  }

 private:
  std::string wrong_by_itself() const {
    for (const Views::View& view : views_.all()) {
      const std::string what = words_of(plan_, view.module, view.kind);
      if (!view.part) return what + " are shown beside forwards and backwards";
      if (view.has_graph) return what + " are shown with their graph of autograd";
    }
    return {};
  }

  /// `expected`: rows of the message, or their gradient.
  std::string wrong_of(const Message& message, observers::Kind kind,
                       const at::Tensor& expected) const {
    if (!message.boundary) return {};  // Between layers of a module nobody looks.
    const PartKey part = part_of(message.source);
    const std::string what = words(message.module, kind, part);
    const Views::View* view = only(message.module, kind, part);
    if (view == nullptr) return what + " are not shown, or more than once";
    const auto spans =
        row_spans(plan_.model, message.module, RowKind::output, iteration_.samples, samples(part));
    const std::vector<std::int64_t> wanted{row_count(spans), message.width};
    if (view->values.sizes() != at::IntArrayRef(wanted))
      return what + " are shown as " + shape_text(view->values) + " instead of " +
             std::to_string(wanted[0]) + " x " + std::to_string(wanted[1]);
    // What layers add to the loss may depend on the output too.
    if (kind == observers::Kind::gradients && !outcome_.added.empty()) return {};
    const std::vector<at::Tensor> shown{take_rows(view->values, spans, message.samples)};
    if (difference(std::vector<at::Tensor>{expected}, shown) <= kRounding) return {};
    return what + " are shown with other values than the stage hands on";
  }

  std::string wrong_losses(const PartKey& part, double loss) const {
    const ModuleId llm = plan_.model.llm();
    const std::string what = words(llm, observers::Kind::losses, part);
    const Views::View* view = only(llm, observers::Kind::losses, part);
    if (view == nullptr) return what + " are not shown, or more than once";
    const auto wanted = static_cast<std::int64_t>(samples(part).size());
    if (view->values.dim() != 1 || view->values.size(0) != wanted)
      return what + " are shown as " + shape_text(view->values) + " instead of " +
             std::to_string(wanted);
    const double sum = view->values.to(at::kDouble).sum().item<double>();
    if (std::abs(sum - loss) <= kRounding * std::max(1.0, std::abs(loss))) return {};
    return what + " are shown with another sum than that of `losses`";
  }

  std::string words(ModuleId module, observers::Kind kind, const PartKey& part) const {
    return words_of(plan_, module, kind) + " of microbatch " +
           std::to_string(part.microbatch.value);
  }

  const std::vector<std::int32_t>& samples(const PartKey& part) const {
    return samples_of(plan_, iteration_, id_, part.microbatch, part.part);
  }

  /// The only view of it; null: there is none, or more.
  const Views::View* only(ModuleId module, observers::Kind kind, const PartKey& part) const {
    const auto is_of = [&](const Views::View& view) {
      return view.part == part && view.module == module && view.kind == kind;
    };
    const auto& all = views_.all();
    const auto first = std::ranges::find_if(all, is_of);
    return std::ranges::count_if(all, is_of) == 1 ? &*first : nullptr;
  }

  const ParallelPlan& plan_;
  const IterationPlan& iteration_;
  StageId id_;
  const StageRows& inputs_;
  const StageOutcome& outcome_;
  const Views& views_;
};

}  // namespace

void Views::show(ModuleId module, observers::Kind kind, at::Tensor values) {
  views_.push_back({part_, module, kind, values.detach().clone(), values.requires_grad()});
}

Status ViewedStage::forward(PartKey part) {
  views_.runs(part);
  Status done = StageFilter::forward(part);
  views_.runs(std::nullopt);
  return done;
}

Status ViewedStage::backward(PartKey part) {
  views_.runs(part);
  Status done = StageFilter::backward(part);
  views_.runs(std::nullopt);
  return done;
}

std::string wrong_view(const ParallelPlan& plan, const IterationPlan& iteration, StageId id,
                       const StageRows& inputs, const StageOutcome& outcome, const Views& views) {
  return HeldViews(plan, iteration, id, inputs, outcome, views).wrong();
}

std::string words_of(const ParallelPlan& plan, ModuleId module, observers::Kind kind) {
  const char* what = kind == observers::Kind::rows        ? "rows"
                     : kind == observers::Kind::gradients ? "gradients"
                                                          : "losses";
  return std::string(what) + " of '" + plan.model.at(module).name + "'";
}

}  // namespace troupe::engine
