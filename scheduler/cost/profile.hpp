// What `troupe profile` writes and every planner reads: the measured or computed cost of each kind
// of layer on one kind of device. Plain values, so that any file format can hold them.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/vocabulary/parallelism.hpp"
#include "runtime/vocabulary/units.hpp"

namespace troupe::scheduler {

using troupe::Parallelism;

/// Where a number comes from. Shown wherever the number is shown.
enum class CostOrigin : std::uint8_t {
  measured,  ///< On the device at hand.
  modelled,  ///< Compute measured, collectives from the transport's measured speed.
  computed,  ///< From documented peak numbers (roofline); no device was there.
};
std::string_view to_string(CostOrigin origin);

/// One part of a layer at one size.
struct PartCost {
  double forward_ms = 0;
  double input_grad_ms = 0;
  double weight_grad_ms = 0;
  double activation_bytes = 0;

  friend bool operator==(const PartCost&, const PartCost&) = default;
};

/// One size: rows between layers, or trained tokens for the llm's last layer, which skips the rest.
/// `linear` is everything that depends on the tokens of the whole microbatch (matrix
/// products, norms, launches); `attention` is what depends on the length of each sequence in it,
/// and is zero for a layer without attention.
struct ProfilePoint {
  TokenCount tokens = 0;  ///< >= 1; one sequence of this length.
  PartCost linear;
  PartCost attention;

  friend bool operator==(const ProfilePoint&, const ProfilePoint&) = default;
};

/// One kind of layer at one (tp, cp). Layers of equal shape share a kind.
struct LayerProfile {
  std::string kind;  ///< `llm.block`, `vision.merger`.
  Parallelism parallelism;
  CostOrigin origin = CostOrigin::measured;
  Bytes parameters;  ///< This device's share.
  std::vector<ProfilePoint> points;

  friend bool operator==(const LayerProfile&, const LayerProfile&) = default;
};

/// Which kind a layer of the model is.
struct LayerKindOf {
  std::string layer;  ///< `LayerSpec::name`.
  std::string kind;

  friend bool operator==(const LayerKindOf&, const LayerKindOf&) = default;
};

/// A class of links. A transfer takes latency + bytes / speed; a device's transfers of one class
/// leave one after the other.
struct LinkSpeed {
  double latency_ms = 0;
  double gigabytes_per_s = 0;  ///< 0: bytes take no time.

  friend bool operator==(const LinkSpeed&, const LinkSpeed&) = default;
};

/// How fast a device does what is not a layer: moving rows, summing gradients, updating.
struct DeviceSpeeds {
  CostOrigin origin = CostOrigin::measured;
  LinkSpeed device;                     ///< Between stages on one device.
  LinkSpeed node;                       ///< Between devices of one node.
  LinkSpeed machine;                    ///< Between nodes of one machine.
  LinkSpeed network;                    ///< Between nodes.
  double reduce_gigabytes_per_s = 0;    ///< Summing gradients of one more holder; 0: no time.
  double optimizer_elements_per_s = 0;  ///< AdamW; 0: no time.
  double optimizer_group_ms = 0;        ///< AdamW, per parameter group, whatever its size.
  LinkSpeed host = {};                  ///< Between a device and its host's memory.

  friend bool operator==(const DeviceSpeeds&, const DeviceSpeeds&) = default;
};

struct Profile {
  std::string device;  ///< As shown to users: `cpu`, `H100-80G (computed)`.
  std::vector<LayerKindOf> layers;
  std::vector<LayerProfile> profiles;
  DeviceSpeeds speeds = {};

  friend bool operator==(const Profile&, const Profile&) = default;
};

}  // namespace troupe::scheduler
