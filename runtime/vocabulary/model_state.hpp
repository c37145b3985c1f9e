// What training keeps of a model, apart from who computes with it: shards of parameters, of their
// exact copies and of their optimizer's moments, and the devices that hold each.
//
// Values only. A holder is a device of the job, whatever layout it serves: state outlives layouts.

#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "runtime/vocabulary/model_graph.hpp"
#include "runtime/vocabulary/parallel_plan.hpp"
#include "runtime/vocabulary/units.hpp"

namespace troupe {

/// Index into the list of a model's parameters.
using ParameterId = Id<struct ParameterTag>;

/// How tensor-parallel ranks share a parameter.
struct ParameterSplit {
  std::int32_t dimension = -1;  ///< -1: every rank keeps all of it.
  std::int64_t parts = 0;       ///< As in `SplitElements`.
};

/// One logical parameter: a tied one once, frozen ones and constants too.
struct ParameterInfo {
  std::string name;
  std::vector<std::int64_t> shape;
  std::vector<LayerId> uses;  ///< In model order; the first one gives it its initial value.
  bool trains = false;        ///< Has moments, and a master where its type is narrow.
  ParameterSplit split = {};
  bool moments_in_host = false;  ///< These and the master, but for their update.
  bool own_update = false;       ///< Its family moves it (`models::Family::update`), not AdamW.

  /// Of the whole parameter.
  std::int64_t elements() const {
    std::int64_t count = 1;
    for (const std::int64_t size : shape) count *= size;
    return count;
  }
};

/// Half-open range of indices of one dimension.
struct IndexRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  /// How many indices.
  std::int64_t size() const { return end - begin; }
  friend auto operator<=>(const IndexRange&, const IndexRange&) = default;
  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, IndexRange& x) {
    return f(x.begin, x.end);
  }
};

/// A block of a parameter, a range per dimension; so that splits by rows, by columns, and of one
/// part of a fused matrix are all the same thing. None of it is empty.
using Box = std::vector<IndexRange>;

/// All of a parameter of this shape.
inline Box whole_box(const std::vector<std::int64_t>& shape) {
  Box box;
  for (const std::int64_t size : shape) box.push_back({0, size});
  return box;
}

/// What rank `rank` of `tp` keeps of a parameter. Ranks in order keep ranges in order; where parts
/// are fewer than ranks, neighbours keep the same one. REQUIRES: 0 <= rank < tp.
inline Box rank_box(const ParameterInfo& parameter, std::int32_t tp, std::int32_t rank) {
  Box box = whole_box(parameter.shape);
  if (parameter.split.dimension < 0) return box;
  IndexRange& range = box[static_cast<std::size_t>(parameter.split.dimension)];
  const std::int64_t size = range.end;
  const std::int64_t parts = parameter.split.parts == 0 ? size : parameter.split.parts;
  const std::int64_t first = parts * rank / tp;
  const std::int64_t last = std::max(first + 1, parts * (rank + 1) / tp);
  range = {size * first / parts, size * last / parts};
  return box;
}

/// Of the block.
inline std::int64_t elements_of(const Box& box) {
  std::int64_t count = 1;
  for (const IndexRange& range : box) count *= range.size();
  return count;
}

/// Whether all of `inner` lies in `outer`; both of one parameter.
inline bool contains(const Box& outer, const Box& inner) {
  for (std::size_t d = 0; d < outer.size(); ++d)
    if (inner[d].begin < outer[d].begin || inner[d].end > outer[d].end) return false;
  return true;
}

/// What is kept of a parameter. Each kind has holders of its own.
enum class StateKind : std::uint8_t {
  value,    ///< What layers compute with, in the model's type.
  master,   ///< The exact value in fp32, where the model's type is narrower.
  moments,  ///< AdamW's two running means, one behind the other.
};

/// What names a shard in a store.
struct ShardKey {
  ParameterId parameter;
  StateKind kind = StateKind::value;
  Box box;

  friend auto operator<=>(const ShardKey&, const ShardKey&) = default;
  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, ShardKey& x) {
    return f(x.parameter, x.kind, x.box);
  }
};

/// A shard and who keeps it; holders ascend. A holder needs no stage that uses it.
struct Shard {
  ShardKey key;
  std::vector<DeviceSlot> holders;

  friend bool operator==(const Shard&, const Shard&) = default;
  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, Shard& x) {
    return f(x.key, x.holders);
  }
};

/// Where all of a job's state lies; ascending by key.
using StatePlacement = std::vector<Shard>;

/// A piece of state that a device is to get from another one, or from its own shards of other
/// boxes, or makes from the job's seed.
struct StateMove {
  ShardKey piece;
  DeviceSlot from;  ///< Without a node: the seed.
  DeviceSlot to;

  /// Whether the device makes it itself.
  bool is_from_seed() const { return !from.node.valid(); }
  friend auto operator<=>(const StateMove&, const StateMove&) = default;
  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, StateMove& x) {
    return f(x.piece, x.from, x.to);
  }
};

}  // namespace troupe
