// Strong integer units for sizes and counts, and strong ids for the things a plan talks about.
//
// Values only; they compare, print as plain integers and travel in messages through `inspect`.

#pragma once

#include <compare>
#include <cstdint>
#include <functional>

namespace troupe {

/// An amount of memory or traffic in bytes; explicit, so that it is never mixed with a count.
class Bytes {
 public:
  constexpr Bytes() = default;
  constexpr explicit Bytes(std::int64_t count) : count_(count) {}  ///< May be negative.

  constexpr std::int64_t count() const { return count_; }  ///< In bytes.
  constexpr auto operator<=>(const Bytes&) const = default;
  constexpr Bytes& operator+=(Bytes other) { return count_ += other.count_, *this; }
  constexpr Bytes& operator-=(Bytes other) { return count_ -= other.count_, *this; }
  friend constexpr Bytes operator+(Bytes a, Bytes b) { return a += b; }
  friend constexpr Bytes operator-(Bytes a, Bytes b) { return a -= b; }
  friend constexpr Bytes operator*(Bytes a, std::int64_t factor) {
    return Bytes{a.count_ * factor};
  }

  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, Bytes& x) {
    return f(x.count_);
  }

 private:
  std::int64_t count_ = 0;
};

/// Number of tokens or rows; signed, so that differences are safe.
using TokenCount = std::int64_t;

/// An index that cannot be confused with another kind of index. -1 means none.
template <class Tag>
struct Id {
  std::int32_t value = -1;

  constexpr Id() = default;
  constexpr explicit Id(std::int32_t v) : value(v) {}  ///< From -1 on.
  template <class Size>
  constexpr explicit Id(Size v) : value(static_cast<std::int32_t>(v)) {}  ///< Below 2^31.

  constexpr bool valid() const { return value >= 0; }  ///< Whether it names anything.
  constexpr std::size_t index() const { return static_cast<std::size_t>(value); }  ///< If valid.
  constexpr auto operator<=>(const Id&) const = default;

  template <class Inspector>
  friend typename Inspector::result_type inspect(Inspector& f, Id& x) {
    return f(x.value);
  }
};

using ModuleId = Id<struct ModuleTag>;            ///< Index into `ModelGraph::modules`.
using NodeId = Id<struct NodeTag>;                ///< Stable for the whole job.
using DeviceId = Id<struct DeviceTag>;            ///< Index into `ParallelPlan::devices`.
using ModuleGroupId = Id<struct ModuleGroupTag>;  ///< Index into `ParallelPlan::module_groups`.
using ReplicaId = Id<struct ReplicaTag>;          ///< Index into `ParallelPlan::replicas`.
using StageId = Id<struct StageTag>;              ///< Index into `ParallelPlan::stages`.
using PipelineId = Id<struct PipelineTag>;        ///< Index into `ParallelPlan::pipelines`.
using MicrobatchId = Id<struct MicrobatchTag>;    ///< Counts within one replica.
using PartId = Id<struct PartTag>;                ///< Counts within one microbatch.
using MessageId = Id<struct MessageTag>;          ///< Index into `IterationPlan::messages`.
using GroupId = Id<struct GroupTag>;              ///< Index into `ParallelPlan::groups`.

/// Increases at every reconfiguration; messages of an older number are dropped.
using EpochNumber = std::uint32_t;

}  // namespace troupe

template <class Tag>
struct std::hash<troupe::Id<Tag>> {
  std::size_t operator()(troupe::Id<Tag> id) const noexcept {
    return std::hash<std::int32_t>{}(id.value);
  }
};
