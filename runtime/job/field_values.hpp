// The words and numbers that keys of the job file take. Private to runtime/job.

#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/job/job.hpp"
#include "runtime/vocabulary/route.hpp"

namespace troupe::job {

/// Closed range of a number or integer.
template <class T>
struct Range {
  T min;
  T max;
};

inline constexpr std::int64_t kCountMax = 1'000'000'000'000;
inline constexpr Range<std::int64_t> kCount{1, kCountMax};
inline constexpr Range<std::int64_t> kSmallCount{1, 100'000};
inline constexpr Range<std::int64_t> kWidth{1, 1 << 20};
inline constexpr Range<double> kSeconds{0.01, 86'400};

inline constexpr std::array<std::pair<std::string_view, Dtype>, 3> kDtypes{
    {{"fp32", Dtype::fp32}, {"bf16", Dtype::bf16}, {"fp64", Dtype::fp64}}};
inline constexpr std::array<std::pair<std::string_view, ModuleKind>, 4> kModuleKinds{
    {{"encoder", ModuleKind::encoder},
     {"projector", ModuleKind::projector},
     {"llm", ModuleKind::llm},
     {"teacher", ModuleKind::teacher}}};
inline constexpr std::array<std::pair<std::string_view, AttentionRule>, 2> kAttentionRules{
    {{"causal", AttentionRule::causal}, {"modality", AttentionRule::modality}}};
inline constexpr std::array<std::pair<std::string_view, LayoutMode>, 2> kLayoutModes{
    {{"auto", LayoutMode::automatic}, {"manual", LayoutMode::manual}}};
inline constexpr std::array<std::pair<std::string_view, DurationUnit>, 4> kDurations{
    {{"steps", DurationUnit::steps},
     {"epochs", DurationUnit::epochs},
     {"samples", DurationUnit::samples},
     {"tokens", DurationUnit::tokens}}};

/// Those that LibTorch brings; plug-ins may add others to it.
inline const std::vector<std::string> kDevices{"cpu", "cuda"};
inline constexpr std::array<std::string_view, 1> kTransports{"ucx"};
inline constexpr std::array<std::string_view, 4> kSums{"messages", "nccl", "nccl-chain", "auto"};
inline constexpr std::array<std::string_view, 3> kRows{"messages", "nccl", "auto"};
inline constexpr std::array<std::string_view, 4> kBoundaries{"auto", kRouteNames[0], kRouteNames[1],
                                                             kRouteNames[2]};
inline constexpr std::array<std::string_view, 2> kDealings{"work", "count"};
inline constexpr std::array<std::string_view, 3> kExchanges{"off", "per-phase", "auto"};
inline constexpr std::array<std::string_view, 2> kItemUnits{"whole", "ranges"};
inline constexpr std::array<std::string_view, 6> kOffloads{"off",  "activations", "moments",
                                                           "both", "parameters",  "all"};

}  // namespace troupe::job
