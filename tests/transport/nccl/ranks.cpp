#include "tests/transport/nccl/ranks.hpp"

#include <algorithm>
#include <cstdlib>
#include <stdexcept>
#include <thread>
#include <utility>

#include "transport/collectives/rank_order_sum.hpp"
#include "transport/inproc/hub.hpp"

namespace troupe::transport::testing {
namespace {

/// Before the library looks: where its ranks meet.
const std::string& set_folder(const std::string& folder) {
  setenv("FAKE_NCCL_FOLDER", folder.c_str(), 1);
  return folder;
}

}  // namespace

Ranks::Ranks(int count, const std::string& library)
    : nccl_((set_folder(folder_.path().string()), library)), hub_(std::make_shared<InprocHub>()) {
  nccl_.script("");
  live_before_ = nccl_.live();
  options.name = "sums";
  options.group_id = 7;
  options.attempt = std::chrono::milliseconds(5000);
  for (int rank = 0; rank < count; ++rank) {
    TransportOptions its;
    its.self = rank;
    its.hub = hub_;
    auto transport = create_transport("inproc", its);
    if (!transport) throw std::runtime_error(transport.error().message);
    ranks_.push_back({std::move(transport).value(),
                      std::make_shared<NcclContext>(nccl_.library(), short_limits()),
                      nccl_.stream("gpu " + std::to_string(rank)), nullptr});
  }
  for (const auto& one : ranks_) {
    for (const auto& other : ranks_) {
      if (&one == &other) continue;
      (void)one.transport->connect(other.transport->self(), other.transport->address());
    }
  }
}

Ranks::~Ranks() {
  for (auto& rank : ranks_) rank.group.reset();
  (void)live_soon(0);
}

std::vector<Status> Ranks::open(const std::vector<Peer>& members, EpochNumber generation,
                                std::chrono::milliseconds limit) {
  return each(members, [&](std::size_t place) -> Status {
    auto& rank = ranks_[static_cast<std::size_t>(members[place])];
    const auto own = static_cast<std::int32_t>(place);
    auto its = options;
    its.members = members;
    its.rank = own;
    its.generation = generation;
    auto made =
        rank.group
            ? NcclGroup::rebuild(std::move(rank.group), members, own, generation, within(limit))
            : NcclGroup::create(*rank.transport, rank.context, rank.stream, its, within(limit));
    if (!made) return made.error();
    rank.group = std::move(made).value();
    return Done{};
  });
}

std::vector<Outcome> Ranks::sum(const std::vector<Peer>& members, std::uint64_t seed,
                                int deadline_ms, std::size_t count) {
  return each(members, [&](std::size_t place) -> Outcome {
    auto& group = ranks_[static_cast<std::size_t>(members[place])].group;
    if (!group) return {false, Errc::not_found, "there is no group", 0};
    CollectiveCall call;
    call.kind = "all_reduce";
    call.members = members;
    call.rank = static_cast<std::int32_t>(place);
    call.scalar = Scalar::fp32;
    call.count = count;
    call.seed = seed;
    call.deadline_ms = deadline_ms;
    return run_collective(*group, call);
  });
}

int Ranks::live_soon(int wanted) {
  const auto deadline = within(std::chrono::seconds(5));
  while (nccl_.live() != wanted + live_before_ && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return nccl_.live() - live_before_;
}

std::uint64_t expected_digest(std::uint64_t seed, std::size_t ranks, std::size_t count) {
  std::vector<std::vector<std::byte>> values;
  std::vector<const void*> inputs;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    values.push_back(rank_values(seed, static_cast<std::int32_t>(rank), count, Scalar::fp32));
    inputs.push_back(values.back().data());
  }
  std::vector<std::byte> sum(count * size_of(Scalar::fp32));
  sum_in_rank_order(inputs, count, Scalar::fp32, sum.data());
  return digest_of(sum.data(), sum.size());
}

}  // namespace troupe::transport::testing
