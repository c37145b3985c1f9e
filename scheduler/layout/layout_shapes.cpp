#include "scheduler/layout/layout_shapes.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <initializer_list>
#include <limits>
#include <map>
#include <span>
#include <tuple>
#include <utility>

#include "runtime/vocabulary/index.hpp"
#include "scheduler/iteration/stage_graph.hpp"
#include "scheduler/layout/row_cuts.hpp"

namespace troupe::scheduler {

namespace {

/// See `PipelineShape::slowest_ms`.
double slowest_of(const PipelineShape& shape, const LayerWeights& weights) {
  std::vector<double> encoders(at(shape.devices)), llm(encoders.size());
  for (const Track& track : shape.tracks)
    for (std::int32_t s = 0; s < track.segments(); ++s)
      for (auto l = track.cuts[at(s)]; l < track.cuts[at(s) + 1]; ++l) {
        const auto layer = track.layers[at(l)];
        const bool apart = weights.layers[layer].module == shape.phased_llm;
        (apart ? llm : encoders)[at(track.first_device + s)] += weights.work_ms[layer];
      }
  double apart_ms = 0, shared_ms = 0;  // Of encoders.
  for (std::size_t d = 0; d < llm.size(); ++d) {
    double& slowest = llm[d] > 0 ? shared_ms : apart_ms;
    slowest = std::max(slowest, encoders[d]);
  }
  return std::max(apart_ms, shared_ms + *std::max_element(llm.begin(), llm.end()));
}

}  // namespace

std::string describe(PipelineForm form) {
  switch (form) {
    case PipelineForm::chain: return "one chain of layers";
    case PipelineForm::encoders_first: return "encoders before the llm";
    case PipelineForm::side_by_side: return "encoders side by side";
    case PipelineForm::shared: return "encoders on devices of the llm";
    case PipelineForm::replica: return "module groups on devices of their own";
  }
  return "unknown";
}

/// The rows of layers that can be cut independently of each other: encoder-side modules that are
/// joined with each other, and the llm.
struct PipelineShapes::Rows {
  LayerRow all, llm, encoders;
  std::vector<LayerRow> own;                             ///< Per joined encoders.
  std::map<std::vector<ModuleId>, LayerRow> of_modules;  ///< Of replicas that were asked for.

  Rows(const ModelGraph& model, const LayerWeights& weights) {
    const auto joined = joined_encoders(model);
    own.resize(joined.size());
    std::vector<std::size_t> place(model.modules.size());
    for (std::size_t g = 0; g < joined.size(); ++g)
      for (const ModuleId module : joined[g]) place[module.index()] = g;
    for (std::size_t i = 0; i < weights.layers.size(); ++i) {
      const ModuleId module = weights.layers[i].module;
      all.add(i, weights);
      if (module == model.llm()) {
        llm.add(i, weights);
        continue;
      }
      encoders.add(i, weights);
      own[place[module.index()]].add(i, weights);
    }
  }
};

/// The shapes on a number of devices before they are cut: which row lies where.
class PipelineShapes::Drafts {
 public:
  /// A row on devices [first, first + count).
  struct Draft {
    LayerRow* row;
    std::int32_t first = 0;
    std::int32_t count = 1;
  };
  struct Set {
    PipelineForm form;
    std::int32_t devices = 0;
    double bound_ms = 0;  ///< No cut has a faster slowest device.
    std::size_t order = 0;
    std::size_t begin = 0, end = 0;  ///< Of its drafts, each knowing the loads of those before it.
  };

  Drafts(Rows& rows, std::int32_t devices, StageWidths widths) : rows_(rows), widths_(widths) {
    const bool equal = widths.encoder == widths.llm || rows.encoders.layers.empty();
    const std::int32_t groups = devices / widths.llm;
    if (equal && groups > 0) add(PipelineForm::chain, {{&rows.all, 0, groups}});
    if (!rows.encoders.layers.empty()) {
      for (std::int32_t count = 1; count * widths.encoder + widths.llm <= devices; ++count) {
        const std::int32_t left = devices - count * widths.encoder;
        if (left % widths.llm == 0)
          add(PipelineForm::encoders_first,
              {{&rows.encoders, 0, count}, {&rows.llm, count, left / widths.llm}});
      }
      if (rows.own.size() > 1) add_side_by_side(devices);
      if (equal && groups > 1) add_shared(groups);
    }
    std::sort(sets_.begin(), sets_.end(), [](const auto& a, const auto& b) {
      return std::tie(a.bound_ms, a.order) < std::tie(b.bound_ms, b.order);
    });
  }

  /// The most promising first.
  const std::vector<Set>& sets() const { return sets_; }

  PipelineShape cut(const Set& set, const LayerWeights& weights, ModuleId phased_llm) const {
    PipelineShape shape{set.form, set.devices, {}, 0, phased_llm};
    std::vector<double> loads(at(shape.devices));
    for (std::size_t d = set.begin; d < set.end; ++d) {
      auto& track = shape.tracks.emplace_back();
      track.first_device = drafts_[d].first;
      if (phased_llm.valid() && drafts_[d].row == &rows_.llm)
        std::fill(loads.begin(), loads.end(), 0);
      cut_row(*drafts_[d].row, weights, drafts_[d].count, track, loads);
    }
    shape.slowest_ms = phased_llm.valid() ? slowest_of(shape, weights)
                                          : *std::max_element(loads.begin(), loads.end());
    return shape;
  }

 private:
  void add(PipelineForm form, std::initializer_list<Draft> drafts) {
    add_list(form, {drafts.begin(), drafts.size()});
  }

  void add_list(PipelineForm form, std::span<const Draft> drafts) {
    Set made{form, 0, 0, sets_.size(), drafts_.size(), drafts_.size() + drafts.size()};
    double sum = 0;
    for (const Draft& draft : drafts) {
      if (draft.row->layers.size() < at(draft.count)) return;
      sum += draft.row->work_ms();
      made.devices = std::max(made.devices, draft.first + draft.count);
      made.bound_ms = std::max(made.bound_ms, draft.row->work_ms() / draft.count);
    }
    made.bound_ms = std::max(made.bound_ms, sum / made.devices);
    drafts_.insert(drafts_.end(), drafts.begin(), drafts.end());
    sets_.push_back(made);
  }

  /// Each encoder on `counts[i]` groups of its own, the llm on the rest.
  void add_side_by_side(std::int32_t devices) {
    std::vector<Draft> drafts;
    const auto choose = [&](const auto& self, std::int32_t left, std::int32_t first) -> void {
      if (drafts.size() == rows_.own.size()) {
        if (left < widths_.llm || left % widths_.llm != 0) return;
        drafts.push_back({&rows_.llm, first, left / widths_.llm});
        add_list(PipelineForm::side_by_side, drafts);
        drafts.pop_back();
        return;
      }
      LayerRow& row = rows_.own[drafts.size()];
      const auto others = static_cast<std::int32_t>(rows_.own.size() - drafts.size());
      const auto layers = static_cast<std::int32_t>(row.layers.size());
      for (std::int32_t count = 1;
           count <= layers && count * widths_.encoder <= left - others * widths_.encoder; ++count) {
        drafts.push_back({&row, first, count});
        self(self, left - count * widths_.encoder, first + count);
        drafts.pop_back();
      }
    };
    choose(choose, devices, 0);
  }

  /// Encoders on some of the llm's devices: in a row on the first or last ones, or each on one of
  /// its own among them.
  void add_shared(std::int32_t devices) {
    const Draft llm{&rows_.llm, 0, devices};
    for (std::int32_t count = 1; count <= devices; ++count) {
      add(PipelineForm::shared, {{&rows_.encoders, 0, count}, llm});
      if (count < devices)
        add(PipelineForm::shared, {{&rows_.encoders, devices - count, count}, llm});
    }
    if (rows_.own.size() < 2 || static_cast<std::int32_t>(rows_.own.size()) > devices) return;
    std::vector<Draft> drafts;
    for (std::size_t i = 0; i < rows_.own.size(); ++i)
      drafts.push_back({&rows_.own[i], static_cast<std::int32_t>(i), 1});
    drafts.push_back(llm);
    add_list(PipelineForm::shared, drafts);
  }

  Rows& rows_;
  const StageWidths widths_;
  std::vector<Set> sets_;
  std::vector<Draft> drafts_;
};

PipelineShapes::PipelineShapes(const ModelGraph& model, const LayerWeights& weights,
                               StageWidths widths, bool phases)
    : weights_(weights),
      widths_(widths),
      phased_llm_(phases ? model.llm() : ModuleId{}),
      rows_(std::make_unique<Rows>(model, weights)) {}

PipelineShapes::~PipelineShapes() = default;

std::vector<FoundShape> PipelineShapes::best(std::int32_t devices, const ShapeSearch& search) {
  const Drafts drafts(*rows_, devices, widths_);
  constexpr double kNone = std::numeric_limits<double>::infinity();
  std::array<double, 4> fastest, cheapest;  // Per form.
  fastest.fill(kNone);
  cheapest.fill(kNone);
  std::vector<double> costs(search.count, kNone);  // The least ones, ascending.
  struct Known {
    FoundShape found;
    std::size_t order;
  };
  std::vector<Known> known;
  for (const auto& set : drafts.sets()) {
    const auto form = static_cast<std::size_t>(set.form);
    if (set.bound_ms > search.worth * fastest[form]) continue;
    // What was found is better, and not by rounding alone.
    constexpr double kRounding = 1e-9;
    const double least = (1 - kRounding) * search.least_cost(set.form, set.devices, set.bound_ms);
    if (least > costs.back() && least > cheapest[form]) continue;
    auto shape = drafts.cut(set, weights_, phased_llm_);
    fastest[form] = std::min(fastest[form], shape.slowest_ms);
    const auto cost = search.cost(shape);
    if (!cost) continue;
    cheapest[form] = std::min(cheapest[form], *cost);
    costs.insert(std::upper_bound(costs.begin(), costs.end(), *cost), *cost);
    costs.pop_back();
    known.push_back({{std::move(shape), *cost}, set.order});
  }
  std::sort(known.begin(), known.end(), [](const Known& a, const Known& b) {
    return std::tie(a.found.cost, a.found.shape.slowest_ms, a.order) <
           std::tie(b.found.cost, b.found.shape.slowest_ms, b.order);
  });
  std::vector<FoundShape> best;
  std::array<bool, 4> seen{};
  for (auto& [found, order] : known) {
    const bool first = !std::exchange(seen[static_cast<std::size_t>(found.shape.form)], true);
    if (first || best.size() < search.count) best.push_back(std::move(found));
  }
  return best;
}

PipelineShape PipelineShapes::replica(const std::vector<ModuleId>& modules, std::int32_t devices) {
  auto [known, fresh] = rows_->of_modules.try_emplace(modules);
  LayerRow& row = known->second;
  for (std::size_t i = 0; fresh && i < weights_.layers.size(); ++i)
    if (std::find(modules.begin(), modules.end(), weights_.layers[i].module) != modules.end())
      row.add(i, weights_);
  PipelineShape shape{PipelineForm::replica, devices, {}, 0, {}};
  std::vector<double> loads(at(devices));
  cut_row(row, weights_, devices, shape.tracks.emplace_back(), loads);
  shape.slowest_ms = *std::max_element(loads.begin(), loads.end());
  return shape;
}

PipelineShape with_cut(const PipelineShape& shape, const LayerWeights& weights, std::size_t track,
                       std::size_t cut, std::int32_t position) {
  PipelineShape moved = shape;
  moved.tracks[track].cuts[cut] = position;
  moved.slowest_ms = slowest_of(moved, weights);
  return moved;
}

std::vector<HandStage> hand_stages(const ModelGraph& model, const LayerWeights& weights,
                                   const PipelineShape& shape, std::int32_t first_device) {
  std::vector<HandStage> stages;
  for (const Track& track : shape.tracks)
    for (std::int32_t s = 0; s < track.segments(); ++s) {
      HandStage stage{first_device + track.first_device + s, 0, {}};
      for (auto l = track.cuts[at(s)]; l < track.cuts[at(s) + 1]; ++l) {
        const LayerId layer = weights.layers[track.layers[at(l)]];
        const std::string& name = model.at(layer.module).name;
        if (!stage.runs.empty() && stage.runs.back().module == name)
          ++stage.runs.back().layers->end;
        else
          stage.runs.push_back({name, LayerRange{layer.layer, layer.layer + 1}});
      }
      stages.push_back(std::move(stage));
    }
  return stages;
}

std::int32_t stages_of(const PipelineShape& shape, const LayerWeights& weights, ModuleId module) {
  std::int32_t count = 0;
  for (const Track& track : shape.tracks)
    for (std::int32_t s = 0; s < track.segments(); ++s)
      for (auto l = track.cuts[at(s)]; l < track.cuts[at(s) + 1]; ++l)
        if (weights.layers[track.layers[at(l)]].module == module) {
          ++count;
          break;
        }
  return count;
}

}  // namespace troupe::scheduler
