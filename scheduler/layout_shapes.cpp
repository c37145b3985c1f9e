#include "scheduler/layout_shapes.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <numeric>
#include <tuple>
#include <utility>

namespace troupe::scheduler {

namespace {

std::size_t at(std::int32_t index) { return static_cast<std::size_t>(index); }

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
    auto end = static_cast<std::size_t>(
        std::upper_bound(sums.begin() + static_cast<std::ptrdiff_t>(begin) + 1,
                         sums.begin() + static_cast<std::ptrdiff_t>(last) + 1, bound,
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

/// Cuts with the least largest load. Every bound that is tried rules out all that would cut alike.
std::vector<std::int32_t> balanced_cuts(const std::vector<double>& work,
                                        const std::vector<double>& loads) {
  std::vector<double> sums{0};
  for (const double ms : work) sums.push_back(sums.back() + ms);
  const double all_loads = std::accumulate(loads.begin(), loads.end(), 0.0);
  double low = std::max((sums.back() + all_loads) / static_cast<double>(loads.size()),
                        *std::max_element(work.begin(), work.end()));
  low *= 1 - 1e-12;  // Sums round.
  double high = sums.back() + *std::max_element(loads.begin(), loads.end());
  std::vector<std::int32_t> best(loads.size() + 1), cuts(loads.size() + 1);
  high = fill(sums, loads, 2 * high, best).largest;
  for (bool first = true; low < high; first = false) {
    // The mean is often close, so that it is tried before halves.
    const double middle = low + (high - low) / 2;
    const auto made = fill(sums, loads, first || middle >= high ? low : middle, cuts);
    if (made.ok) {
      high = made.largest;
      std::swap(best, cuts);
    } else {
      low = std::max(made.next, std::nextafter(low, high));
    }
  }
  return best;
}

std::vector<double> work_of(const Track& track, const LayerWeights& weights) {
  std::vector<double> work;
  for (const auto layer : track.layers) work.push_back(weights.work_ms[layer]);
  return work;
}

void add_loads(const Track& track, const LayerWeights& weights, std::vector<double>& loads) {
  for (std::int32_t s = 0; s < track.segments(); ++s)
    for (auto l = track.cuts[at(s)]; l < track.cuts[at(s) + 1]; ++l)
      loads[at(track.first_device + s)] += weights.work_ms[track.layers[at(l)]];
}

/// Encoder-side modules that are joined with each other, and the llm: the rows of layers that can
/// be cut independently of each other.
class Rows {
 public:
  Rows(const ModelGraph& model, const LayerWeights& weights) {
    std::vector<std::size_t> component(model.modules.size());
    std::iota(component.begin(), component.end(), std::size_t{0});
    for (std::size_t m = 0; m < model.modules.size(); ++m)
      for (const ModuleId next : model.modules[m].next)
        if (next != model.llm()) {
          const auto from = component[next.index()], to = component[m];
          std::replace(component.begin(), component.end(), from, to);
        }
    for (std::size_t i = 0; i < weights.layers.size(); ++i) {
      const ModuleId module = weights.layers[i].module;
      all_.push_back(i);
      if (module == model.llm()) {
        llm_.push_back(i);
        continue;
      }
      encoders_.push_back(i);
      const auto known =
          std::find(components_.begin(), components_.end(), component[module.index()]);
      if (known == components_.end()) {
        components_.push_back(component[module.index()]);
        own_.emplace_back();
      }
      own_[static_cast<std::size_t>(
               std::find(components_.begin(), components_.end(), component[module.index()]) -
               components_.begin())]
          .push_back(i);
    }
  }

  const std::vector<std::size_t>& all() const { return all_; }
  const std::vector<std::size_t>& llm() const { return llm_; }
  const std::vector<std::size_t>& encoders() const { return encoders_; }
  const std::vector<std::vector<std::size_t>>& own() const { return own_; }

 private:
  std::vector<std::size_t> all_, llm_, encoders_, components_;
  std::vector<std::vector<std::size_t>> own_;
};

/// A track before it is cut: layers on devices [first, first + count).
struct Draft {
  const std::vector<std::size_t>* layers;
  std::int32_t first = 0;
  std::int32_t count = 1;
};

class Shapes {
 public:
  explicit Shapes(const LayerWeights& weights) : weights_(weights) {}

  /// Drafts in order, each knowing the loads of those before it.
  void add(PipelineForm form, std::vector<Draft> drafts) {
    Draftset made{form, 0, 0, drafts_.size(), std::move(drafts)};
    double sum = 0;
    for (const Draft& draft : made.drafts) {
      if (draft.layers->size() < at(draft.count)) return;
      double own = 0;
      for (const auto layer : *draft.layers) own += weights_.work_ms[layer];
      sum += own;
      made.devices = std::max(made.devices, draft.first + draft.count);
      made.bound_ms = std::max(made.bound_ms, own / draft.count);
    }
    made.bound_ms = std::max(made.bound_ms, sum / made.devices);
    drafts_.push_back(std::move(made));
  }

  /// Cuts the most promising first, and leaves out what cannot be as good as `worth` times the best
  /// of its form.
  std::vector<PipelineShape> sorted(double worth) && {
    std::sort(drafts_.begin(), drafts_.end(), [](const auto& a, const auto& b) {
      return std::tie(a.bound_ms, a.order) < std::tie(b.bound_ms, b.order);
    });
    std::array<double, 4> best;
    best.fill(std::numeric_limits<double>::infinity());
    std::vector<std::pair<std::size_t, PipelineShape>> shapes;
    for (const auto& drafts : drafts_) {
      double& least = best[static_cast<std::size_t>(drafts.form)];
      if (drafts.bound_ms > worth * least) continue;
      shapes.emplace_back(drafts.order, cut(drafts));
      least = std::min(least, shapes.back().second.slowest_ms);
    }
    std::sort(shapes.begin(), shapes.end(), [](const auto& a, const auto& b) {
      return std::tie(a.second.slowest_ms, a.first) < std::tie(b.second.slowest_ms, b.first);
    });
    std::vector<PipelineShape> list;
    for (auto& [order, shape] : shapes) list.push_back(std::move(shape));
    return list;
  }

 private:
  struct Draftset {
    PipelineForm form;
    std::int32_t devices = 0;
    double bound_ms = 0;  ///< No cut has a faster slowest device.
    std::size_t order = 0;
    std::vector<Draft> drafts;
  };

  PipelineShape cut(const Draftset& set) const {
    PipelineShape shape{set.form, set.devices, {}, 0};
    std::vector<double> loads(at(shape.devices));
    for (const Draft& draft : set.drafts) {
      Track track{*draft.layers, draft.first, {}};
      const std::vector<double> under(loads.begin() + draft.first,
                                      loads.begin() + draft.first + draft.count);
      track.cuts = balanced_cuts(work_of(track, weights_), under);
      add_loads(track, weights_, loads);
      shape.tracks.push_back(std::move(track));
    }
    shape.slowest_ms = *std::max_element(loads.begin(), loads.end());
    return shape;
  }

  const LayerWeights& weights_;
  std::vector<Draftset> drafts_;
};

/// Each encoder on `counts[i]` groups of its own, the llm on the rest.
void add_side_by_side(const Rows& rows, std::int32_t devices, StageWidths widths, Shapes& shapes) {
  std::vector<std::int32_t> counts;
  std::function<void(std::int32_t)> choose = [&](std::int32_t left) {
    if (counts.size() == rows.own().size()) {
      if (left < widths.llm || left % widths.llm != 0) return;
      std::vector<Draft> drafts;
      std::int32_t first = 0;
      for (std::size_t i = 0; i < counts.size(); ++i) {
        drafts.push_back({&rows.own()[i], first, counts[i]});
        first += counts[i];
      }
      drafts.push_back({&rows.llm(), first, left / widths.llm});
      shapes.add(PipelineForm::side_by_side, drafts);
      return;
    }
    const auto others = static_cast<std::int32_t>(rows.own().size() - counts.size());
    const auto layers = static_cast<std::int32_t>(rows.own()[counts.size()].size());
    for (std::int32_t count = 1;
         count <= layers && count * widths.encoder <= left - others * widths.encoder; ++count) {
      counts.push_back(count);
      choose(left - count * widths.encoder);
      counts.pop_back();
    }
  };
  choose(devices);
}

/// Encoders on some of the llm's devices: in a row on the first or last ones, or each on one of its
/// own among them.
void add_shared(const Rows& rows, std::int32_t devices, Shapes& shapes) {
  const Draft llm{&rows.llm(), 0, devices};
  for (std::int32_t count = 1; count <= devices; ++count) {
    shapes.add(PipelineForm::shared, {{&rows.encoders(), 0, count}, llm});
    if (count < devices)
      shapes.add(PipelineForm::shared, {{&rows.encoders(), devices - count, count}, llm});
  }
  if (rows.own().size() < 2 || static_cast<std::int32_t>(rows.own().size()) > devices) return;
  std::vector<Draft> drafts;
  for (std::size_t i = 0; i < rows.own().size(); ++i)
    drafts.push_back({&rows.own()[i], static_cast<std::int32_t>(i), 1});
  drafts.push_back(llm);
  shapes.add(PipelineForm::shared, drafts);
}

}  // namespace

std::string describe(PipelineForm form) {
  switch (form) {
    case PipelineForm::chain: return "one chain of layers";
    case PipelineForm::encoders_first: return "encoders before the llm";
    case PipelineForm::side_by_side: return "encoders side by side";
    case PipelineForm::shared: return "encoders on devices of the llm";
  }
  return "unknown";
}

std::vector<PipelineShape> pipeline_shapes(const ModelGraph& model, const LayerWeights& weights,
                                           std::int32_t devices, StageWidths widths, double worth) {
  const Rows rows(model, weights);
  Shapes shapes(weights);
  const bool equal = widths.encoder == widths.llm || rows.encoders().empty();
  const std::int32_t groups = devices / widths.llm;
  if (equal && groups > 0) shapes.add(PipelineForm::chain, {{&rows.all(), 0, groups}});
  if (!rows.encoders().empty()) {
    for (std::int32_t count = 1; count * widths.encoder + widths.llm <= devices; ++count) {
      const std::int32_t left = devices - count * widths.encoder;
      if (left % widths.llm == 0)
        shapes.add(PipelineForm::encoders_first,
                   {{&rows.encoders(), 0, count}, {&rows.llm(), count, left / widths.llm}});
    }
    if (rows.own().size() > 1) add_side_by_side(rows, devices, widths, shapes);
    if (equal && groups > 1) add_shared(rows, groups, shapes);
  }
  return std::move(shapes).sorted(worth);
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
