#include "balancer/tokens/token_blocks.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <string>

#include "balancer/loads/load_tree.hpp"
#include "balancer/microbatches/partition_ilp.hpp"
#include "runtime/vocabulary/named_value.hpp"

namespace troupe::balancer {

namespace {

constexpr std::array kNames{
    std::pair{TokenBlockMethod::lpt, std::string_view{"lpt"}},
    std::pair{TokenBlockMethod::ilp, std::string_view{"ilp"}},
    std::pair{TokenBlockMethod::round_robin, std::string_view{"round-robin"}},
    std::pair{TokenBlockMethod::zigzag, std::string_view{"zigzag"}},
};

using Loads = std::vector<std::int64_t>;
using Owners = std::vector<std::int32_t>;

Owners longest_first(const Loads& blocks, std::int32_t device_count) {
  std::vector<std::size_t> order(blocks.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](auto a, auto b) { return blocks[a] != blocks[b] ? blocks[a] > blocks[b] : a > b; });
  Owners owner(blocks.size());
  LoadTree<std::int64_t> loads(static_cast<std::size_t>(device_count));
  for (const auto block : order) {
    const auto device = loads.least();
    owner[block] = static_cast<std::int32_t>(device);
    loads.set(device, loads.key(device) + blocks[block]);
  }
  return owner;
}

Owners round_robin(std::size_t block_count, std::int32_t device_count) {
  Owners owner(block_count);
  for (std::size_t b = 0; b < block_count; ++b)
    owner[b] = static_cast<std::int32_t>(b % static_cast<std::size_t>(device_count));
  return owner;
}

Owners zigzag(std::size_t block_count, std::int32_t device_count) {
  Owners owner(block_count);
  const auto runs = 2 * static_cast<std::size_t>(device_count);
  for (std::size_t b = 0; b < block_count; ++b) {
    const std::size_t run = b * runs / block_count;
    owner[b] = static_cast<std::int32_t>(std::min(run, runs - 1 - run));
  }
  return owner;
}

Loads device_loads(const Loads& blocks, const Owners& owner, std::int32_t device_count) {
  Loads loads(static_cast<std::size_t>(device_count), 0);
  for (std::size_t b = 0; b < blocks.size(); ++b)
    loads[static_cast<std::size_t>(owner[b])] += blocks[b];
  return loads;
}

Result<Owners> integer_program(const Loads& blocks, const TokenBlockOptions& options) {
  std::vector<Workload> workloads;
  for (const auto load : blocks) workloads.push_back({0, static_cast<double>(load)});
  const auto found = partition(workloads, {.bucket_count = options.device_count,
                                           .method = PartitionMethod::ilp,
                                           .time_limit_ms = options.time_limit_ms});
  if (!found.ok()) return found.error();
  auto owner = longest_first(blocks, options.device_count);
  const auto greedy = device_loads(blocks, owner, options.device_count);
  if (found.value().max_ms >= static_cast<double>(*std::max_element(greedy.begin(), greedy.end())))
    return owner;
  const auto& buckets = found.value().buckets;
  for (std::size_t device = 0; device < buckets.size(); ++device)
    for (const auto block : buckets[device])
      owner[static_cast<std::size_t>(block)] = static_cast<std::int32_t>(device);
  return owner;
}

Result<Owners> assign(const Loads& blocks, const TokenBlockOptions& options) {
  switch (options.method) {
    case TokenBlockMethod::lpt: return longest_first(blocks, options.device_count);
    case TokenBlockMethod::round_robin: return round_robin(blocks.size(), options.device_count);
    case TokenBlockMethod::zigzag: return zigzag(blocks.size(), options.device_count);
    case TokenBlockMethod::ilp: break;
  }
  return integer_program(blocks, options);
}

}  // namespace

Result<TokenBlockMethod> token_block_method_from(std::string_view name) {
  return find_named(kNames, name, "token block method", "method");
}

Result<TokenBlocks> assign_token_blocks(std::span<const TokenSample> samples,
                                        const TokenBlockOptions& options) {
  if (auto fine = check_group_count(options.device_count, "devices"); !fine.ok())
    return fine.error();
  auto blocks = block_loads(samples, options.shape);
  if (!blocks.ok()) return blocks.error();
  TokenCount tokens = 0;
  for (const auto& sample : samples) tokens += sample.tokens;
  const bool too_short = tokens / options.shape.block < options.device_count;
  TokenBlocks result;
  result.owner.assign(blocks.value().size(), 0);
  if (!too_short) {
    auto owner = assign(blocks.value(), options);
    if (!owner.ok()) return owner.error();
    result.owner = std::move(owner).value();
  }
  result.loads = device_loads(blocks.value(), result.owner, options.device_count);
  return result;
}

}  // namespace troupe::balancer
