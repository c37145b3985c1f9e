#include "engine/state/state_transfer.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "engine/setup/initial_layers.hpp"
#include "runtime/state/checkpoint.hpp"
#include "runtime/state/shard_view.hpp"

namespace troupe::engine {

namespace {

/// Receives that wait at a time, in bytes; at least one does.
constexpr std::int64_t kPostedMax = std::int64_t{256} << 20;

/// Bytes of a message, at most. Whatever else goes the same way comes behind one that has begun: a
/// shard of gigabytes would keep all signs of life away.
constexpr std::size_t kMessageMax = std::size_t{4} << 20;

/// Bytes of a piece that go as one message.
struct Part {
  std::uint64_t number = 0;
  std::size_t begin = 0;
  std::size_t bytes = 0;
};

std::vector<Part> parts_of(std::size_t bytes) {
  std::vector<Part> parts;
  for (std::size_t begin = 0; begin < bytes; begin += kMessageMax)
    parts.push_back({parts.size(), begin, std::min(kMessageMax, bytes - begin)});
  return parts;
}

/// Forgets those that have ended. Errors: of the first of them that failed.
Status forget_ended(std::vector<transport::Operation>& operations) {
  Status outcome = Done{};
  std::erase_if(operations, [&outcome](const transport::Operation& operation) {
    if (!operation.done()) return false;
    auto ended = operation.wait(transport::within({}));
    if (outcome.ok() && !ended.ok()) outcome = std::move(ended);
    return true;
  });
  return outcome;
}

Error missing(const char* what, const ParameterInfo& info) {
  return {Errc::internal, std::string(what) + " of '" + info.name + "'", {}, {}};
}

}  // namespace

StateTransfer::StateTransfer(StateStore& store, const JobSetup& setup,
                             const std::vector<StateMove>& moves, transport::Transport& transport,
                             EpochNumber generation, std::filesystem::path checkpoint,
                             std::function<void()> wake, std::function<void(NodeId)> came)
    : store_(store),
      setup_(setup),
      transport_(transport),
      generation_(generation),
      checkpoint_(std::move(checkpoint)),
      wake_(std::move(wake)),
      came_(std::move(came)) {
  const DeviceSlot self = store.device();
  std::map<DeviceSlot, std::uint64_t> sent, received;
  for (const StateMove& move : moves) {
    if (move.is_from_seed()) {
      const auto& info = store.parameters()[move.piece.parameter.index()];
      if (move.to == self) begun_pieces_[info.uses.front()].push_back(move.piece);
    } else if (move.from == self && move.to == self) {
      copies_.push_back({move, 0});
    } else if (move.from == self) {
      outgoing_.push_back({move, sent[move.to]++});
    } else if (move.to == self) {
      incoming_.push_back({move, received[move.from]++});
    }
  }
}

StateTransfer::~StateTransfer() {
  for (const Arriving& arriving : arriving_)
    for (const transport::Operation& receive : arriving.receives) receive.cancel();
}

transport::Tag StateTransfer::tag_of(const Message& message, std::uint64_t part) const {
  const auto pair = static_cast<std::uint64_t>(message.move.from.local_index) << 32 |
                    static_cast<std::uint64_t>(message.move.to.local_index);
  return transport::make_tag(generation_, transport::TagKind::state, pair,
                             part << 32 | message.index);
}

Result<bool> StateTransfer::advance() {
  if (!std::exchange(begun_, true))
    if (auto started = begin(); !started.ok()) return std::move(started).error();
  auto all_here = take_arrived();
  if (!all_here.ok()) return all_here;
  if (auto sent = forget_ended(sends_); !sent.ok()) return std::move(sent).error();
  return all_here.value() && sends_.empty();
}

/// Receives first, so that messages of others find their place; the seed takes longest.
Status StateTransfer::begin() {
  if (auto posted = post_receives(); !posted.ok()) return posted;
  for (const Message& message : outgoing_)
    if (auto sent = send(message); !sent.ok()) return sent;
  for (const Message& message : copies_) {
    const at::Tensor from = store_.held(message.move.piece);
    const at::Tensor to = store_.incoming(message.move.piece);
    const ParameterInfo& info = store_.parameters()[message.move.piece.parameter.index()];
    if (!from.defined() || !to.defined()) return missing("no room for a piece, or no piece,", info);
    to.copy_(from);
  }
  return checkpoint_.empty() ? make_from_seed() : read_checkpoint();
}

/// Layer by layer, so that no more than one is there twice. Of a layer only what this device keeps
/// is made: a tied head's matrix is its embedding's, which has been made there.
Status StateTransfer::make_from_seed() {
  InitialLayers layers(setup_);
  auto options = setup_.layers;
  options.threads = drawing_threads(setup_.job.cluster, store_.device().node,
                                    static_cast<int>(std::thread::hardware_concurrency()));
  for (const auto& [id, pieces] : begun_pieces_) {
    auto& names = options.only.emplace();
    for (const ShardKey& piece : pieces)
      names.insert(store_.parameters()[piece.parameter.index()].name);
    auto layer = layers.make(id, options);
    if (!layer.ok()) return std::move(layer).error();
    if (auto given = give(*layer.value(), pieces); !given.ok()) return given;
  }
  return Done{};
}

/// First values of a layer to where they are kept. A master follows from the value that was just
/// copied where that lies: half the bytes, and no conversion on the way to a device.
Status StateTransfer::give(models::Layer& layer, const std::vector<ShardKey>& pieces) {
  std::map<std::pair<ParameterId, Box>, at::Tensor> values;
  for (const ShardKey& piece : pieces) {
    const ParameterInfo& info = store_.parameters()[piece.parameter.index()];
    const at::Tensor target = store_.incoming(piece);
    if (!target.defined()) return missing("no room for the first value", info);
    if (piece.kind == StateKind::moments) {
      target.zero_();
      continue;
    }
    const auto known = values.find({piece.parameter, piece.box});
    if (known != values.end()) {
      target.copy_(known->second);
      continue;
    }
    for (const auto& parameter : layer.parameters())
      if (parameter.name == info.name)
        target.copy_(state::view_of(parameter.value.detach(),
                                    {piece.parameter, piece.kind, whole_box(info.shape)},
                                    piece.box));
    if (piece.kind == StateKind::value) values[{piece.parameter, piece.box}] = target;
  }
  return Done{};
}

Status StateTransfer::read_checkpoint() {
  if (begun_pieces_.empty()) return Done{};
  const auto checkpoint = state::Checkpoint::open(checkpoint_);
  if (!checkpoint.ok()) return checkpoint.error();
  for (const auto& [id, pieces] : begun_pieces_)
    for (const ShardKey& piece : pieces) {
      const ParameterInfo& info = store_.parameters()[piece.parameter.index()];
      const at::Tensor target = store_.incoming(piece);
      if (!target.defined()) return missing("no room for the saved value", info);
      const auto saved =
          checkpoint.value().read(info.name, piece.kind, piece.box, target.scalar_type());
      if (!saved.ok()) return saved.error();
      target.copy_(saved.value());
    }
  return Done{};
}

Status StateTransfer::send(const Message& message) {
  const at::Tensor piece = store_.held(message.move.piece);
  if (!piece.defined())
    return missing("asked for a piece that is not here,",
                   store_.parameters()[message.move.piece.parameter.index()]);
  const auto owner = std::make_shared<const at::Tensor>(piece.cpu().contiguous());
  const auto* const bytes = static_cast<const std::byte*>(owner->const_data_ptr());
  for (const Part& part : parts_of(owner->nbytes())) {
    auto operation = transport_.send(message.move.to.node.value, tag_of(message, part.number),
                                     {bytes + part.begin, part.bytes, owner});
    operation.on_done([wake = wake_](const Status&) { wake(); });
    sends_.push_back(std::move(operation));
  }
  return Done{};
}

Status StateTransfer::post_receives() {
  for (; next_receive_ < incoming_.size(); ++next_receive_) {
    const Message& message = incoming_[next_receive_];
    at::Tensor target = store_.incoming(message.move.piece);
    if (!target.defined())
      return missing("no room for a piece",
                     store_.parameters()[message.move.piece.parameter.index()]);
    const auto bytes = static_cast<std::int64_t>(target.nbytes());
    if (posted_bytes_ > 0 && posted_bytes_ + bytes > kPostedMax) break;
    const bool is_reachable = target.is_cpu() && target.is_contiguous();
    at::Tensor buffer = is_reachable ? target : at::empty(target.sizes(), target.scalar_type());
    auto receives = receive(message, buffer);
    posted_bytes_ += bytes;
    arriving_.push_back({std::move(target), std::move(buffer), std::move(receives)});
  }
  return Done{};
}

/// Posts the receives of one piece.
std::vector<transport::Operation> StateTransfer::receive(const Message& message,
                                                         const at::Tensor& buffer) {
  const NodeId from = message.move.from.node;
  const auto owner = std::make_shared<at::Tensor>(buffer);
  auto* const bytes = static_cast<std::byte*>(buffer.data_ptr());
  std::vector<transport::Operation> receives;
  for (const Part& part : parts_of(buffer.nbytes())) {
    receives.push_back(transport_.receive(from.value, tag_of(message, part.number),
                                          {bytes + part.begin, part.bytes, owner}));
    receives.back().on_done([wake = wake_, came = came_, from](const Status& status) {
      if (came && status.ok()) came(from);
      wake();
    });
  }
  return receives;
}

/// Whether everything has come.
Result<bool> StateTransfer::take_arrived() {
  for (;;) {
    bool took = false;
    for (auto arriving = arriving_.begin(); arriving != arriving_.end();) {
      if (auto came = forget_ended(arriving->receives); !came.ok()) return std::move(came).error();
      if (!arriving->receives.empty()) {
        ++arriving;
        continue;
      }
      if (!arriving->buffer.is_same(arriving->target)) arriving->target.copy_(arriving->buffer);
      posted_bytes_ -= static_cast<std::int64_t>(arriving->target.nbytes());
      arriving = arriving_.erase(arriving);
      took = true;
    }
    if (auto posted = post_receives(); !posted.ok()) return std::move(posted).error();
    if (!took) return arriving_.empty() && next_receive_ == incoming_.size();
  }
}

}  // namespace troupe::engine
