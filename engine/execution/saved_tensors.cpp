#include "engine/execution/saved_tensors.hpp"

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <cstdint>
#include <map>
#include <utility>

#include "engine/execution/device.hpp"

namespace troupe::engine {

namespace {

thread_local SavedTensors* collecting = nullptr;

/// A tensor over memory that is there.
at::Tensor view_of(const at::Storage& memory, const at::TensorOptions& options, std::int64_t offset,
                   at::IntArrayRef sizes, at::IntArrayRef strides) {
  return at::empty({0}, options).set_(memory, offset, sizes, strides);
}

}  // namespace

/// One tensor, as autograd's node and its owner here both see it.
struct SavedTensors::Saved {
  at::Tensor value;  ///< Undefined while it is in host memory.
};

struct SavedTensors::Hooks final : torch::autograd::SavedVariableHooks {
  explicit Hooks(std::shared_ptr<Saved> own) : saved(std::move(own)) {}

  /// Detached: an output that held its own graph would never be freed.
  void call_pack_hook(const at::Tensor& tensor) override { saved->value = tensor.detach(); }
  at::Tensor call_unpack_hook() override {
    TORCH_CHECK(saved->value.defined(), "a backward needs what is still in host memory");
    return saved->value;
  }

  std::shared_ptr<Saved> saved;
};

/// LibTorch's own engine, which asks for hooks where a thread collects.
class SavedTensors::Engine final : public torch::autograd::Engine {
 public:
  /// Lives as long as the process, as LibTorch's does: threads of it may outlive static objects.
  static torch::autograd::Engine& only() {
    static auto* const engine = new Engine;
    return *engine;
  }

  std::unique_ptr<torch::autograd::SavedVariableHooks> get_default_saved_variable_hooks() override {
    if (collecting == nullptr) return nullptr;
    auto saved = std::make_shared<Saved>();
    collecting->saved_.push_back(saved);
    return std::make_unique<Hooks>(std::move(saved));
  }
};

// When the process starts: the first engine of a process that runs a backward starts the threads of
// its devices, and another one after it has none.
const bool SavedTensors::is_engine_set =
    (torch::autograd::set_default_engine_stub(SavedTensors::Engine::only), true);

/// Of several tensors over it, each part of one block of memory.
struct SavedTensors::Block {
  struct Use {
    std::weak_ptr<Saved> saved;
    at::TensorOptions options;
    std::int64_t offset = 0;
    std::vector<std::int64_t> sizes, strides;
  };
  at::Tensor host;  ///< Bytes.
  std::vector<Use> uses;
};

SavedTensors::SavedTensors() = default;
SavedTensors::~SavedTensors() = default;

SavedTensors::Collect::Collect(SavedTensors& of) { collecting = &of; }

SavedTensors::Collect::~Collect() { collecting = nullptr; }

Bytes SavedTensors::offload(Device& device) {
  const c10::NoGradGuard no_grad;
  // A number that an operator was given is a tensor of the host beside those of an accelerator.
  const auto is_on_device = [&](const at::Tensor& value) {
    return value.defined() && value.has_storage() && value.nbytes() > 0 &&
           value.device() == device.place();
  };
  std::map<c10::StorageImpl*, std::vector<std::shared_ptr<Saved>>> by_memory;
  for (const auto& each : saved_)
    if (auto saved = each.lock(); saved && is_on_device(saved->value))
      by_memory[saved->value.storage().unsafeGetStorageImpl()].push_back(std::move(saved));
  Bytes moved;
  for (auto& [memory, tensors] : by_memory) {
    const at::Tensor& first = tensors.front()->value;
    // Whoever else holds it would keep it on the device.
    if (first.storage().use_count() > tensors.size()) continue;
    const auto bytes = static_cast<std::int64_t>(memory->nbytes());
    at::Tensor flat = view_of(first.storage(), first.options().dtype(at::kByte), 0, {bytes}, {1});
    Block block{device.to_host(flat), {}};
    if (block.host.is_same(flat)) block.host = flat.clone();
    for (const auto& tensor : tensors) {
      const at::Tensor& value = tensor->value;
      block.uses.push_back({tensor, value.options(), value.storage_offset(), value.sizes().vec(),
                            value.strides().vec()});
      tensor->value.reset();
    }
    away_.push_back(std::move(block));
    moved += Bytes{bytes};
  }
  return moved;
}

Bytes SavedTensors::fetch(Device& device) {
  const c10::NoGradGuard no_grad;
  Bytes moved;
  for (Block& block : std::exchange(away_, {})) {
    at::Tensor bytes = device.to_device(block.host);
    if (bytes.is_same(block.host)) bytes = block.host.clone();
    for (const Block::Use& use : block.uses)
      if (const auto saved = use.saved.lock())
        saved->value = view_of(bytes.storage(), use.options, use.offset, use.sizes, use.strides);
    moved += Bytes{bytes.numel()};
  }
  return moved;
}

}  // namespace troupe::engine
