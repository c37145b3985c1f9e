#include "engine/execution/host_parameters.hpp"

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

#include <cstdint>
#include <map>
#include <utility>

#include "engine/execution/device.hpp"

namespace troupe::engine {

namespace {

/// All of the memory in which a tensor lies: with a version of its own, so that writing here is no
/// change to what autograd has saved.
at::Tensor bytes_around(const at::Tensor& tensor) {
  const at::Storage& memory = tensor.storage();
  const std::vector<std::int64_t> sizes{static_cast<std::int64_t>(memory.nbytes())}, strides{1};
  return at::empty({0}, tensor.options().dtype(at::kByte)).set_(memory, 0, sizes, strides);
}

/// The memory in which `bytes` lie, as a tensor that owns it; of `bytes`, and all others that lie
/// there, nothing is left but their shape.
at::Tensor take_memory(const at::Tensor& bytes) {
  c10::StorageImpl& from = *bytes.storage().unsafeGetStorageImpl();
  c10::Storage taken(c10::Storage::use_byte_size_t(), from.nbytes(),
                     from.set_data_ptr(c10::DataPtr(nullptr, bytes.device())), from.allocator());
  return at::empty({0}, bytes.options()).set_(taken, 0, bytes.sizes(), bytes.strides());
}

/// Memory for them again, with any contents.
void give_memory(const at::Tensor& bytes) {
  c10::StorageImpl& to = *bytes.storage().unsafeGetStorageImpl();
  TORCH_CHECK(to.allocator() != nullptr, "parameters lie in memory that nobody can take again");
  to.set_data_ptr_noswap(to.allocator()->allocate(to.nbytes()));
}

}  // namespace

ParameterMemory memory_of(const std::vector<models::Parameter*>& parameters) {
  ParameterMemory memory;
  for (const auto* parameter : parameters)
    memory.insert(parameter->value.storage().unsafeGetStorageImpl());
  return memory;
}

HostParameters::HostParameters(const std::vector<models::Parameter*>& parameters,
                               const ParameterMemory& shared) {
  const c10::NoGradGuard no_grad;
  std::map<const c10::StorageImpl*, std::size_t> known;
  for (const auto* parameter : parameters) {
    const c10::StorageImpl* const memory = parameter->value.storage().unsafeGetStorageImpl();
    if (shared.contains(memory) || memory->nbytes() == 0) continue;
    const auto [place, is_new] = known.emplace(memory, blocks_.size());
    if (is_new) blocks_.emplace_back().memory = bytes_around(parameter->value);
    blocks_[place->second].trains |= parameter->value.requires_grad();
  }
}

HostParameters::Moved HostParameters::evict(Device& device) {
  TORCH_CHECK(!is_away_, "parameters leave that have left already");
  const c10::NoGradGuard no_grad;
  is_away_ = true;
  Moved moved;
  for (Block& block : blocks_) {
    if (!block.host.defined()) {
      block.host = device.host_buffer({block.bytes()}, at::kByte);
      moved.taken += Bytes{block.bytes()};
    }
    at::Tensor leaving = take_memory(block.memory);
    if (std::exchange(block.is_current, true)) continue;
    device.write_to_host(std::move(leaving), block.host);  // Until then it is kept.
    moved.copied += Bytes{block.bytes()};
  }
  return moved;
}

Bytes HostParameters::fetch() {
  TORCH_CHECK(is_away_, "parameters come that are there");
  const c10::NoGradGuard no_grad;
  Bytes moved;
  for (Block& block : blocks_) {
    if (block.memory.storage().data() != nullptr) continue;  // Of moves that failed half way.
    give_memory(block.memory);
    block.memory.copy_(block.host, true);
    moved += Bytes{block.bytes()};
  }
  is_away_ = false;
  return moved;
}

Bytes HostParameters::in_host() const {
  Bytes bytes;
  for (const Block& block : blocks_)
    if (block.host.defined()) bytes += Bytes{block.bytes()};
  return bytes;
}

void HostParameters::changed() {
  for (Block& block : blocks_) block.is_current = block.is_current && !block.trains;
}

}  // namespace troupe::engine
