// Random parameters and placements of their shards, for property tests of moves and stores.

#pragma once

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "runtime/vocabulary/model_state.hpp"
#include "tests/scheduler/example_models.hpp"

namespace troupe::scheduler::testing {

inline bool covers(const ShardKey& outer, const ShardKey& inner) {
  return outer.parameter == inner.parameter && outer.kind == inner.kind &&
         contains(outer.box, inner.box);
}

/// A few layers with matrices and vectors, some of which do not train.
inline std::vector<ParameterInfo> random_parameters(std::mt19937& random) {
  std::vector<ParameterInfo> parameters;
  const int layers = draw(random, 1, 5);
  for (int layer = 0; layer < layers; ++layer)
    for (int p = draw(random, 1, 3); p > 0; --p) {
      std::vector<std::int64_t> shape;
      for (int d = draw(random, 1, 3); d > 0; --d) shape.push_back(draw(random, 4, 9));
      parameters.push_back({"p" + std::to_string(parameters.size()),
                            std::move(shape),
                            {{ModuleId{0}, layer}},
                            draw(random, 0, 2) > 0});
    }
  return parameters;
}

/// A matrix for each layer of a model, of which tensor-parallel ranks share a dimension or none.
inline std::vector<ParameterInfo> parameters_for(const ModelGraph& model, std::mt19937& random) {
  std::vector<ParameterInfo> parameters;
  for (std::size_t m = 0; m < model.modules.size(); ++m)
    for (std::size_t l = 0; l < model.modules[m].layers.size(); ++l) {
      ParameterInfo info{model.modules[m].layers[l].name,
                         {draw(random, 4, 9), draw(random, 4, 9)},
                         {{ModuleId{m}, static_cast<std::int32_t>(l)}},
                         !model.modules[m].freeze};
      info.split = {draw(random, -1, 1), draw(random, 0, 3)};
      parameters.push_back(std::move(info));
    }
  return parameters;
}

/// Whether a device has other shards of the same kind that have elements in common with this one:
/// of frozen modules, on grids that cross.
inline bool overlaps(const StatePlacement& placement, const Shard& one, const DeviceSlot& device) {
  const auto meet = [](const Box& a, const Box& b) {
    for (std::size_t d = 0; d < a.size(); ++d)
      if (a[d].end <= b[d].begin || b[d].end <= a[d].begin) return false;
    return true;
  };
  return std::ranges::any_of(placement, [&](const Shard& other) {
    return other.key != one.key && other.key.parameter == one.key.parameter &&
           other.key.kind == one.key.kind && meet(other.key.box, one.key.box) &&
           std::ranges::find(other.holders, device) != other.holders.end();
  });
}

/// Who may hold a shard of a random placement.
struct DrawnHolders {
  int nodes = 3;
  int devices = 2;  ///< Of a node.
  int copies_max = 3;
};

/// Splits every parameter along one of its dimensions into one to four boxes, each on one to three
/// of up to six devices of three nodes: boxes of one parameter and kind do not overlap.
inline StatePlacement random_placement(const std::vector<ParameterInfo>& parameters,
                                       std::mt19937& random, DrawnHolders drawn = {}) {
  StatePlacement placement;
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    for (const StateKind kind : {StateKind::value, StateKind::moments}) {
      if (kind == StateKind::moments && !parameters[p].trains) continue;
      const auto& shape = parameters[p].shape;
      const auto dimension =
          static_cast<std::size_t>(draw(random, 0, static_cast<int>(shape.size()) - 1));
      std::set<std::int64_t> cuts{0, shape[dimension]};
      for (int more = draw(random, 0, 3); more > 0; --more)
        cuts.insert(draw(random, 1, static_cast<int>(shape[dimension]) - 1));
      for (auto cut = cuts.begin(); std::next(cut) != cuts.end(); ++cut) {
        Box box = whole_box(shape);
        box[dimension] = {*cut, *std::next(cut)};
        std::set<DeviceSlot> holders;
        for (int copies = draw(random, 1, drawn.copies_max); copies > 0; --copies)
          holders.insert(
              {NodeId{draw(random, 0, drawn.nodes - 1)}, draw(random, 0, drawn.devices - 1)});
        placement.push_back(
            {{ParameterId{p}, kind, std::move(box)}, {holders.begin(), holders.end()}});
      }
    }
  }
  std::sort(placement.begin(), placement.end(),
            [](const Shard& a, const Shard& b) { return a.key < b.key; });
  return placement;
}

}  // namespace troupe::scheduler::testing
