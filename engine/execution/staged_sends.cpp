#include "engine/execution/staged_sends.hpp"

#include <algorithm>
#include <utility>

namespace troupe::engine {

using transport::Operation;
using transport::Tag;

Tag piece_tag(Tag tag, std::int64_t number) {
  tag.index |= static_cast<std::uint64_t>(number) << 48U;
  return tag;
}

Tag word_tag(Tag tag) {
  tag.index |= std::uint64_t{1} << 63U;
  return tag;
}

PieceCut cut_of(const at::Tensor& tensor, const Staging& staging) {
  const auto elements = static_cast<std::int64_t>(staging.piece_bytes / tensor.element_size());
  return {elements, std::max<std::int64_t>(1, (tensor.numel() + elements - 1) / elements)};
}

at::Tensor piece_of(const at::Tensor& flat, const PieceCut& cut, std::int64_t number) {
  const std::int64_t begin = number * cut.elements;
  return flat.narrow(0, begin, std::min(cut.elements, flat.numel() - begin));
}

StagedSends::StagedSends(transport::Transport& transport, Device& device, Staging staging,
                         std::function<void()> wake)
    : transport_(transport),
      device_(device),
      staging_(staging),
      wake_(std::move(wake)),
      reads_device_(device.memory() != MemoryKind::host && transport.takes(device.memory())),
      ring_(device, staging) {
  auto entry = device.entry();
  if (reads_device_ && entry) transport_.prepare_thread(std::move(entry));
}

void StagedSends::send(const Tag& tag, transport::Peer to, const at::Tensor& tensor, bool in_host) {
  Operation word = transport_.receive(to, word_tag(tag), {});
  word.on_done([wake = wake_](const Status&) { wake(); });
  at::Tensor flat = tensor.detach().view({-1});
  const PieceCut cut = cut_of(flat, staging_);
  leaving_.push_back({tag, to, std::move(flat), cut, std::move(word), in_host, nullptr, 0});
}

Status StagedSends::move_on(std::vector<Operation>& sent) {
  Status first = Done{};
  const std::size_t room = staging_.pieces * staging_.piece_bytes;
  std::size_t unasked = 0;  // On the device, for receivers that have not posted.
  for (Leaving& message : leaving_) {
    if (message.word.done()) {
      Status begun = begin_pieces(message, sent);
      if (first.ok() && !begun.ok()) first = std::move(begun);
    } else if (message.moves != nullptr) {
      static_cast<void>(has_copied(message.moves));  // Where it failed nobody has to post first.
    } else if (!message.in_host) {
      unasked += message.flat.nbytes();
      if (unasked <= room) continue;
      unasked -= message.flat.nbytes();
      move_to_host(message);
    }
  }
  std::erase_if(leaving_,
                [](const Leaving& message) { return message.begun == message.cut.pieces; });
  while (!pieces_.empty() && has_copied(pieces_.front().copy)) {
    const Piece& piece = pieces_.front();
    give(piece.to, piece.tag, {piece.place->const_data_ptr(), piece.bytes, piece.place}, sent);
    pieces_.pop_front();
  }
  return first;
}

/// Whether it is over, and well.
bool StagedSends::has_copied(const std::shared_ptr<const Launch>& copy) {
  if (!copy->done()) return false;
  if (copy->status().ok()) return true;
  failed_copy_ = copy;
  return false;
}

bool StagedSends::leaves_as_it_is(const Leaving& message) const {
  return message.in_host || (reads_device_ && message.to != transport_.self());
}

void StagedSends::move_to_host(Leaving& message) {
  at::Tensor host = device_.host_buffer(message.flat.sizes(), message.flat.scalar_type());
  message.moves = device_.copy_out(std::exchange(message.flat, host), host, wake_);
  message.in_host = true;
}

Status StagedSends::begin_pieces(Leaving& message, std::vector<Operation>& sent) {
  if (auto said = message.word.wait(transport::within({})); !said.ok()) return said;
  if (message.moves != nullptr && !has_copied(message.moves)) return Done{};
  for (; message.begun < message.cut.pieces; ++message.begun) {
    at::Tensor piece = piece_of(message.flat, message.cut, message.begun);
    const std::size_t bytes = piece.nbytes();
    const Tag tag = piece_tag(message.tag, message.begun);
    if (leaves_as_it_is(message)) {
      auto owner = std::make_shared<const at::Tensor>(std::move(piece));
      const auto memory = message.in_host ? MemoryKind::host : device_.memory();
      give(message.to, tag, {owner->const_data_ptr(), bytes, owner, memory}, sent);
      continue;
    }
    auto place = ring_.take(wake_);
    if (place == nullptr) break;
    at::Tensor host =
        place->narrow(0, 0, static_cast<std::int64_t>(bytes)).view(message.flat.scalar_type());
    // Until the copy is over, or given up, nobody else gets the place.
    auto copy =
        device_.copy_out(std::move(piece), std::move(host), [wake = wake_, place] { wake(); });
    pieces_.push_back({tag, message.to, std::move(place), bytes, std::move(copy)});
  }
  return Done{};
}

void StagedSends::give(transport::Peer to, const Tag& tag, transport::ConstBuffer piece,
                       std::vector<Operation>& sent) {
  Operation operation = transport_.send(to, tag, std::move(piece));
  operation.on_done([wake = wake_](const Status&) { wake(); });
  sent.push_back(std::move(operation));
}

std::shared_ptr<const Launch> StagedSends::copy_under_way() const {
  if (!pieces_.empty()) return pieces_.front().copy;
  const auto moving = std::ranges::find_if(leaving_, [](const Leaving& message) {
    return message.moves != nullptr && !message.moves->done();
  });
  return moving == leaving_.end() ? nullptr : moving->moves;
}

void StagedSends::forget_lost() {
  std::erase_if(leaving_, [](const Leaving& message) {
    return message.word.done() && !message.word.wait(transport::within({})).ok();
  });
}

void StagedSends::clear() {
  for (const Leaving& message : leaving_) message.word.cancel();
  leaving_.clear();
  pieces_.clear();
  failed_copy_ = nullptr;
}

}  // namespace troupe::engine
