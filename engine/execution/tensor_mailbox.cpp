#include "engine/execution/tensor_mailbox.hpp"

#include <algorithm>
#include <utility>

#include "engine/execution/row_calls.hpp"

namespace troupe::engine {

namespace {

std::size_t bytes_of(const Arrival& arrival) {
  std::size_t elements = 1;
  for (const std::int64_t size : arrival.shape) elements *= static_cast<std::size_t>(size);
  return elements * c10::elementSize(arrival.dtype);
}

/// Gradients on their way to be summed are no activations.
bool is_for_stages(const Arrival::Key& key) {
  return key.kind == transport::TagKind::rows || key.kind == transport::TagKind::gradient;
}

}  // namespace

Bytes bytes_to_post(const std::vector<Arrival>& arrivals) {
  Bytes bytes;
  for (const Arrival& arrival : arrivals)
    if (!arrival.local) bytes += Bytes{static_cast<std::int64_t>(bytes_of(arrival))};
  return bytes;
}

TensorMailbox::TensorMailbox(transport::Transport& transport, Device& device,
                             EpochNumber epoch_number, std::function<void()> wake, RowCalls* calls)
    : transport_(transport),
      device_(device),
      epoch_number_(epoch_number),
      wake_(std::move(wake)),
      calls_(calls) {
  if (const auto staging = device.staging())
    staged_ = std::make_unique<StagedSends>(transport, device, *staging, wake_);
}

void TensorMailbox::begin(std::int64_t step, Bytes receive_bound) {
  for (auto& [key, posted] : posted_)
    for (const auto& operation : posted.operations) operation.cancel();
  if (staged_) staged_->clear();
  posted_.clear();
  local_.clear();
  taken_.clear();
  sends_.clear();
  step_ = step;
  receive_bound_ = receive_bound;
  outstanding_ = peak_ = Bytes{};
}

Result<bool> TensorMailbox::post(const std::vector<Arrival>& arrivals, DeviceId caller) {
  const Bytes wanted = bytes_to_post(arrivals);
  if (wanted == Bytes{}) return true;
  if (outstanding_ != Bytes{} && outstanding_ + wanted > receive_bound_) return false;
  for (const Arrival& arrival : arrivals) {
    if (arrival.local) continue;
    auto posted = receive(arrival, caller);
    if (!posted.ok()) return std::move(posted).error();
    for (const auto& operation : posted.value().operations)
      operation.on_done([wake = wake_](const Status&) { wake(); });
    posted_.insert_or_assign(arrival.key, std::move(posted).value());
  }
  outstanding_ += wanted;
  peak_ = std::max(peak_, outstanding_);
  return true;
}

transport::Tag TensorMailbox::tag_of(const Arrival::Key& key) const {
  return {epoch_number_, key.kind, static_cast<std::uint64_t>(step_), key.index};
}

Result<TensorMailbox::Posted> TensorMailbox::receive(const Arrival& arrival, DeviceId caller) {
  const transport::Tag tag = tag_of(arrival.key);
  if (caller.valid()) {
    auto coming = calls_->receive(caller, tag, arrival.shape, arrival.dtype);
    if (!coming.ok()) return std::move(coming).error();
    return Posted{std::make_shared<at::Tensor>(coming.value().rows), {coming.value().operation}};
  }
  at::Tensor host = device_.host_buffer(arrival.shape, arrival.dtype);
  if (is_staged(arrival.key.kind)) return receive_pieces(arrival, std::move(host));
  auto tensor = std::make_shared<at::Tensor>(std::move(host));
  auto operation =
      transport_.receive(arrival.from, tag, {tensor->data_ptr(), bytes_of(arrival), tensor});
  return Posted{std::move(tensor), {std::move(operation)}};
}

/// The sender's places of its ring are for what has been posted: it is told behind all of it. Who
/// cannot be told is lost, and so are the pieces.
TensorMailbox::Posted TensorMailbox::receive_pieces(const Arrival& arrival, at::Tensor host) {
  const transport::Tag tag = tag_of(arrival.key);
  const at::Tensor flat = host.view({-1});
  const PieceCut cut = cut_of(flat, *device_.staging());
  Posted posted{std::make_shared<at::Tensor>(std::move(host)), {}};
  for (std::int64_t number = 0; number < cut.pieces; ++number) {
    const at::Tensor piece = piece_of(flat, cut, number);
    posted.operations.push_back(transport_.receive(
        arrival.from, piece_tag(tag, number), {piece.data_ptr(), piece.nbytes(), posted.tensor}));
  }
  transport_.send(arrival.from, word_tag(tag), {});
  return posted;
}

/// Content is in host memory at both ends.
bool TensorMailbox::is_staged(transport::TagKind kind) const {
  return staged_ != nullptr && kind != transport::TagKind::content;
}

bool TensorMailbox::Posted::has_ended() const {
  return std::ranges::all_of(operations, &transport::Operation::done);
}

Result<bool> TensorMailbox::Posted::has_come() const {
  bool all = true;
  for (const auto& operation : operations) {
    if (!operation.done()) {
      all = false;
    } else if (auto ended = operation.wait(transport::within({})); !ended.ok()) {
      return std::move(ended).error();
    }
  }
  return all;
}

transport::Operation TensorMailbox::begin_send(const Parcel& parcel) {
  const transport::Tag tag = tag_of(parcel.key);
  if (parcel.called.valid()) return calls_->send(parcel.called, tag, parcel.tensor);
  auto tensor = std::make_shared<const at::Tensor>(parcel.tensor);
  return transport_.send(parcel.to, tag, {tensor->const_data_ptr(), tensor->nbytes(), tensor});
}

void TensorMailbox::send(const Parcel& parcel) {
  if (!parcel.called.valid() && is_staged(parcel.key.kind))
    return staged_->send(tag_of(parcel.key), parcel.to, parcel.tensor, parcel.in_host);
  auto operation = begin_send(parcel);
  operation.on_done([wake = wake_](const Status&) { wake(); });
  sends_.push_back(std::move(operation));
}

std::shared_ptr<at::Tensor> TensorMailbox::put(Arrival::Key key, Bytes bytes) {
  auto tensor = std::make_shared<at::Tensor>();
  local_.insert_or_assign(key, Local{tensor, bytes});
  return tensor;
}

Result<bool> TensorMailbox::arrived(const std::vector<Arrival>& arrivals) const {
  for (const Arrival& arrival : arrivals) {
    if (local_.contains(arrival.key)) continue;
    const auto posted = posted_.find(arrival.key);
    if (posted == posted_.end()) return false;
    auto come = posted->second.has_come();
    if (!come.ok() || !come.value()) return come;
  }
  return true;
}

Bytes TensorMailbox::held() const {
  Bytes held;
  for (const auto& [key, local] : local_) held += local.bytes;
  for (const auto& [key, taken] : taken_) held += taken.held;
  for (const auto& [key, posted] : posted_) {
    if (is_for_stages(key) && posted.has_ended())
      held += Bytes{static_cast<std::int64_t>(posted.tensor->nbytes())};
  }
  return held;
}

std::shared_ptr<at::Tensor> TensorMailbox::take(Arrival::Key key) {
  if (const auto found = local_.find(key); found != local_.end()) {
    auto tensor = std::move(found->second.tensor);
    taken_[key] = {{}, found->second.bytes};
    local_.erase(found);
    return tensor;
  }
  const auto found = posted_.find(key);
  auto tensor = std::move(found->second.tensor);
  const Bytes bytes{static_cast<std::int64_t>(tensor->nbytes())};
  taken_[key] = {bytes, is_for_stages(key) ? bytes : Bytes{}};
  posted_.erase(found);
  return tensor;
}

void TensorMailbox::release(Arrival::Key key) {
  const auto found = taken_.find(key);
  outstanding_ -= found->second.received;
  taken_.erase(found);
}

Status TensorMailbox::check() {
  if (staged_)
    if (auto moved = staged_->move_on(sends_); !moved.ok()) return moved;
  for (const auto& operation : sends_) {
    if (!operation.done()) continue;
    if (auto status = operation.wait(transport::within({})); !status.ok()) return status;
  }
  forget_ended_sends();
  return Done{};
}

bool TensorMailbox::has(const Arrival& arrival) const {
  const auto posted = posted_.find(arrival.key);
  if (posted != posted_.end()) return posted->second.has_ended();
  return local_.contains(arrival.key);
}

std::shared_ptr<const Launch> TensorMailbox::failed_copy() const {
  return staged_ ? staged_->failed_copy() : nullptr;
}

std::shared_ptr<const Launch> TensorMailbox::copy_under_way() const {
  return staged_ ? staged_->copy_under_way() : nullptr;
}

void TensorMailbox::forget_ended_sends() {
  if (staged_) staged_->forget_lost();
  std::erase_if(sends_, [](const transport::Operation& operation) { return operation.done(); });
}

}  // namespace troupe::engine
