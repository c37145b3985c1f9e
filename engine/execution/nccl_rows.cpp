#include "engine/execution/nccl_rows.hpp"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

namespace troupe::engine {

using transport::Operation;
using transport::Tag;

namespace {

/// Of the word that gives a send its turn, beside that of the word that it comes: both ends may be
/// devices of one node.
Tag turn_tag(Tag tag) {
  tag.index |= std::uint64_t{1} << 63U;
  return tag;
}

std::string text_of(const DeviceSlot& slot) {
  return std::to_string(slot.node.value) + "." + std::to_string(slot.local_index);
}

at::Tensor tensor_in(std::shared_ptr<std::byte> memory, at::IntArrayRef shape, at::ScalarType type,
                     c10::Device place) {
  auto* data = memory.get();
  return at::for_blob(data, shape)
      .deleter([memory = std::move(memory)](void*) {})
      .options(at::TensorOptions().dtype(type).device(place))
      .target_device(place)
      .make_tensor();
}

}  // namespace

NcclRows::NcclRows(std::shared_ptr<NcclDevice> device) : device_(std::move(device)) {}

NcclRows::~NcclRows() = default;

Status NcclRows::open(const ParallelPlan& plan, DeviceId device, EpochNumber generation) {
  std::vector<std::shared_ptr<Lane>> old;
  {
    const std::lock_guard lock(mutex_);
    old.swap(lanes_);
    lost_.clear();
  }
  calls_.clear();
  // In one order at all devices: no two of them wait for each other.
  const auto all = scheduler::row_lanes(plan);
  for (std::size_t place = 0; place < all.size(); ++place) {
    if (all[place].from != device && all[place].to != device) continue;
    if (auto opened = open_lane(plan, all[place], place, device, generation, old); !opened.ok())
      return opened;
  }
  return Done{};
}

Status NcclRows::open_lane(const ParallelPlan& plan, const scheduler::RowLane& wanted,
                           std::size_t place, DeviceId device, EpochNumber generation,
                           const std::vector<std::shared_ptr<Lane>>& old) {
  auto lane = std::make_shared<Lane>();
  lane->from = plan.devices[wanted.from.index()];
  lane->to = plan.devices[wanted.to.index()];
  lane->sends = wanted.from == device;
  lane->other = lane->sends ? wanted.to : wanted.from;
  lane->peer = plan.devices[lane->other.index()].node.value;
  const auto before = std::ranges::find_if(
      old, [&](const auto& one) { return one->from == lane->from && one->to == lane->to; });
  NcclSeat seat;
  if (before != old.end()) {
    const std::lock_guard lock(mutex_);
    seat = std::move((*before)->seat);
  }
  transport::NcclGroupOptions options;
  options.name = "rows from device " + text_of(lane->from) + " to " + text_of(lane->to);
  options.generation = generation;
  // Behind those of sums, which are numbered by groups of parameters.
  options.group_id = static_cast<std::uint32_t>(plan.groups.size() + place) + 1;
  options.members = {lane->from.node.value, lane->to.node.value};
  options.rank = lane->sends ? 0 : 1;
  auto made = device_->open(std::move(seat), std::move(options), "cluster.rows");
  if (!made.ok()) return std::move(made).error();
  {
    const std::lock_guard lock(mutex_);
    lane->seat = std::move(made).value();
    lanes_.push_back(lane);
    // Who was lost meanwhile would be missed: its lane was not there to hear of it.
    for (const auto& [peer, why] : lost_) lane->seat.group->lose(peer, why);
  }
  return warm_up(*lane);
}

Status NcclRows::warm_up(Lane& lane) {
  const auto deadline = transport::within(device_->options().opening / 3);
  const auto memory = lane.seat.stream->allocate(1);
  transport::NcclGroup* group = nullptr;
  std::optional<Operation> moved;
  {
    const std::lock_guard lock(mutex_);
    group = lane.seat.group.get();
    moved = memory.ok() ? launch(lane, memory.value().get(), 1, memory.value(), deadline)
                        : Operation(memory.error());
  }
  // Unlocked, so that it can be told of a lost node; no other thread lets go of a lane.
  const Status own = moved->wait(deadline + transport::kNcclGrace);
  return group->compare(own, compare_end(deadline, device_->options()));
}

Operation NcclRows::launch(Lane& lane, void* data, std::size_t bytes, std::shared_ptr<void> owner,
                           transport::Deadline deadline) {
  if (lane.seat.group == nullptr)
    return Operation(Error{Errc::cancelled, "its layout is over", {}, {}});
  if (lane.sends) {
    const std::array<transport::NcclRowsTo, 1> to{{{1, {data, bytes, std::move(owner)}}}};
    return lane.seat.group->exchange_rows(to, {}, deadline);
  }
  const std::array<transport::NcclRowsFrom, 1> from{{{0, {data, bytes, std::move(owner)}}}};
  return lane.seat.group->exchange_rows({}, from, deadline);
}

std::shared_ptr<NcclRows::Lane> NcclRows::find(DeviceId other, bool sends) const {
  for (const auto& lane : lanes_)
    if (lane->other == other && lane->sends == sends) return lane;
  return nullptr;
}

bool NcclRows::sends_to(DeviceId other) const { return find(other, true) != nullptr; }

bool NcclRows::receives_from(DeviceId other) const { return find(other, false) != nullptr; }

Operation NcclRows::send(DeviceId to, const Tag& tag, at::Tensor rows) {
  auto call = std::make_shared<Call>();
  call->tag = tag;
  call->rows = std::move(rows);
  return begin(find(to, true), call);
}

Result<RowCalls::Coming> NcclRows::receive(DeviceId from, const Tag& tag, at::IntArrayRef shape,
                                           at::ScalarType type) {
  const auto lane = find(from, false);
  auto bytes = c10::elementSize(type);
  for (const std::int64_t size : shape) bytes *= static_cast<std::size_t>(size);
  auto memory = lane->seat.stream->allocate_shared(bytes);
  if (!memory.ok()) return std::move(memory).error();
  auto call = std::make_shared<Call>();
  call->tag = tag;
  call->rows = tensor_in(std::move(memory).value(), shape, type, device_->options().place);
  call->turn = lane->posted++;
  return Coming{call->rows, begin(lane, call)};
}

Operation NcclRows::begin(const std::shared_ptr<Lane>& lane, const std::shared_ptr<Call>& call) {
  std::erase_if(calls_, [](const auto& one) { return one->completion.operation().done(); });
  calls_.push_back(call);
  const Operation operation = call->completion.operation();
  await_word(lane, call);
  if (!lane->sends) tell(*lane, call);
  return operation;
}

/// Goes on when the other end has said its word.
void NcclRows::await_word(const std::shared_ptr<Lane>& lane, const std::shared_ptr<Call>& call) {
  auto& word = lane->sends ? call->turn : call->heard;
  call->word = device_->transport().receive(
      lane->peer, lane->sends ? turn_tag(call->tag) : call->tag, {&word, sizeof word, call});
  call->word->on_done(
      [weak = weak_from_this(), weak_lane = std::weak_ptr(lane), call](const Status& heard) {
        if (!heard.ok()) {
          call->completion.complete(heard);
          return;
        }
        const auto self = weak.lock();
        const auto its_lane = weak_lane.lock();
        if (self && its_lane) self->take_turn(its_lane, call);
      });
}

/// Says this end's word: its turn, or that it comes.
void NcclRows::tell(const Lane& lane, const std::shared_ptr<Call>& call) {
  const auto told =
      device_->transport().send(lane.peer, lane.sends ? call->tag : turn_tag(call->tag),
                                {&call->turn, sizeof call->turn, call});
  told.on_done([call](const Status& sent) {
    if (!sent.ok()) call->completion.complete(sent);
  });
}

/// Launches what has come to its turn. Nothing that may call back is called under the lock.
void NcclRows::take_turn(const std::shared_ptr<Lane>& lane, const std::shared_ptr<Call>& call) {
  std::vector<std::pair<std::shared_ptr<Call>, Operation>> launched;
  {
    const std::lock_guard lock(mutex_);
    lane->ready.emplace(call->turn, call);
    while (!lane->ready.empty() && lane->ready.begin()->first == lane->next) {
      const auto next = lane->ready.begin()->second;
      lane->ready.erase(lane->ready.begin());
      ++lane->next;
      launched.emplace_back(next, launch(*lane, next->rows.data_ptr(), next->rows.nbytes(), next,
                                         transport::within(device_->options().call)));
    }
  }
  for (const auto& [own, operation] : launched) {
    operation.on_done([call = own](const Status& ended) { call->completion.complete(ended); });
    if (lane->sends) tell(*lane, own);
  }
}

void NcclRows::give_up() {
  std::erase_if(calls_, [](const auto& one) { return one->completion.operation().done(); });
  if (calls_.empty()) return;
  const Error why{Errc::cancelled, "its step was given up", {}, {}};
  for (const auto& call : std::exchange(calls_, {})) {
    call->word->cancel();
    call->completion.complete(why);
  }
  const std::lock_guard lock(mutex_);
  for (const auto& lane : lanes_) lane->seat.group->end(why);
}

void NcclRows::lose(transport::Peer peer, const Error& why) {
  const std::lock_guard lock(mutex_);
  lost_.insert_or_assign(peer, why);
  for (const auto& lane : lanes_) lane->seat.group->lose(peer, why);
}

}  // namespace troupe::engine
