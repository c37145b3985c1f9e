#include "scheduler/layout/layout_shapes.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <initializer_list>
#include <limits>
#include <map>
#include <numeric>
#include <span>
#include <tuple>
#include <utility>

#include "runtime/vocabulary/index.hpp"
#include "scheduler/iteration/stage_graph.hpp"

namespace troupe::scheduler {

namespace {

/// Cuts of a row of layers, and what decides whether a smaller bound could do.
struct Filled {
  bool ok = false;
  double largest = 0;  ///< Largest load of a piece, where all layers found a place.
  double next = 0;     ///< The least bound above the one tried at which pieces differ.
};

/// Cuts layers with these prefix sums into as many pieces as there are loads, adding a piece to
/// each, so that none exceeds `bound`; earlier pieces take what fits.
Filled fill(const std::vector<double>& sums, const std::vector<double>& loads, double bound,
            std::vector<std::int32_t>& cuts) {
  Filled made{true, 0, std::numeric_limits<double>::infinity()};
  const std::size_t layers = sums.size() - 1, pieces = loads.size();
  std::size_t begin = 0;
  for (std::size_t piece = 0; piece < pieces; ++piece) {
    const std::size_t last = layers - (pieces - piece - 1);  // The others need a layer each.
    const double before = loads[piece] - sums[begin];
    // Pieces are short where there are many: search near their begin first.
    std::size_t reach = begin + 1;
    while (reach < last && !(bound < before + sums[reach]))
      reach = std::min(last, begin + 2 * (reach - begin));
    auto end = static_cast<std::size_t>(
        std::upper_bound(sums.begin() + static_cast<std::ptrdiff_t>(begin) + 1,
                         sums.begin() + static_cast<std::ptrdiff_t>(reach) + 1, bound,
                         [&](double most, double sum) { return most < before + sum; }) -
        sums.begin() - 1);
    if (end < last) made.next = std::min(made.next, before + sums[end + 1]);
    if (end == begin) {
      made.ok = false;
      ++end;
    }
    made.largest = std::max(made.largest, before + sums[end]);
    cuts[piece + 1] = static_cast<std::int32_t>(end);
    begin = end;
  }
  made.ok = made.ok && begin == layers;
  return made;
}

/// A row of layers that is cut as a whole, and the cuts known so far.
struct Row {
  struct Cut {
    std::vector<std::int32_t> cuts;
    std::vector<double> loads;  ///< Per piece.
  };

  std::vector<std::size_t> layers;  ///< Indices into `LayerWeights`.
  std::vector<double> sums{0};      ///< Of their work, before each layer and after the last.
  double largest_ms = 0;            ///< Of a layer.
  std::vector<Cut> even;            ///< By pieces: cuts for devices that have nothing else to do.

  void add(std::size_t layer, const LayerWeights& weights) {
    layers.push_back(layer);
    sums.push_back(sums.back() + weights.work_ms[layer]);
    largest_ms = std::max(largest_ms, weights.work_ms[layer]);
  }
  double work_ms() const { return sums.back(); }
};

/// Cuts with the least largest load. Every bound that is tried rules out all that would cut alike.
std::vector<std::int32_t> balanced_cuts(const Row& row, const std::vector<double>& loads) {
  const double all_loads = std::accumulate(loads.begin(), loads.end(), 0.0);
  double low =
      std::max((row.work_ms() + all_loads) / static_cast<double>(loads.size()), row.largest_ms);
  low *= 1 - 1e-12;  // Sums round.
  std::vector<std::int32_t> best(loads.size() + 1), cuts(loads.size() + 1);
  // A layer more than the mean is nearly always enough.
  auto roomy = fill(row.sums, loads, low + row.largest_ms, best);
  if (!roomy.ok) {
    const double all = row.work_ms() + *std::max_element(loads.begin(), loads.end());
    roomy = fill(row.sums, loads, 2 * all, best);
  }
  double high = roomy.largest;
  for (bool first = true; low < high; first = false) {
    // The mean is often close, so that it is tried before halves.
    const double middle = low + (high - low) / 2;
    const auto made = fill(row.sums, loads, first || middle >= high ? low : middle, cuts);
    if (made.ok) {
      high = made.largest;
      std::swap(best, cuts);
    } else {
      low = std::max(made.next, std::nextafter(low, high));
    }
  }
  return best;
}

void add_loads(const Track& track, const LayerWeights& weights, std::vector<double>& loads) {
  for (std::int32_t s = 0; s < track.segments(); ++s)
    for (auto l = track.cuts[at(s)]; l < track.cuts[at(s) + 1]; ++l)
      loads[at(track.first_device + s)] += weights.work_ms[track.layers[at(l)]];
}

/// Cuts a row over the devices of `track`, on top of their loads.
void cut_row(Row& row, const LayerWeights& weights, std::int32_t count, Track& track,
             std::vector<double>& loads) {
  const auto first = loads.begin() + track.first_device, end = first + count;
  track.layers = row.layers;
  if (std::any_of(first, end, [](double ms) { return ms != 0; })) {
    track.cuts = balanced_cuts(row, {first, end});
    return add_loads(track, weights, loads);
  }
  row.even.resize(row.layers.size() + 1);
  auto& known = row.even[at(count)];
  if (known.cuts.empty()) {
    known.loads.resize(at(count));
    Track alone{row.layers, 0, balanced_cuts(row, known.loads)};
    add_loads(alone, weights, known.loads);
    known.cuts = std::move(alone.cuts);
  }
  track.cuts = known.cuts;
  std::copy(known.loads.begin(), known.loads.end(), first);
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
  Row all, llm, encoders;
  std::vector<Row> own;                             ///< Per joined encoders.
  std::map<std::vector<ModuleId>, Row> of_modules;  ///< Of replicas that were asked for.

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
    Row* row;
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

  PipelineShape cut(const Set& set, const LayerWeights& weights) const {
    PipelineShape shape{set.form, set.devices, {}, 0};
    std::vector<double> loads(at(shape.devices));
    for (std::size_t d = set.begin; d < set.end; ++d) {
      auto& track = shape.tracks.emplace_back();
      track.first_device = drafts_[d].first;
      cut_row(*drafts_[d].row, weights, drafts_[d].count, track, loads);
    }
    shape.slowest_ms = *std::max_element(loads.begin(), loads.end());
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
      Row& row = rows_.own[drafts.size()];
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
                               StageWidths widths)
    : weights_(weights), widths_(widths), rows_(std::make_unique<Rows>(model, weights)) {}

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
    auto shape = drafts.cut(set, weights_);
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
  Row& row = known->second;
  for (std::size_t i = 0; fresh && i < weights_.layers.size(); ++i)
    if (std::find(modules.begin(), modules.end(), weights_.layers[i].module) != modules.end())
      row.add(i, weights_);
  PipelineShape shape{PipelineForm::replica, devices, {}, 0};
  std::vector<double> loads(at(devices));
  cut_row(row, weights_, devices, shape.tracks.emplace_back(), loads);
  shape.slowest_ms = *std::max_element(loads.begin(), loads.end());
  return shape;
}

PipelineShape with_cut(const PipelineShape& shape, const LayerWeights& weights, std::size_t track,
                       std::size_t cut, std::int32_t position) {
  PipelineShape moved = shape;
  moved.tracks[track].cuts[cut] = position;
  std::vector<double> loads(at(shape.devices));
  for (const Track& each : moved.tracks) add_loads(each, weights, loads);
  moved.slowest_ms = *std::max_element(loads.begin(), loads.end());
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
